"""Measures time and memory of tfcaps beside other ways to compute the same.

python -m benchmarks.run

writes results/benchmarks.json and, from it alone, results/benchmarks.md. With
--only, the other parts stay as an earlier run left them.
"""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import command, machine, tables
from benchmarks.measure import Settings
from cli import Parser, UserError, at_least_one

# Modules with a function `measure`.
PARTS = ("formulations", "layers", "models", "rem")
_QUICK_ROUNDS = 2


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = command.make_parser("run", __doc__)
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
    add(
        "--large",
        action="store_true",
        help="also what takes more than 10 GB or minutes",
    )
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
    settings = Settings(options.rounds or rounds, options.quick, options.large)
    described = machine.describe()
    for name in options.only:
        module = importlib.import_module(f"benchmarks.{name}")
        parts[name] = {
            "machine": described,
            "settings": settings._asdict(),
            "rows": [row._asdict() for row in module.measure(settings)],
        }
        parts = {part: parts[part] for part in PARTS if part in parts}
        command.write(options.out, "benchmarks", parts, tables.page(parts))


def read(folder: Path) -> dict[str, Any]:
    """Returns the parts that earlier runs left in a folder.

    Raises:
        UserError: If its `benchmarks.json` is none.
    """
    path = folder / "benchmarks.json"
    parts: dict[str, Any] = command.read(path, {})
    known = [part for name, part in parts.items() if name in PARTS]
    if len(known) < len(parts) or not all("rows" in part for part in known):
        raise UserError(
            f"{path} must hold rows of some of {', '.join(PARTS)}; remove it."
        )
    return parts


if __name__ == "__main__":
    sys.exit(command.main(make_parser(), run, _check))
