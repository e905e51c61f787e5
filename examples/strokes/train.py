"""Trains networks of strokes, components and characters.

python -m examples.strokes.train --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/strokes.jsonl, and strokes.md made of
it.
"""

import argparse
import sys
from typing import Any

from cli import Parser
from examples import seeds
from examples.kanji import train as kanji

_BATCH = 32
_FEW = 1500  # images from which strokes are found


def make_parser() -> Parser:
    """Returns the parser of the command."""
    return seeds.make_parser("strokes.train", __doc__, 6000, 4, 500)


def trained(images: Any, labels: Any, epochs: int, seed: int) -> Any:
    """Returns a network that has learned to find strokes."""
    import keras

    from examples.kanji import shared as shared_parts
    from examples.strokes import layers
    from examples.strokes import shared as shared_strokes

    keras.utils.set_random_seed(seed)
    parts = shared_parts.find(images, labels)
    strokes = shared_strokes.find(images[:_FEW], labels[:_FEW], parts)
    network, detector = layers.networks(
        images.shape[1:], int(labels.max()) + 1, parts, strokes
    )
    rate = seeds.falling_rate(4e-3, epochs, len(labels), _BATCH)
    detector.compile(keras.optimizers.Adam(rate), layers.stroke_loss)
    cells = strokes.cells(images, labels, parts)
    detector.fit(images, cells, _BATCH, epochs, verbose=2)
    return network


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network of one seed, and measures it."""
    row = kanji.measured(options, seed, trained)
    used = row["used"]
    names = (*seeds.TREE_MEASURES, "sufficiency_random")
    components = {name: round(used[name]["zero"], 4) for name in names}
    components["size"] = 100 * used["size"]
    components["empty"] = 100 * used["empty_trees"]
    return {**row, "components": components}


if __name__ == "__main__":
    sys.exit(seeds.main("strokes", make_parser(), measured))
