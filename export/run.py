"""Exports a trained model for TensorFlow Serving, or for other runtimes.

python export/run.py --run runs/digits-rem --to served
python export/run.py --run runs/digits-rem --to served --format onnx
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make_parser() -> Any:
    """Returns the parser of the command."""
    from cli import Parser
    from export.formats import FORMATS

    parser = Parser(prog="export/run.py", description=__doc__.splitlines()[0])
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
        type=_version,
        help="number (default: the next free one)",
    )
    add(
        "--images",
        choices=("uint8", "float32"),
        default="float32",
        help="what clients send: uint8 pixels from 0 to 255, or float32 pixels "
        "from 0 to 1 (default)",
    )
    add(
        "--levels",
        type=_levels,
        help="round the couplings to this many levels, 2 to 256",
    )
    add(
        "--levels-mode",
        choices=("midtread", "midrise"),
        default="midtread",
        help="with levels at 0 and 1 (default), or in the middle of equal bins",
    )
    add(
        "--no-compact",
        action="store_true",
        help="keep what pruning has left without effect, and all zeros",
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
        "--tflite",
        action="store_true",
        help="the same as litert in --format, beside the others",
    )
    add(
        "--int8",
        type=Path,
        metavar="IMAGES.npz",
        help="also write litert, onnx and openvino in int8, calibrated by 300 "
        "images of x_train and measured on x_test and y_test of this file",
    )
    return parser


def _version(text: str) -> int:
    from cli import number

    # The server takes no larger numbers.
    version: int = number(text, int, 1, 2**63 - 1)
    return version


def _levels(text: str) -> int:
    from cli import number

    levels: int = number(text, int, 2, 256)
    return levels


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    from cli import run_loading

    return run_loading(make_parser(), _load, check, argv)


def check(options: Any) -> None:
    """Raises `UserError` if a file or a package is missing."""
    from cli import UserError, check_installed
    from export.formats import needed

    path = options.run
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{path} is neither a run folder with a model.keras nor a .keras "
            "file."
        )
    if options.tflite:
        options.format = [*options.format, "litert"]
    options.format = list(dict.fromkeys(options.format))
    if options.int8 and options.format == ["savedmodel"]:
        raise UserError(
            "--int8 needs --format litert, onnx or openvino; a SavedModel has "
            "no int8."
        )
    if options.int8 and not options.int8.is_file():
        raise UserError(f"there is no file {options.int8}.")
    check_installed(**needed(options.format, int8=bool(options.int8)))


def _load() -> Callable[..., None]:
    from export.quiet import start_tensorflow

    start_tensorflow()
    from export.run_job import export

    return export


if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
