"""Asks how small a network of parts may be that still names parts of figures.

python -m examples.smallest --seeds 5 --draw results/named_parts/smallest.png

One network is trained for each seed. From it on REM takes ever more away:
single weights (polynomial), or whole filters (structured). A line for each seed
is added to results/named_parts/smallest.jsonl, and smallest.md made of it.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

# Shares that are taken away, of weights or of multiply-adds.
SHARES = {
    "polynomial": (0.5, 0.7, 0.9, 0.95, 0.98, 0.99),
    "structured": (0.5, 0.7, 0.9, 0.95, 0.98),
}
_WHAT = {"polynomial": "single weights", "structured": "whole filters"}
_HEADS = {
    "accuracy": "accuracy, %",
    "once": "parts found once, %",
    "changes": "answer changes without the tree, %",
}


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("smallest", __doc__, 7200, 6, 500)
    parser.add_argument("--rem-epochs", type=int, default=3)
    return parser


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network of one seed, and prunes it further and further."""
    import keras

    import tfcaps
    from tfcaps import rem
    from training.datasets import load

    keras.utils.set_random_seed(seed)
    data = load("figures", seed=seed).reduced(options.samples)
    images, labels = data.train.images[:], data.train.labels
    network: Any = tfcaps.models.constellation_capsnet(
        images.shape[1:], data.num_classes
    )
    network.fit(images, labels, 64, options.epochs, verbose=0)

    def line(model: Any, strategy: str, share: float) -> seeds.Row:
        measures = _measures(model, data, options.tested)
        told = {"strategy": strategy, "share": share, **measures}
        print(json.dumps(told), flush=True)
        return told

    lines = [line(network, "none", 0.0)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.keras"
        network.save(path)
        for strategy, shares in SHARES.items():
            for share in shares:
                model: Any = keras.models.load_model(path)
                prune = rem.Prune(share, strategy)
                epochs = options.rem_epochs
                model.fit(
                    images, labels, 64, epochs, verbose=0, callbacks=[prune]
                )
                if strategy == "structured":
                    model = rem.compact(model)
                lines.append(line(model, strategy, share))
    row = {"images": len(labels), "epochs": options.epochs, "lines": lines}
    if options.draw:
        draw(options.draw, [*_before(options.to), row])
    return row


def _measures(model: Any, data: Any, tested: int) -> seeds.Row:
    from tfcaps import rem
    from training import results
    from training.sample import Sample

    sample = Sample(data)
    images, labels = sample.images[:], sample.labels
    named: Any = results.measure_parts(model, sample)
    report = rem.evaluate(model, (images, labels))
    used = rem.faithfulness(model, (images[:tested], labels[:tested]))
    return {
        "weights": report.nonzero_parameters,
        "adds": report.multiply_adds,
        "accuracy": 100 * report.accuracy,
        "information": named.information,
        "once": 100 * named.found_once,
        "places": report.entropy_bits,
        "types": report.type_entropy_bits,
        "changes": 100 * used.answer_changes["zero"],
    }


def _before(folder: Path) -> list[seeds.Row]:
    path = folder / "smallest.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [*map(json.loads, lines)]


def draw(path: Path, rows: Sequence[seeds.Row]) -> None:
    """Draws what is left by how many weights are left, a line a measure."""
    import matplotlib.pyplot as plt

    lines = [line for row in rows for line in row["lines"]]
    known = {line["strategy"] for line in lines} & SHARES.keys()
    strategies = [name for name in SHARES if name in known]
    count = len(strategies)
    page = plt.figure(figsize=(4.5 * count, 3.4), layout="constrained")
    panels = page.subplots(1, count, sharey=True, squeeze=False)[0]
    for panel, strategy in zip(panels, strategies, strict=True):
        shares = SHARES[strategy]
        groups = [
            [x for x in lines if (x["strategy"], x["share"]) == key]
            for key in (("none", 0.0), *((strategy, s) for s in shares))
        ]
        groups = [group for group in groups if group]  # of what was measured
        weights = [np.mean([x["weights"] for x in g]) for g in groups]
        # Lines may lie on each other.
        for size, (key, head) in zip((10, 6, 6), _HEADS.items(), strict=True):
            values = [[x[key] for x in g] for g in groups]
            middles, spread = np.mean(values, 1), np.std(values, 1)
            panel.errorbar(
                weights, middles, spread, marker="o", ms=size, label=head
            )
        panel.set(xscale="log", xlabel="weights left", ylim=(0, 103))
        panel.minorticks_off()
        panel.set_xticks(weights, [f"{w:,.0f}" for w in weights], rotation=45)
        panel.set_title(f"{_WHAT[strategy]} taken away")
        panel.invert_xaxis()
    panels[0].legend(loc="lower left")
    page.savefig(path, dpi=80)
    plt.close(page)


if __name__ == "__main__":
    sys.exit(seeds.main("smallest", make_parser(), measured))
