"""Whole networks beside the same networks without their routing."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.measure import Row, Settings, interleaved
from tfcaps import losses
from tfcaps.graphs import is_routed
from tfcaps.layers import Length
from training import models, networks

_LOSSES = {"margin": losses.MarginLoss, "spread": losses.SpreadLoss}
# Its classes are told by parts, which have losses of their own.
_EVIDENCE = "evidence"


class Size(NamedTuple):
    """Images of a network, and how many make a step."""

    shape: tuple[int, int, int] = (28, 28, 1)
    classes: int = 10
    batch: int = 64


# Those of other images than MNIST's, or too slow for batches of 64.
SIZES = {
    "efficient_capsnet_smallnorb": Size((48, 48, 2), 5),
    "efficient_conv_capsnet": Size((128, 128, 3), batch=8),
    "deepcaps": Size((32, 32, 3), batch=16),
    "deepcaps_rem": Size((32, 32, 3), batch=16),
    "em_capsnet": Size((32, 32, 1), 5, batch=8),
    # Those of figures.
    "constellation_capsnet": Size((32, 32, 1), 5),
}
_QUICK_NAMES = ("dr_capsnet_small", "dr_capsnet")
_QUICK_BATCH = 2


def measure(settings: Settings) -> list[Row]:
    """Times training and prediction of every network and of its floor."""
    rows = []
    for name in _QUICK_NAMES if settings.quick else models.MODELS:
        size = size_of(name, _QUICK_BATCH if settings.quick else None)
        rows += measure_network(name, size, settings.rounds)
    return rows


def size_of(name: str, batch: int | None = None) -> Size:
    """Returns the images of a network, in batches of its own if not given."""
    size = SIZES.get(name, Size())
    return size._replace(batch=batch or size.batch)


def floor(model: keras.Model) -> keras.Model:
    """Returns what a network would be if routing cost nothing.

    That is the same layers, with the same weights, up to the children of the
    first routed layer. Their mean length goes through one dense layer to the
    classes, so that gradients flow through all these layers.
    """
    first = next(layer for layer in model.layers if is_routed(layer))
    children = keras.tree.flatten(first.input)[0]
    lengths = keras.layers.Reshape((-1, 1))(Length()(children))
    mean = keras.layers.GlobalAveragePooling1D()(lengths)
    classes = keras.layers.Dense(
        model.output.shape[-1], "sigmoid", dtype="float32", name="lengths"
    )(mean)
    return keras.Model(model.input, classes, name=f"{model.name}_floor")


def make_training_step(name: str, batch: int) -> Callable[[], Any]:
    """Returns a training step of a network on its own images.

    Args:
        name: A name in `training.models.MODELS`.
        batch: Int. Images in a step.
    """
    size = size_of(name, batch)
    network = networks.build(name, size.shape, size.classes)
    model = to_train(network, name)
    images, labels = random_data(size)
    return partial(train, model, images, targets(model, images, labels))


def measure_network(name: str, size: Size, rounds: int) -> list[Row]:
    """Times training and prediction of a network and of its floor."""
    model = networks.build(name, size.shape, size.classes)
    below = f"{name}, floor"
    nets = {name: model, below: floor(model)}
    nets[below].compile("adam", losses.MarginLoss())
    trained = {**nets, name: to_train(model, name)}
    images, labels = random_data(size)
    training = {
        k: partial(train, x, images, targets(x, images, labels))
        for k, x in trained.items()
    }
    prediction = {
        k: partial(x.predict_on_batch, images) for k, x in nets.items()
    }
    step = interleaved(f"models, {name}, training", training, rounds)
    forward = interleaved(f"models, {name}, prediction", prediction, rounds)
    keras.utils.clear_session()
    return [
        Row(key, list(images.shape), forward[key], step[key], base)
        for key, base in ((name, below), (below, None))
    ]


def train(model: keras.Model, images: Any, labels: Any) -> float:
    """Trains one step; the loss is a float only when it is done."""
    return float(np.ravel(model.train_on_batch(images, labels))[0])


def to_train(network: keras.Model, name: str) -> keras.Model:
    """Returns the part of a network that is trained, compiled."""
    loss = models.network(name).loss
    if loss == _EVIDENCE:
        network.compile("adam")
    else:
        network.compile("adam", _LOSSES[loss]())
    return network


def targets(model: keras.Model, images: Any, labels: Any) -> Any:
    """Returns the targets of the outputs that are trained."""
    if not isinstance(model.output, dict):
        return labels
    return {
        name: images if name == "reconstruction" else labels
        for name in model.output
    }


def random_data(size: Size) -> tuple[Any, Any]:
    """Returns random images of a batch, and their classes."""
    generator = np.random.default_rng(0)
    images = generator.random((size.batch, *size.shape), "float32")
    return images, generator.integers(0, size.classes, size.batch)
