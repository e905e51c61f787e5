"""Measures time and memory of tfcaps beside other ways to compute the same.

python -m benchmarks.run

writes results/benchmarks.json and, from it alone, results/benchmarks.md. With
--only, the other parts stay as an earlier run left them.
"""

import argparse
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import common
from benchmarks.measure import Settings
from cli import Parser, UserError, at_least_one

# Modules with a function `measure`.
PARTS = ("formulations", "models", "rem")
_QUICK_ROUNDS = 2
_INTRODUCTION = """\
# Benchmarks

Times are medians over rounds in which all candidates of a comparison take
turns. A step is the forward and the backward pass. Memory is in megabytes (10^6
bytes) above what the process held before, in a process of its own after a first
step: "peak" is the most that one step needs, all free memory being given back
before it; "process" is the most that the process holds over many steps, and
includes what the allocator keeps. A ratio is of times, to the row that is
named. Formulations are a class layer of 10 parents of 16 components, dynamic
routing with 3 iterations. A floor is the same network up to the children of its
first routed layer, with one dense layer instead of all that follows. Figures
differ from machine to machine, and with what else it does; those marked "quick"
are of small sizes."""


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = common.make_parser("run", __doc__)
    add = parser.add_argument
    add(
        "--only",
        type=_parts,
        default=PARTS,
        metavar="PARTS",
        help=f"some of {','.join(PARTS)}",
    )
    add(
        "--rounds",
        type=at_least_one,
        help="turns of each candidate at most (default: "
        f"{Settings().rounds}, with --quick {_QUICK_ROUNDS})",
    )
    add("--quick", action="store_true", help="small sizes, to see that it runs")
    return parser


def _parts(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no part; the parts are {', '.join(PARTS)}"
            )
    return names


def _check(options: argparse.Namespace) -> None:
    read(options.out)  # a broken file would lose what is measured


def run(options: argparse.Namespace) -> None:
    """Runs the parts and writes the files after each of them."""
    import keras

    if keras.backend.backend() != "tensorflow":
        raise UserError(
            "the benchmarks need the TensorFlow backend, not "
            f"{keras.backend.backend()!r}; unset KERAS_BACKEND."
        )
    parts = read(options.out)
    rounds = _QUICK_ROUNDS if options.quick else Settings().rounds
    settings = Settings(options.rounds or rounds, options.quick)
    described = common.machine()
    for name in options.only:
        module = importlib.import_module(f"benchmarks.{name}")
        parts[name] = {
            "machine": described,
            "settings": settings._asdict(),
            "rows": [row._asdict() for row in module.measure(settings)],
        }
        common.write(options.out, "benchmarks", parts, page(parts))


def read(folder: Path) -> dict[str, Any]:
    """Returns the parts that earlier runs left in a folder.

    Raises:
        UserError: If its `benchmarks.json` is none.
    """
    path = folder / "benchmarks.json"
    parts: dict[str, Any] = common.read(path, {})
    if not all("rows" in part for part in parts.values()):
        raise UserError(f"{path} must hold rows of parts; remove it.")
    return parts


def page(parts: Mapping[str, Any]) -> str:
    """Returns the page of all parts: one table, and its origins."""
    origins = [
        f"- {part}: {common.origin(content['machine'], content['settings'])}"
        for part, content in parts.items()
    ]
    sections = [_INTRODUCTION, common.table_of_rows(parts), "\n".join(origins)]
    return "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    sys.exit(common.main(make_parser(), run, _check))
