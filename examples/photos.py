"""Measures the named parts of photos, beside a plain linear head.

python -m examples.photos runs/cats-1 runs/cats-2 --to results/photos

measures finished runs of constellations on a `--backbone` that differ by
their seed, and writes named_parts.json and the table of named_parts.md.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from cli import (
    Parser,
    UserError,
    check_installed,
    run_command,
    start_quietly,
)
from examples import seeds


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.photos", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    return parser


def run(options: argparse.Namespace) -> None:
    """Measures the runs, and writes the table."""
    check_installed(data="PIL")
    start_quietly()
    options.to.mkdir(parents=True, exist_ok=True)
    maps: dict[str, dict[str, Any]] = {}
    rows = [measured(folder, maps) for folder in options.runs]
    path = options.to / "named_parts"
    path.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    seeds.write_page(path.with_suffix(".md"), "photos", rows)


def measured(run: Path, maps: dict[str, dict[str, Any]]) -> seeds.Row:
    """Returns what a run measured, beside a linear head.

    Args:
        run: Its folder.
        maps: The features of each data set, which are computed once.
    """
    from tfcaps.parts import body_plan
    from training import datasets, features
    from training.folder import RunFolder

    folder = RunFolder.resume(run)
    config, known = folder.config, folder.read_report(folder.main)
    if known is None:
        raise UserError(f"the run in {run} is not finished: no rem.json.")
    report, data = known[0], datasets.of_run(config)
    cached = features.cache_features(
        folder.load_model(folder.main),
        data,
        config,
        maps.setdefault(config.dataset, {}),
    )
    train, test = cached.data.train, cached.data.test
    used: Any = report.faithfulness
    named: Any = report.named_parts
    return {
        "dataset": config.dataset,
        "seed": config.seed,
        "accuracy": 100 * report.accuracy,
        "linear": 100
        * body_plan.linear_accuracy(
            train.images.pixels,
            train.labels,
            test.images.pixels,
            test.labels,
            data.num_classes,
        ),
        "leaves": named.leaves,
        "empty": 100 * used.empty_trees,
        **seeds.tree_measures(used),
    }


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
