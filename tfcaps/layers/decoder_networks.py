"""The networks of published decoders, from a vector to an image."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import layers

Shape = tuple[int, int, int]

_LAST = "channels_last"


def make(name: str, image_shape: Shape, dtype: Any) -> keras.Sequential:
    """Returns the network called `name`, not built yet.

    Raises:
        ValueError: If the name is unknown or the image shape does not fit.
    """
    if name not in _NETWORKS:
        raise ValueError(
            f"`network` must be one of {tuple(_NETWORKS)} or a Keras layer. "
            f"Received: network={name!r}."
        )
    parts = [
        type(layer).from_config({**layer.get_config(), "dtype": dtype})
        for layer in _NETWORKS[name](image_shape)
    ]
    return keras.Sequential(parts, name="network")


def _dense(image_shape: Shape) -> list[layers.Layer]:
    return [
        layers.Dense(512, activation="relu"),
        layers.Dense(1024, activation="relu"),
        layers.Dense(math.prod(image_shape), activation="sigmoid"),
        layers.Reshape(image_shape),
    ]


def _deconvolution(image_shape: Shape) -> list[layers.Layer]:
    """Transposed convolutions of DeepCaps: four- or eightfold enlargement."""
    rows, columns, channels = image_shape
    filters = [64, 32, 16]
    if min(rows, columns) > 32 and rows % 8 == columns % 8 == 0:
        filters.append(8)
    factor = 2 ** (len(filters) - 1)
    if rows % factor or columns % factor:
        raise ValueError(
            'The network "deconvolution" needs sides divisible by 4. Received: '
            f"image_shape={image_shape}."
        )
    start = (rows // factor, columns // factor, 16)
    enlarge = [
        layers.Conv2DTranspose(
            f, 3, 1 if f == 64 else 2, padding="same", data_format=_LAST
        )
        for f in filters
    ]
    return [
        layers.Dense(math.prod(start), activation="relu"),
        layers.Reshape(start),
        layers.BatchNormalization(momentum=0.8),
        *enlarge,
        layers.Conv2DTranspose(
            channels, 3, padding="same", data_format=_LAST, activation="relu"
        ),
    ]


def _upsampling(image_shape: Shape) -> list[layers.Layer]:
    """Bilinear upsampling and convolutions of Efficient-CapsNet."""
    rows, columns, channels = image_shape
    if rows % 8 or columns % 8 or min(rows, columns) < 24:
        raise ValueError(
            'The network "upsampling" needs sides of at least 24 that are '
            f"divisible by 8. Received: image_shape={image_shape}."
        )
    # Each of three steps doubles a side and then takes 2 off; so does the last.
    start = ((rows + 16) // 8, (columns + 16) // 8, 1)
    grow = []
    for filters in (64, 128, 128):
        grow += [
            layers.UpSampling2D(2, _LAST, interpolation="bilinear"),
            layers.Conv2D(filters, 3, data_format=_LAST),
            layers.LeakyReLU(negative_slope=0.2),
        ]
    return [
        layers.Dense(math.prod(start)),
        layers.Reshape(start),
        *grow,
        layers.Conv2D(channels, 3, data_format=_LAST, activation="sigmoid"),
    ]


_NETWORKS: dict[str, Callable[[Shape], list[layers.Layer]]] = {
    "dense": _dense,
    "deconvolution": _deconvolution,
    "upsampling": _upsampling,
}
