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
    check_installed(data="sklearn PIL")
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
    from training import datasets, features
    from training.folder import RunFolder

    folder = RunFolder.resume(run)
    config = folder.config
    data = datasets.of_run(config)
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
        "linear": linear(known, unseen),
        "leaves": float(trees.leaves.mean()),
        "empty": 100 * float(np.mean(trees.leaves == 0)),
        **seeds.tree_measures(rem.faithfulness(cached.head, (images, labels))),
    }


def linear(train: Any, test: Any) -> float:
    """Returns how many a linear head on pooled features has right."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def pooled(maps: Any) -> Any:
        return np.stack([maps[k].mean(axis=(0, 1)) for k in range(len(maps))])

    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.003, max_iter=500)
    )
    model.fit(pooled(train.images), train.labels)
    return float(100 * model.score(pooled(test.images), test.labels))


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
