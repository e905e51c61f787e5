"""Measures time and memory of tfcaps beside other ways to compute the same.

python -m benchmarks.run

writes results/benchmarks.json and, from it alone, results/benchmarks.md. With
--only, the other parts stay as an earlier run left them.
"""

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

# The repository's own folders, wherever the command is called from.
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Each candidate is a traced function of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)

import keras  # noqa: E402

from benchmarks import (  # noqa: E402
    figure,
    formulations,
    growth,
    layers,
    machine,
    models,
    rem,
    tables,
)
from benchmarks.measure import Settings  # noqa: E402
from cli import (  # noqa: E402
    Parser,
    UserError,
    at_least_one,
    run_command,
)
from tfcaps.files import write_atomically  # noqa: E402

PARTS = {
    "formulations": formulations.measure,
    "layers": layers.measure,
    "models": models.measure,
    "growth": growth.measure,
    "rem": rem.measure,
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
        help="where the two files and the figure go (default: results/)",
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Runs the parts and writes the files after each of them."""
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
        write(options.out, parts)
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


def write(folder: Path, parts: dict[str, Any]) -> None:
    """Writes the data, the page and the figure."""
    with write_atomically(folder / "benchmarks.json", "w") as file:
        json.dump(parts, file, indent=1)
        file.write("\n")
    with write_atomically(folder / "benchmarks.md", "w") as file:
        file.write(tables.page(parts))
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
    sys.exit(run_command(make_parser(), run))
