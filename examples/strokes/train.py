"""Trains networks of strokes, components and characters.

python -m examples.strokes.train --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/strokes.jsonl, and strokes.md made of
it.
"""

import argparse
import sys
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds
from examples.kanji import data
from examples.kanji import train as kanji

_BATCH = 32
_FEW = 1500  # images from which strokes are found
_NEAR = 6.0  # pixels from where a stroke should be to where it is drawn


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
    of_seed = kanji.measured_by(trained, options, seed)
    if options.draw is not None:
        draw(options.draw, of_seed)
    used = of_seed.used
    components = {
        **seeds.tree_measures(used),
        "sufficiency_random": used.sufficiency_random["zero"],
        "size": 100 * used.size,
        "empty": 100 * used.empty_trees,
    }
    return {**of_seed.row, "components": components}


def draw(path: Any, of_seed: kanji.Measured) -> None:
    """Draws images with the strokes of the components in their trees.

    A label has the type of the component, and of the stroke.
    """
    import keras

    from examples.strokes.shared import OFFSET, STRIDE

    network, (images, labels, trees) = of_seed.network, of_seed.known
    layer = network.get_layer("components")
    below = keras.Model(network.input, layer.input)
    leaves: list[list[tuple[Any, str]]] = []
    for n, active in enumerate(below.predict(images[:10], verbose=0)):
        leaves.append([])
        for child in np.flatnonzero(trees.in_tree[n]):
            part = trees.types[child]
            for slot in np.flatnonzero(layer.strokes.parts == part):
                kind = layer.strokes.types[slot]
                expected = trees.places[n, child] + layer.strokes.places[slot]
                there = OFFSET + STRIDE * np.argwhere(active[..., kind] > 0.5)
                apart = np.linalg.norm(there - expected, axis=1)
                if apart.min(initial=np.inf) < _NEAR:
                    place = there[apart.argmin()]
                    leaves[-1].append((place, f"{part}.{kind}"))
    told = trees.predicted[:10]
    titles = [data.read(data.CHARACTERS[j]).name for j in told]
    seeds.draw_trees(path, images[:10], titles, told != labels[:10], leaves)


if __name__ == "__main__":
    sys.exit(seeds.main("strokes", make_parser(), measured))
