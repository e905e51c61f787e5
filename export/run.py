"""Exports a trained model for TensorFlow Serving, or for other runtimes.

python export/run.py --run runs/digits-rem --to served
python export/run.py --run runs/digits-rem --to served --format onnx
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import (
    Parser,
    UserError,
    check_installed,
    native_silence,
    number,
    read_model,
    run_loading,
    start_quietly,
)
from markdown_table import table

# Formats, and the modules of their extras of the same name. TensorFlow writes
# all of them.
FORMATS = {
    "savedmodel": "",
    "litert": "ai_edge_litert",
    "onnx": "onnx onnxruntime tf2onnx",
    "openvino": "openvino",
}
# Of what int8 costs, as the manifest has it.
COLUMNS = (
    ("format", "{format}"),
    ("numbers", "{numbers}"),
    ("accuracy", "{accuracy:.2%}"),
    ("same trees", "{same_trees:.1%}"),
    ("same codes", "{same_codes:.2%}"),
    ("bytes", "{bytes:,}"),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="export/run.py", description=__doc__)
    add = parser.add_argument
    add(
        "--run",
        required=True,
        type=Path,
        help="run folder, or any .keras file of a capsule network",
    )
    add("--to", required=True, type=Path, help="folder of the served models")
    add("--model-name", help="name for clients (default: the model's own)")
    add(
        "--version",
        # The server takes no larger numbers.
        type=lambda text: number(text, int, 1, 2**63 - 1),
        help="number (default: the next free one)",
    )
    add(
        "--input-dtype",
        choices=("uint8", "float32"),
        help="what clients send: uint8 pixels from 0 to 255, or float32 pixels "
        "from 0 to 1 (default: float32, or uint8 for a network that scales "
        "pixels itself)",
    )
    add(
        "--pixels",
        type=int,
        choices=(1, 255),
        help="largest pixel that the network takes (default: what its first "
        "layers say)",
    )
    add(
        "--levels",
        type=lambda text: number(text, int, 2, 256),
        help="round the couplings to this many levels, 2 to 256",
    )
    add(
        "--mode",
        choices=("midtread", "midrise"),
        default="midtread",
        help="with levels at 0 and 1 (default), or in the middle of equal bins",
    )
    add(
        "--no-compact",
        action="store_true",
        help="keep what pruning has left without effect",
    )
    add(
        "--format",
        nargs="+",
        choices=FORMATS,
        default=["savedmodel"],
        help="one or several, in one version: savedmodel for TensorFlow "
        "Serving (default), litert, onnx, openvino",
    )
    add(
        "--int8",
        type=Path,
        metavar="IMAGES.npz",
        help="also write litert, onnx and openvino in int8, calibrated by 300 "
        "images of x_train and measured on x_test and y_test of this file",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_loading(make_parser(), _load, check, argv)


def check(options: argparse.Namespace) -> None:
    """Raises `UserError` if a file or a package is missing."""
    _model_file(options.run)
    options.format = list(dict.fromkeys(options.format))
    if options.int8 and options.format == ["savedmodel"]:
        raise UserError(
            "--int8 needs --format litert, onnx or openvino; a SavedModel has "
            "no int8."
        )
    if options.int8 and not options.int8.is_file():
        raise UserError(f"there is no file {options.int8}.")
    needed = {f: FORMATS[f] for f in options.format if f != "savedmodel"}
    if options.int8 and "openvino" in needed:
        needed["openvino"] += " nncf"
    check_installed(tensorflow="tensorflow", **needed)


def _model_file(path: Path) -> Path:
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{path} is neither a run folder with a model.keras nor a .keras "
            "file."
        )
    return file


def _load() -> Callable[..., None]:
    start_quietly("tensorflow")
    return export


def load_model(path: Path) -> Any:
    """Loads the model of a run folder, or a `.keras` file."""
    return read_model(_model_file(path))


def export(options: argparse.Namespace) -> None:
    """Loads, exports, checks and publishes a model."""
    from tfcaps import rem
    from tfcaps.export import ExportError, save
    from tfcaps.export.int8 import read_samples
    from tfcaps.export.pixels import pixels_of
    from tfcaps.export.serving import write_server_configs

    if options.to.exists() and not options.to.is_dir():
        raise UserError(f"--to {options.to} is not a folder.")
    model = load_model(options.run)
    name = options.model_name or model.name
    if Path(name).name != name or name.startswith("."):
        raise UserError(f"--model-name {name!r} must be a plain folder name.")
    samples = None
    try:
        if options.int8:
            taken = rem.encoder(model)
            shape = tuple(taken.inputs[0].shape[1:])
            sent = pixels_of(taken, options.input_dtype, options.pixels).dtype
            samples = read_samples(options.int8, shape, sent)
        with native_silence():  # converters write notes
            target = save(
                model,
                options.to / name,
                version=options.version,
                input_dtype=options.input_dtype,
                pixels=options.pixels,
                levels=options.levels,
                mode=options.mode,
                compacted=not options.no_compact,
                formats=options.format,
                int8=samples,
                about=describe(options.run),
                log=lambda line: print(line, flush=True),
            )
    except ExportError as error:
        raise UserError(str(error)) from error
    except ValueError as error:
        raise UserError(f"{options.run} cannot be exported: {error}") from error
    if "savedmodel" in options.format:
        write_server_configs(options.to)
    about = _read_json(target / "manifest.json")
    if "int8" in about:
        print(int8_table(about["int8"]))
    print(f"exported to {target}")


def int8_table(measured: Mapping[str, Any]) -> str:
    """Returns what int8 costs, of a manifest, as a Markdown table."""
    rows = [
        {"format": form, "numbers": numbers, **row}
        for form, kinds in measured["formats"].items()
        for numbers, row in kinds.items()
    ]
    return table(rows, COLUMNS, left=2)


def describe(path: Path) -> dict[str, Any]:
    """Returns what the files of a run folder say of a model.

    It is a dict of `dataset`, `classes`, `metrics`, `saliency` (whether the map
    of `explain` explains anything) and `run`, each `None` if it is not known,
    as of a `.keras` file.

    Raises:
        ValueError: If a file cannot be read.
    """
    config, data, reports, environment = (
        _read_json(path / name) if path.is_dir() else {}
        for name in ("config.json", "data.json", "rem.json", "environment.json")
    )
    # Where the data lay is nobody's business who gets the model.
    config.pop("data_dir", None)
    models = reports.get("models", {})
    report = models.get("rem" if config.get("rem") else "baseline", {})
    metrics = {
        name: value
        for name, value in report.items()
        if isinstance(value, int | float | str)
    }
    return {
        "dataset": config.get("dataset"),
        "classes": data.get("classes"),
        "metrics": metrics or None,
        "saliency": report.get("saliency"),
        "run": {"config": config, "commit": environment.get("commit")}
        if config
        else None,
    }


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
