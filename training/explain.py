"""Explains pictures: what they are taken for, their trees, what these look at.

python training/explain.py --run runs/digits-rem three.png
python training/explain.py --run runs/photos new-photos/

Writes into `explained/` of the run folder a page, `index.html`, and its data:
`trees.json`, for every picture the answer and the leaves of its tree, with
their boxes in pixels of the file; and drawings of at most 12, wrong ones first.

A file `names.json` in the run folder gives types of capsules their names,
{"0": "wheel", "3": "window"}; without, see `RunFolder.type_names`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, check_installed, run_loading
from training.names import existing


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="training/explain.py", description=__doc__)
    add = parser.add_argument
    about = "run folder that is finished"
    add("--run", required=True, type=existing, help=about)
    add(
        "images",
        nargs="+",
        type=existing,
        metavar="PICTURE",
        help="picture file, or folder of pictures; of folders that are named "
        "like classes it is also said how many are right",
    )
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where the answers go (default: explained/ in the run folder)",
    )
    add(
        "--skip-broken",
        action="store_true",
        help="leave out pictures that cannot be read, and list them",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    modules = ("training.explain_job",)
    return run_loading(make_parser(), _run, _check, argv, modules=modules)


def _check(options: argparse.Namespace) -> None:
    if not (options.run / "config.json").is_file():
        raise UserError(f"there is no run in {options.run}: no config.json.")
    for path in options.images:
        if not path.exists():
            raise UserError(f"there is no file {path}.")
    out = options.out or options.run / "explained"
    known = next(path for path in (out, *out.parents) if path.exists())
    if not (known.is_dir() and os.access(known, os.W_OK)):
        raise UserError(
            f"nothing can be written to {out}; give another --out FOLDER."
        )
    check_installed(data="PIL", viz="matplotlib")


def _run(options: argparse.Namespace) -> None:
    from training.explain_job import explain

    explain(options)


if __name__ == "__main__":
    sys.exit(main())
