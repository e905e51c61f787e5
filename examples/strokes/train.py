"""Trains networks of strokes, components and characters.

python -m examples.strokes.train --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/strokes.jsonl, and strokes.md made of
it.
"""

import argparse
import dataclasses
import sys
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

_BATCH = 32
_APART = 1000  # from the seed of images of one seed to that of the next
_TRAINED, _TESTED, _UNSEEN, _OTHERS = 31, 32, 33, 5032  # seeds of images
_FEW = 1500  # images from which strokes are found
_NEAR = 6.0  # pixels from where a stroke should be to where it is drawn


def make_parser() -> Parser:
    """Returns the parser of the command."""
    return seeds.make_parser("strokes.train", __doc__, 6000, 4, 500)


def trained(images: Any, labels: Any, epochs: int, seed: int) -> Any:
    """Returns a network that has learned to find strokes, and its detector."""
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
    from examples.kanji import data
    from tfcaps import rem

    def drawn(count: int, number: int, **of: Any) -> tuple[Any, Any, Any]:
        (pixels, labels), masks = data.draw(count, number + _APART * seed, **of)
        return (pixels / 255).astype("float32"), labels, masks

    def trees_of(images: Any) -> Any:
        return rem.trees(network, images, couplings=False, batch_size=_BATCH)

    known = drawn(options.samples, _TRAINED)
    network = trained(*known[:2], options.epochs, seed)
    count = options.tested
    # Types are named on images that are neither trained on nor measured.
    others, _, masks = drawn(count, _OTHERS)
    kinds = seeds.kinds_of_types(seeds.named_parts(trees_of(others), masks))
    images, labels, masks = drawn(count, _TESTED)
    trees = trees_of(images)
    named = seeds.named_parts(trees, masks, kinds)
    chance = seeds.named_parts(trees, masks, by_chance=True)
    used = rem.faithfulness(network, images, draws=1, batch_size=_BATCH)
    outside = (trees.active & ~trees.in_tree).sum(axis=1)
    strange, _, new = drawn(count, _UNSEEN, characters=data.UNSEEN)
    active = trees_of(strange)
    active = dataclasses.replace(active, in_tree=active.activations > 0.5)
    if options.draw is not None:
        draw(options.draw, network, images[:10], trees, labels)
    return {
        "epochs": options.epochs,
        "samples": options.samples,
        "tested": count,
        "right": seeds.percent_right(trees.lengths, labels),
        "unseen": 100 * seeds.named_parts(active, new, kinds).parts_named,
        "components": {
            **seeds.tree_measures(used),
            "sufficiency_random": used.sufficiency_random["zero"],
            "size": 100 * used.size,
            "outside": float(outside.mean()),
            "empty": 100 * used.empty_trees,
            **seeds.type_measures(named, chance),
            "labelled_f1": named.labelled_f1,
        },
    }


def draw(path: Any, network: Any, images: Any, trees: Any, labels: Any) -> None:
    """Draws images with the strokes of the components in their trees.

    A label has the type of the component, and of the stroke.
    """
    import keras

    from examples.kanji import data
    from examples.strokes.shared import OFFSET, STRIDE

    layer = network.get_layer("components")
    below = keras.Model(network.input, layer.input)
    leaves: list[list[tuple[Any, str]]] = []
    for n, active in enumerate(below.predict(images, verbose=0)):
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
    names = [data.read(character).name for character in data.CHARACTERS]
    told = trees.predicted[: len(images)]
    titles, wrong = [names[j] for j in told], told != labels[: len(images)]
    seeds.draw_trees(path, images, titles, wrong, leaves)


if __name__ == "__main__":
    sys.exit(seeds.main("strokes", make_parser(), measured))
