"""Checks an exported folder as a server would see it.

python export/check.py served/dr_capsnet/1

| check | what it says |
|---|---|
| manifest | every file is there, and is the one that was written |
| graph | no XLA, no Python, the signatures and types that clients expect |
| batch | any number of images |
| load, run | TensorFlow's C library does it, without Python and with XLA off |
| parity | the answers are the Keras model's, within 1e-5 (couplings 1e-4) |
| rows | an image's answer does not depend on its neighbours |
| warmup | a server can replay the warm-up requests |
| litert, onnx, openvino | the same of these formats, by their runtimes |
| probe | with `--probe`: a C++ program with the server's loader does, too |
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make_parser() -> Any:
    """Returns the parser of the command."""
    from cli import Parser

    parser = Parser(prog="export/check.py", description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", type=Path, help="folder of a version, such as served/NAME/1"
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="also load it with a C++ program, which g++ takes half a minute "
        "to build",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    from cli import run_loading

    return run_loading(make_parser(), _load, _check, argv)


def _check(options: Any) -> None:
    from cli import UserError, check_installed

    if not options.folder.is_dir():
        raise UserError(f"{options.folder} is not a folder.")
    check_installed(tensorflow="tensorflow")


def _load() -> Callable[..., None]:
    from export.quiet import start_tensorflow

    start_tensorflow()
    from export.check_job import run

    return run


if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
