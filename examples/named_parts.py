"""Tables trees that name their parts, over seeds of data and weights.

python training/run.py --rem --seed 1 --data-seed 1 --bare --out runs/figures-1
python training/tables.py runs/figures-* --to results/named_parts/runs.jsonl \\
    --name figures
python -m examples.named_parts results/named_parts

writes the tables of `table.md` beside `runs.jsonl`; its words are written by
hand.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from cli import Parser, run_command
from examples.seeds import PAGES
from markdown_table import narrow, write_tables
from training import tables
from training.tables import TITLES, Column

_COLUMNS = [
    dataclasses.replace(Column(*each), optional=True)
    for each in PAGES["named_parts"]["columns"]
]


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.named_parts", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of runs.jsonl")
    return parser


def run(options: argparse.Namespace) -> None:
    """Writes the tables: means over seeds, and each seed."""
    groups: dict[tuple[str, str], dict[int, Any]] = {}
    for each in tables.read_file(options.folder / tables.FILE_NAME):
        dataset = each.parts["config"]["dataset"]
        for name, model in each.parts["rem"]["models"].items():
            groups.setdefault((dataset, TITLES[name]), {})[each.seed] = model

    def line(names: tuple[str, str], third: int, *models: Any) -> list[str]:
        cells = (column.write(models) for column in _COLUMNS)
        return [*names, str(third), *cells]

    head = ["data set", "model", "seeds", *(each.title for each in _COLUMNS)]
    means, seeds = [head], [head]
    for names, models in sorted(groups.items()):
        means.append(line(names, len(models), *models.values()))
        seeds += [line(names, seed, models[seed]) for seed in sorted(models)]
    both = [narrow(lines, left=3) for lines in (means, seeds)]
    write_tables(options.folder / "table.md", *both)
    print("\n\n".join(both))


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
