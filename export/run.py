"""Exports a trained model as a SavedModel that TensorFlow Serving loads.

python export/run.py --run runs/digits-rem --to served
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make_parser() -> Any:
    """Returns the parser of the command."""
    from cli import Parser

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
    add("--tflite", action="store_true", help="also write model.tflite")
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

    return run_loading(make_parser(), _load, _check, argv)


def _check(options: Any) -> None:
    from cli import UserError, check_installed

    path = options.run
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{path} is neither a run folder with a model.keras nor a .keras "
            "file."
        )
    check_installed(serving="tensorflow_serving")


def _load() -> Callable[..., None]:
    from export.quiet import start_tensorflow

    start_tensorflow()
    from export.run_job import export

    return export


if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
