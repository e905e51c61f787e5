"""Exports a trained model as a SavedModel that TensorFlow Serving loads.

python export/run.py --run runs/digits-rem --to served
"""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from zipfile import BadZipFile

# The repository's own folders, wherever the command is called from.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    # TensorFlow 2.21 writes notes at start-up before its log level counts.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(stderr, 2)

import keras  # noqa: E402

from tfcaps.cli import Parser, UserError, run_command  # noqa: E402
from tfcaps.rem import capsule_outputs  # noqa: E402


def export_model(
    model: keras.Model, to: Path, *, name: str, version: int | None = None
) -> Path:
    """Writes `<to>/<name>/<version>/`, which appears complete or not at all.

    The signature `serving_default` takes `images` `[b, h, w, c]`, float32 in
    [0, 1], for any number of images, and returns `lengths` `[b, j]`, `poses`
    `[b, j, d]` (float32) and `classes` `[b]` (int64).

    Args:
        model: A functional or sequential model with a routed layer.
        to: Folder of all served models. It is made if need be.
        name: Name of the model for clients.
        version: Int, at least 1. Defaults to the next free one.

    Returns:
        The folder of the version.

    Raises:
        ValueError: If the model has no routed layer.
        UserError: If the version exists.
        OSError: If it cannot be written.
    """
    outputs = capsule_outputs(model)
    base = to / name
    is_new = not base.exists()
    base.mkdir(parents=True, exist_ok=True)
    target = base / str(_free_version(base) if version is None else version)
    if target.exists():
        raise UserError(
            f"{target} exists and is not overwritten; give another --version."
        )
    # The server ignores folders whose names are not numbers.
    staged = Path(tempfile.mkdtemp(prefix=".publish-", dir=base))
    try:
        _write_saved_model(outputs, staged)
        staged.chmod(0o755)  # mkdtemp makes folders private
        os.rename(staged, target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        if is_new:
            with contextlib.suppress(OSError):  # another export may be in it
                base.rmdir()
        raise
    return target


def _free_version(base: Path) -> int:
    taken = [int(p.name) for p in base.iterdir() if p.name.isdecimal()]
    return max(taken, default=0) + 1


def _write_saved_model(outputs: keras.Model, folder: Path) -> None:
    import tensorflow as tf

    images = outputs.inputs[0]

    def serve(images):
        served = outputs(images, training=False)
        lengths = tf.cast(served["lengths"], tf.float32)
        return {
            "lengths": lengths,
            "poses": tf.cast(served["poses"], tf.float32),
            "classes": tf.argmax(lengths, axis=-1),
        }

    archive = keras.export.ExportArchive()
    archive.track(outputs)
    archive.add_endpoint(
        "serving_default",
        serve,
        input_signature=[
            tf.TensorSpec((None, *images.shape[1:]), tf.float32, name="images")
        ],
    )
    archive.write_out(str(folder), verbose=False)


def load_model(path: Path) -> keras.Model:
    """Loads the model of a run folder, or a `.keras` file.

    Raises:
        UserError: If there is none, or it cannot be read.
    """
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{path} is neither a run folder with a model.keras nor a .keras "
            "file."
        )
    try:
        return keras.saving.load_model(file, compile=False)
    except (ValueError, OSError, KeyError, TypeError, BadZipFile) as error:
        raise UserError(
            f"{file} is not a readable Keras model: {error}."
        ) from error


def _make_parser() -> Parser:
    parser = Parser(prog="export/run.py", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--run",
        required=True,
        type=Path,
        help="run folder, or any .keras file of a capsule network",
    )
    parser.add_argument(
        "--to", required=True, type=Path, help="folder of the served models"
    )
    parser.add_argument(
        "--model-name", help="name for clients (default: the model's own)"
    )
    parser.add_argument(
        "--version", type=int, help="number (default: the next free one)"
    )
    return parser


def _export(options) -> None:
    if options.version is not None and options.version < 1:
        raise UserError(f"--version must be at least 1, not {options.version}.")
    if options.to.exists() and not options.to.is_dir():
        raise UserError(f"--to {options.to} is not a folder.")
    model = load_model(options.run)
    name = options.model_name or model.name
    if Path(name).name != name or name.startswith("."):
        raise UserError(f"--model-name {name!r} must be a plain folder name.")
    try:
        target = export_model(
            model, options.to, name=name, version=options.version
        )
    except ValueError as error:
        raise UserError(f"{options.run} cannot be exported: {error}") from error
    print(f"exported to {target}")


if __name__ == "__main__":
    sys.exit(run_command(_make_parser(), _export))
