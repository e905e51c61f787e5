"""Measures whether networks of parts name the components of kanji.

python -m examples.kanji.train --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/kanji.jsonl, and kanji.md made of it.
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


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network of one seed, and measures it on other images."""
    from examples.kanji import data
    from tfcaps import rem

    def drawn(count: int, number: int, **of: Any) -> tuple[Any, Any, Any]:
        (pixels, labels), masks = data.draw(count, number + _APART * seed, **of)
        return (pixels / 255).astype("float32"), labels, masks

    def trees_of(images: Any) -> Any:
        few: dict[str, Any] = {"couplings": False, "batch_size": 64}
        return rem.trees(network, images[:_MOST], **few)

    network = trained(
        *drawn(options.samples, _TRAINED)[:2], options.epochs, seed
    )
    images, labels, masks = drawn(options.tested, _TESTED)
    # Types are named on images that are neither trained on nor measured.
    others, _, of_others = drawn(options.tested, _OTHERS)
    kinds = seeds.kinds_of_types(seeds.named_parts(trees_of(others), of_others))
    trees = trees_of(images)
    named = seeds.named_parts(trees, masks, kinds)
    chance = seeds.named_parts(trees, masks, kinds, by_chance=True)
    strange, new_labels, new = drawn(
        min(_MOST, options.tested), _UNSEEN, characters=data.UNSEEN
    )
    of_new = trees_of(strange)
    # Of a character that is no class what is active tells more than the tree.
    active = dataclasses.replace(of_new, in_tree=of_new.activations > 0.5)
    if options.draw is not None:
        draw(
            options.draw,
            (images, trees, labels),
            (strange, active, new_labels),
            kinds,
        )

    def share(some: Any, **how: Any) -> float:
        return 100 * seeds.named_parts(some, new, **how).parts_named

    used = rem.faithfulness(
        network, images, samples=400, draws=2, batch_size=64
    )
    lengths = network.predict(images, batch_size=64, verbose=0)
    return {
        "epochs": options.epochs,
        "images": options.samples,
        "right": seeds.percent_right(lengths, labels),
        **seeds.type_measures(named, chance),
        "labelled_f1": named.labelled_f1,
        "labelled_f1_chance": chance.labelled_f1,
        "used": used.to_dict(),
        "unseen": share(active, type_kinds=kinds),
        "unseen_chance": share(active, type_kinds=kinds, by_chance=True),
        "unseen_tree": share(of_new, type_kinds=kinds),
    }


def draw(path: Any, known: Any, strange: Any, kinds: Any) -> None:
    """Draws ten trees, and active parts of five characters never trained."""
    from examples.kanji import data

    names = np.array([*data.COMPONENTS.values(), "?"])[kinds]
    pictures, titles, wrong, leaves = [], [], [], []
    for (images, trees, labels), count, characters in (
        (known, 10, data.CHARACTERS),
        (strange, 5, data.UNSEEN),
    ):
        for n in range(count):
            true = data.read(characters[labels[n]]).name
            is_class = characters is data.CHARACTERS
            told = trees.predicted[n] if is_class else labels[n]
            shown = data.read(characters[told]).name
            pictures.append(images[n])
            titles.append(shown)
            wrong.append(shown != true)
            own = np.flatnonzero(trees.in_tree[n])
            leaves.append(
                [(trees.places[n, k], names[trees.types[k]]) for k in own]
            )
    seeds.draw_trees(path, pictures, titles, wrong, leaves)


if __name__ == "__main__":
    sys.exit(seeds.main("kanji", make_parser(), measured))
