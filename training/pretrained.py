"""Packs a finished run as a network that comes with the package.

python experiments/run.py pretrained --data-dir ~/tensorflow_datasets
python training/pretrained.py runs/pretrained/mnist/seed-0 \
    --data-dir ~/tensorflow_datasets

writes `<data set>.keras`, the stripped REM model, `.json`, its hash and its
numbers, and `.md`, its card, into `tfcaps/models/pretrained`. What a run has
measured is taken from its `rem.json`; how the network does on inverted and on
shifted images is measured here, with the file that was packed.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, check_installed, run_loading
from training.quiet import start_quietly

_PACKAGE = Path(__file__).resolve().parents[1] / "tfcaps"


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="training/pretrained.py", description=__doc__.splitlines()[0]
    )
    parser.add_argument("run", type=Path, help="folder of a run with --rem")
    parser.add_argument(
        "--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets"
    )
    parser.add_argument(
        "--commit",
        metavar="HASH",
        help="commit with the code of the run, where that of the run itself "
        "was rebased and is gone",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=_PACKAGE / "models" / "pretrained",
        metavar="FOLDER",
        help="where the three files go (default: into the package)",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    if not (options.run / "config.json").is_file():
        raise UserError(f"there is no run in {options.run}: no config.json.")
    if options.data_dir is not None and not Path(options.data_dir).is_dir():
        raise UserError(f"--data-dir {options.data_dir!r} is not a folder.")
    check_installed(data="PIL")


def _load() -> Callable[[argparse.Namespace], None]:
    start_quietly()
    from training.pretrained_job import main

    return main


if __name__ == "__main__":
    sys.exit(run_loading(make_parser(), _load, _check))
