"""Tables trees that name their parts, over seeds of data and weights.

python training/run.py --rem --seed 1 --data-seed 1 --bare --out runs/figures-1
python training/tables.py runs/figures-* --to results/named_parts/runs.jsonl \\
    --name figures
python experiments/named_parts.py results/named_parts

writes the tables of `table.md` beside `runs.jsonl`; its words are written by
hand.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, run_command
from markdown_table import markdown, write_tables
from training import tables
from training.tables import TITLES, Column

# Title, where it stands in `rem.json`, digits, factor.
_COLUMNS = [
    Column(*each, optional=True)
    for each in (
        ("right, %", "accuracy_quantized", 2, 100),
        ("NMI", "named_parts.information", 3, 1),
        ("purity", "named_parts.purity", 3, 1),
        ("parts found once, %", "named_parts.found_once", 1, 100),
        ("leaves on own, %", "named_parts.own", 1, 100),
        ("on loose, %", "named_parts.loose", 1, 100),
        ("leaves", "named_parts.leaves", 2, 1),
        ("perfect trees, %", "named_parts.perfect", 1, 100),
        ("answer changes", "answer_changes.zero", 3, 1),
        ("of others active", "answer_changes_active.zero", 3, 1),
        ("changes or halves", "necessity.zero", 3, 1),
        ("of others active", "necessity_active.zero", 3, 1),
        ("sufficiency", "sufficiency.zero", 3, 1),
        ("of the longest", "sufficiency_longest.zero", 3, 1),
        ("trees by place, bits", "entropy_bits", 2, 1),
        ("by slot", "named_parts.slot_bits", 2, 1),
        # Of older runs: see results/ORIGINS.md.
        ("stability", "named_parts.stability", 2, 1),
        ("pruned, %", "sparsity", 1, 100),
    )
]


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="experiments/named_parts.py", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of runs.jsonl")
    return parser


def run(options: argparse.Namespace) -> None:
    """Writes the tables: means over seeds, and each seed."""
    folder = options.folder
    groups: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for each in tables.read_file(folder / tables.FILE_NAME):
        dataset = each.parts["config"]["dataset"]
        for name, model in each.parts["rem"]["models"].items():
            groups.setdefault((dataset, TITLES[name]), {})[each.seed] = model
    head = ["data set", "model", "seeds", *(each.title for each in _COLUMNS)]
    rows, seeds = [head], [head]

    def line(dataset: str, title: str, third: Any, *models: Any) -> list[str]:
        cells = (column.write(models) for column in _COLUMNS)
        return [dataset, title, str(third), *cells]

    for names, models in sorted(groups.items()):
        rows.append(line(*names, len(models), *models.values()))
        seeds += [line(*names, seed, models[seed]) for seed in sorted(models)]
    both = [markdown(lines, left=2) for lines in (rows, seeds)]
    write_tables(folder / "table.md", *both)
    print("\n\n".join(both))


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
