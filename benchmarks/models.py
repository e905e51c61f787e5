"""Whole networks beside the same networks without their routing."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.measure import Row, Settings, in_new_process, interleaved
from tfcaps import losses
from tfcaps.graphs import is_routed
from tfcaps.layers import Length
from training import models, networks
from training.devices import accelerators

# One that tells classes by parts has losses of its own.
_LOSSES = {"margin": losses.MarginLoss, "spread": losses.SpreadLoss}


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
_ON_GPU = (
    *("dr_capsnet", "gamma_capsnet", "deepcaps", "em_capsnet"),
    *("efficient_capsnet", "constellation_capsnet"),
)
_BATCH_ON_GPU = 128
_QUICK = ("dr_capsnet_small", "dr_capsnet")
_QUICK_BATCH = 2


def measure(settings: Settings) -> list[Row]:
    """Times training and prediction of every network and of its floor."""
    rows = []
    for name in _QUICK if settings.quick else models.MODELS:
        size = SIZES.get(name, Size())
        if settings.quick:
            size = size._replace(batch=_QUICK_BATCH)
        rows += measure_network(name, size, settings.rounds)
    return rows


def measure_on_gpu(settings: Settings) -> list[Row]:
    """Does so for some networks, and measures how much memory training takes.

    No TensorFlow is needed on JAX.
    """
    batch = _QUICK_BATCH if settings.quick else _BATCH_ON_GPU
    rows = []
    for name in _ON_GPU[:1] if settings.quick else _ON_GPU:
        size = SIZES.get(name, Size())._replace(batch=batch)
        peak = in_new_process(peak_of_training, name, size)
        first, below = measure_network(name, size, settings.rounds)
        rows += [first._replace(peak_mb=peak), below]
    return rows


def peak_of_training(name: str, size: Size) -> float | None:
    """Returns the most megabytes on the GPU in two steps of this process.

    It must have done nothing before.
    """
    network = networks.build(name, size.shape, size.classes)
    for _ in range(2):
        _step(_to_train(network, name), *_random_data(size))()
    if not accelerators():
        return None
    if keras.backend.backend() == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 1e6

    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6


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


def measure_network(name: str, size: Size, rounds: int) -> list[Row]:
    """Times training and prediction of a network and of its floor."""
    model = networks.build(name, size.shape, size.classes)
    below = floor(model)
    below.compile("adam", losses.MarginLoss())
    named = {name: model, f"{name}, floor": below}
    images, labels = _random_data(size)
    prediction = {
        key: partial(one.predict_on_batch, images) for key, one in named.items()
    }
    _to_train(model, name)
    training = {key: _step(one, images, labels) for key, one in named.items()}
    step = interleaved(f"models, {name}, training", training, rounds)
    forward = interleaved(f"models, {name}, prediction", prediction, rounds)
    keras.utils.clear_session()
    return [
        Row(key, list(images.shape), forward[key], step[key], base)
        for key, base in zip(named, (f"{name}, floor", None), strict=True)
    ]


def _to_train(network: keras.Model, name: str) -> keras.Model:
    """Compiles a network with its loss."""
    loss = _LOSSES.get(models.network(name).loss)
    network.compile("adam", **({"loss": loss()} if loss else {}))
    return network


def _step(model: keras.Model, images: Any, labels: Any) -> Callable[[], float]:
    """Returns a training step; its loss is a float only when it is done."""
    return lambda: float(np.ravel(model.train_on_batch(images, labels))[0])


def _random_data(size: Size) -> tuple[Any, Any]:
    """Returns random images of a batch, and their classes."""
    generator = np.random.default_rng(0)
    images = generator.random((size.batch, *size.shape), "float32")
    return images, generator.integers(0, size.classes, size.batch)
