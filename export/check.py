"""Checks an exported folder as a server would see it.

python export/check.py served/dr_capsnet/1

`tfcaps.export.check` says what is checked.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, check_installed, run_loading


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="export/check.py", description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="folder of a version, such as served/NAME/1"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_loading(make_parser(), _run, _check, argv, backend="tensorflow")


def _check(options: argparse.Namespace) -> None:
    if not options.folder.is_dir():
        raise UserError(f"{options.folder} is not a folder.")
    check_installed(tensorflow="tensorflow")


def _run(options: argparse.Namespace) -> None:
    from tfcaps.export import ExportError, check

    try:
        for line in check(options.folder):
            print(line, flush=True)
    except ExportError as error:
        raise UserError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
