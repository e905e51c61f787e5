"""Whether a network uses its parse trees."""

import itertools
from typing import Any

import keras

from tfcaps import rem
from tfcaps.graphs import routed_layers
from tfcaps.layers import ClassCaps
from training import summary
from training.batches import Batches
from training.image_data import Split
from training.progress import progress
from training.tables import TITLES


def measure(
    name: str, model: keras.Model, split: Split
) -> tuple[rem.Faithfulness, dict[str, dict[str, Any]]]:
    """Measures whether the model uses its trees, on 2,000 images at most.

    Returns:
        What holds of trees of the class capsules and their children; and, of a
        network with several fully connected layers, what holds of trees that
        go on to the children of each of the others, by its name.
    """
    print(f"\n{TITLES[name]}: what it does without its trees", flush=True)
    used = _faithfulness(model, split)
    deeper = {}
    for layer in _layers_below(model):
        print(
            f"\n{TITLES[name]}: the same of trees down to the children of "
            f"{layer}",
            flush=True,
        )
        deeper[layer] = _faithfulness(model, split, layer).to_dict()
    return used, deeper


def _faithfulness(
    model: keras.Model, split: Split, layer: str | None = None
) -> rem.Faithfulness:
    # Drawn, as images may come class by class.
    batches = Batches(*split, batch_size=256, seed=0)
    used = rem.faithfulness(model, batches, layer=layer, verbose=progress() % 2)
    print(summary.wrapped(used.verdict), flush=True)
    return used


def _layers_below(model: keras.Model) -> list[str]:
    """Returns the fully connected layers below the class capsules, downwards.

    Trees cannot go on below windows, whose children differ from place to place.
    """
    connected = itertools.takewhile(
        lambda layer: isinstance(layer, ClassCaps),
        reversed(routed_layers(model)[:-1]),
    )
    return [layer.name for layer in connected]
