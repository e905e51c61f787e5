"""Measures the named parts of photos, beside a plain linear head.

python -m examples.photos runs/cats-1 runs/cats-2 --to results/photos

measures finished runs of `training/run.py --rem --backbone` that differ by
their seed, and writes named_parts.json and the table of named_parts.md.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser, check_installed, run_command, start_quietly
from examples import seeds

_MOST = 2000  # photos that are measured


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
    """Measures a run.

    Args:
        run: Its folder.
        maps: The features of each data set, which are computed once.
    """
    from tfcaps import rem
    from tfcaps.parts import body_plan
    from training import datasets, features
    from training.folder import RunFolder

    folder = RunFolder.resume(run)
    config = folder.config
    data = datasets.load(
        config.dataset,
        config.data_dir,
        validation=config.validation,
        resize=config.resize,
    )
    if config.samples is not None:
        data = data.reduced(config.samples)
    model = folder.load_model(config.model_names[-1])
    kept = maps.setdefault(config.dataset, {})
    cached = features.cache_features(model, data, config, kept)
    known, unseen = cached.data.train, cached.data.test
    # In an order of its own, as test images may come class by class.
    order = np.random.default_rng(0).permutation(len(unseen.labels))[:_MOST]
    images, labels = unseen.images[order], unseen.labels[order]
    trees = rem.trees(cached.head, images, couplings=False)
    return {
        "dataset": config.dataset,
        "seed": config.seed,
        "accuracy": seeds.percent_right(trees.lengths, labels),
        "linear": 100
        * body_plan.linear_accuracy(
            *(known.images.pixels, known.labels),
            *(unseen.images.pixels, unseen.labels, data.num_classes),
        ),
        "leaves": float(trees.leaves.mean()),
        "empty": 100 * float(np.mean(trees.leaves == 0)),
        **seeds.tree_measures(rem.faithfulness(cached.head, (images, labels))),
    }


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
