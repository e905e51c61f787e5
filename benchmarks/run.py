"""Measures time and memory of tfcaps beside other ways to compute the same.

python -m benchmarks.run

writes results/benchmarks.json, and adds its figures to those of other machines
and days in results/benchmarks_machines.json. From these two alone it writes
results/benchmarks.md, which shows medians over machines and days. With --only,
the other parts stay as an earlier run left them.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import machine, machines, tables
from benchmarks.measure import Settings
from cli import (
    Parser,
    UserError,
    at_least_one,
    check_installed,
    run_loading,
)
from training.quiet import start_quietly

ROOT = Path(__file__).resolve().parents[1]


def _measure(part: str, settings: Settings) -> dict[str, Any]:
    measured: dict[str, Any] = importlib.import_module(
        f"benchmarks.{part}"
    ).measure(settings)
    return measured


PARTS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    name: partial(_measure, name)
    for name in ("formulations", "layers", "models", "growth", "rem")
}
_QUICK_ROUNDS = 2


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="benchmarks/run.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add(
        "--only",
        type=_parts,
        default=list(PARTS),
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
    add(
        "--out",
        type=Path,
        default=ROOT / "results",
        metavar="FOLDER",
        help="where the files and the figure go (default: results/)",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    machines.read(options.out)  # a broken file would lose what is measured
    if "growth" in (*options.only, *read(options.out)):
        check_installed(viz="matplotlib")  # which draws it


def _load() -> Callable[[argparse.Namespace], None]:
    start_quietly()
    return run


def run(options: argparse.Namespace) -> None:
    """Runs the parts and writes the files after each of them."""
    import keras

    if keras.backend.backend() != "tensorflow":
        raise UserError(
            "the benchmarks need the TensorFlow backend, not "
            f"{keras.backend.backend()!r}; unset KERAS_BACKEND."
        )
    options.out.mkdir(parents=True, exist_ok=True)
    parts = read(options.out)
    rounds = _QUICK_ROUNDS if options.quick else Settings().rounds
    settings = Settings(options.rounds or rounds, options.quick, options.large)
    described = machine.describe()
    for name in options.only:
        parts[name] = {
            "machine": described,
            "settings": settings._asdict(),
            "result": PARTS[name](settings),
        }
        write(options.out, parts, described)
    print(f"written: {options.out / 'benchmarks.md'}")


def read(folder: Path) -> dict[str, Any]:
    """Returns the parts that earlier runs left in a folder.

    Raises:
        UserError: If its `benchmarks.json` is none.
    """
    path = folder / "benchmarks.json"
    if not path.exists():
        return {}
    try:
        parts = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(
            f"{path} is not what this command writes: {error}; remove it."
        ) from error
    if not isinstance(parts, dict) or not parts.keys() <= PARTS.keys():
        raise UserError(
            f"{path} must hold some of {', '.join(PARTS)}; remove it."
        )
    return parts


def write(
    folder: Path, parts: dict[str, Any], described: dict[str, Any]
) -> None:
    """Writes the data, the page and the figure.

    Args:
        folder: Where to.
        parts: All parts, those of earlier runs too.
        described: This machine, on which some of them were run.
    """
    from benchmarks import figure
    from tfcaps.files import write_atomically

    known = machines.added(machines.read(folder), parts, described)
    for name, data in (("benchmarks.json", parts), (machines.FILE, known)):
        with write_atomically(folder / name, "w") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
    with write_atomically(folder / "benchmarks.md", "w") as file:
        file.write(tables.page(parts, known))
    if "growth" in parts:
        figure.draw(parts["growth"]["result"], folder / tables.FIGURE)


def _parts(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no part; the parts are {', '.join(PARTS)}"
            )
    return names


if __name__ == "__main__":
    sys.exit(run_loading(make_parser(), _load, _check))
