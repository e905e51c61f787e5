"""Measures whether networks of parts name the components of kanji.

python -m examples.kanji.train --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/kanji.jsonl, and kanji.md made of it.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds
from examples.kanji import data

_BATCH = 32
_APART = 1000  # from the seed of images of one seed to that of the next
_TRAINED, _TESTED, _UNSEEN, _OTHERS = 31, 32, 33, 5031  # seeds of images
_SEARCHED = 6000  # images in which components are sought
_MOST = 1000  # images of a kind whose trees are measured


def make_parser() -> Parser:
    """Returns the parser of the command."""
    return seeds.make_parser("kanji.train", __doc__, 12_600, 4, 2000)


def trained(images: Any, labels: Any, epochs: int, seed: int) -> Any:
    """Returns a network that knows the components that characters share."""
    import keras

    from examples.kanji import shared

    keras.utils.set_random_seed(seed)
    parts = shared.find(images[:_SEARCHED], labels[:_SEARCHED])
    network = parts.network(images.shape[1:], int(labels.max()) + 1)
    cells = parts.cells(network, images, labels)  # which type is where
    seeds.fit_known(network, images, labels, cells, 3e-3, _BATCH, epochs)
    return network


def measured(
    options: argparse.Namespace,
    seed: int,
    train: Callable[..., Any] = trained,
) -> seeds.Row:
    """Trains a network of one seed, and measures it on other images."""
    from tfcaps import rem

    def drawn(count: int, number: int, **of: Any) -> tuple[Any, Any, Any]:
        (pixels, labels), masks = data.draw(count, number + _APART * seed, **of)
        return (pixels / 255).astype("float32"), labels, masks

    def trees_of(images: Any) -> Any:
        return rem.trees(
            network, images[:_MOST], couplings=False, batch_size=_BATCH
        )

    def share(some: Any, **how: Any) -> float:
        return 100 * seeds.named_parts(some, new, kinds, **how).parts_named

    images, labels, _ = drawn(options.samples, _TRAINED)
    network = train(images, labels, options.epochs, seed)
    # Types are named on images that are neither trained on nor measured.
    images, _, masks = drawn(options.tested, _OTHERS)
    kinds = seeds.kinds_of_types(seeds.named_parts(trees_of(images), masks))
    images, labels, masks = drawn(options.tested, _TESTED)
    trees = trees_of(images)
    named = seeds.named_parts(trees, masks, kinds)
    chance = seeds.named_parts(trees, masks, kinds, by_chance=True)
    strange, _, new = drawn(
        min(_MOST, options.tested), _UNSEEN, characters=data.UNSEEN
    )
    of_new = trees_of(strange)
    # Of a character that is no class what is active tells more than the tree.
    active = dataclasses.replace(of_new, in_tree=of_new.activations > 0.5)
    used = rem.faithfulness(
        network, images, samples=400, draws=2, batch_size=_BATCH
    )
    lengths = network.predict(images, batch_size=_BATCH, verbose=0)
    if options.draw is not None:
        components = np.array([*data.COMPONENTS.values(), "?"])[kinds]
        characters = [data.read(each).name for each in data.CHARACTERS]
        seeds.draw_trees(
            *(options.draw, network, images, trees, labels),
            *(characters, [*components]),
        )
    return {
        "epochs": options.epochs,
        "images": options.samples,
        "tested": options.tested,
        "right": seeds.percent_right(lengths, labels),
        **seeds.type_measures(named, chance),
        "labelled_f1": named.labelled_f1,
        "labelled_f1_chance": chance.labelled_f1,
        "used": used.to_dict(),
        "outside": float((trees.active & ~trees.in_tree).sum(axis=1).mean()),
        "unseen": share(active),
        "unseen_chance": share(active, by_chance=True),
        "unseen_tree": share(of_new),
    }


if __name__ == "__main__":
    sys.exit(seeds.main("kanji", make_parser(), measured))
