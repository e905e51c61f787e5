"""Trains a network of parts on 300 letters of SynDaCaTE's kind.

python -m examples.letters.train --seeds 1 2 3 4 5

Labels are letters alone. A line for each seed, which draws images and weights,
is added to results/named_parts/syndacate.jsonl, and syndacate.md made of it.
"""

import argparse
import dataclasses
import sys
import time
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds
from examples.letters import data, lines

_BATCH, _COPIES = 16, 8  # of each image


def make_parser() -> Parser:
    """Returns the parser of the command."""
    return seeds.make_parser("letters.train", __doc__, 300, 8, 500)


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network of one seed, and measures it on other images."""
    from tfcaps import rem

    def drawn(count: int, number: int) -> tuple[lines.Letters, Any, Any]:
        (pixels, labels), masks = data.draw(count, number + 1000 * seed)
        return lines.standing(pixels / 255.0), labels, masks

    letters, labels, _ = drawn(options.samples, 41)
    begun = time.process_time()
    frames, maps = lines.find(letters, labels)
    network = trained(letters, labels, maps, options.epochs, seed)
    seconds = time.process_time() - begun
    others, truth, masks = drawn(options.tested, 42)
    views = frames.maps(others)  # one for each class
    of_classes = [
        network.predict(others.seen(views[:, j]), verbose=0)[:, j]
        for j in range(len(data.LETTERS))
    ]
    lengths = np.stack(of_classes, axis=1)
    view = views[np.arange(len(truth)), lengths.argmax(axis=1)]
    images, masks = others.seen(view), in_view(others, view, masks)
    trees = rem.trees(network, images, couplings=False)
    if options.draw is not None:
        names = list(data.LETTERS)
        seeds.draw_trees(options.draw, network, images, trees, truth, names)
    named = seeds.named_parts(trees, masks)
    no_x = np.flatnonzero(truth != list(data.LETTERS).index("X"))
    but_x = seeds.named_parts(trees[no_x], masks[no_x])
    used = rem.faithfulness(network, images, samples=300, draws=3)
    alike = (others.turned() @ frames.means.T).max(axis=1)
    chance = seeds.named_parts(trees, masks, by_chance=True)
    return {
        "images": options.samples,
        "epochs": options.epochs,
        "right": seeds.percent_right(lengths, truth),
        "one_view": seeds.percent_right(trees.lengths, truth),
        "template": seeds.percent_right(alike, truth),
        "strokes": int(np.sum(network.get_layer("class_caps").slots)),
        **seeds.type_measures(named, chance),
        "found_once_but_x": 100 * but_x.found_once,
        "own": 100 * named.own,
        **seeds.tree_measures(used),
        "seconds": seconds,
    }


def in_view(letters: lines.Letters, view: Any, masks: Any) -> Any:
    """Returns the masks of lines as they are in views of the letters."""
    parts = np.stack(
        [
            letters._replace(ink=mask.astype("float32")).seen(view)[..., 0]
            > 0.25
            for mask in masks.parts.swapaxes(0, 1)
        ],
        axis=1,
    )
    # A line that is thinner than a pixel of the view is still there.
    kinds = np.where(parts.any(axis=(2, 3)), masks.kinds, -1)
    return dataclasses.replace(masks, parts=parts, kinds=kinds)


def trained(
    letters: lines.Letters, labels: Any, maps: Any, epochs: int, seed: int
) -> Any:
    """Returns a network of parts, trained on labels of upright letters."""
    import keras

    import tfcaps

    parts = lines.find_parts(letters.seen(maps), labels)
    keras.utils.set_random_seed(seed)
    network = tfcaps.models.constellation_capsnet(
        (lines.SIDE, lines.SIDE, 1),
        int(labels.max()) + 1,
        parts.num_types,
        filters=(16, 24, 24),
        strides=(2, 1, 1),
        window=3,
        max_of_type=3,
        max_parts=parts.most,
    )
    parts.begin(network)
    # Where strokes are is known, so that it need not be learnt.
    network.get_layer("class_caps").blueprint.trainable = False
    layer = network.get_layer("part_caps")
    images, cells = lines.jittered(
        letters, labels, maps, parts, layer, _COPIES, seed
    )
    labels = np.tile(labels, _COPIES)
    seeds.fit_known(network, images, labels, cells, 1e-3, _BATCH, epochs)
    return network


if __name__ == "__main__":
    sys.exit(seeds.main("syndacate", make_parser(), measured))
