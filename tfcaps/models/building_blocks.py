"""Building blocks of several networks: convolutions, routing, lengths."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras

from tfcaps import layers, routing
from tfcaps.layers import Length
from tfcaps.models.with_decoder import LabelledModel, label_input
from tfcaps.ops import Tensor, is_integer

Shape = tuple[int, int, int]

# Whatever Keras's own default is: capsules are the last axis.
Conv2D = partial(keras.layers.Conv2D, data_format="channels_last")
PrimaryCaps = partial(
    layers.PrimaryCaps, name="primary_caps", data_format="channels_last"
)
# Keras's 0.99 lags hundreds of steps behind, and small data have no more.
MOMENTUM = 0.9


def check_input_shape(
    input_shape: Any, minimum: tuple[int, int], because: str
) -> None:
    """Raises `ValueError` unless images have at least the minimal sides."""
    shape = input_shape
    fits = isinstance(shape, (tuple, list)) and len(shape) == 3
    fits = fits and all(is_integer(s) and s > 0 for s in shape)
    if fits and keras.config.image_data_format() == "channels_first":
        # As Keras has it then; read as rows, they might be enough.
        fits = shape[0] >= min(shape[1:])
    if not fits or shape[0] < minimum[0] or shape[1] < minimum[1]:
        raise ValueError(
            "`input_shape` must be (rows, columns, channels) with at least "
            f"{minimum[0]} rows and {minimum[1]} columns {because}. Received: "
            f"input_shape={shape}. Use larger images or smaller kernels."
        )


def batch_norm(name: str) -> keras.layers.Layer:
    """Returns batch normalisation that keeps up with small data."""
    return keras.layers.BatchNormalization(momentum=MOMENTUM, name=name)


def normalized_convolutions(
    images: Tensor,
    filters: Sequence[int],
    strides: Sequence[int],
    kernel_size: int,
) -> Tensor:
    """Returns the map `[b, h', w', c']` of padded convolutions of images.

    Raises:
        ValueError: If there are no filters, or not as many strides.
    """
    if not filters or len(strides) != len(filters):
        raise ValueError(
            "`filters` must not be empty, and `strides` as many. Received: "
            f"filters={tuple(filters)}, strides={tuple(strides)}."
        )
    features = images
    blocks = zip(filters, strides, strict=True)
    for number, (channels, step) in enumerate(blocks, start=1):
        features = Conv2D(
            channels,
            kernel_size,
            step,
            padding="same",
            use_bias=False,
            name=f"conv{number}",
        )(features)
        features = batch_norm(f"norm{number}")(features)
        features = keras.layers.ReLU(name=f"relu{number}")(features)
    return features


def hidden_routing(of_classes: Any) -> routing.Routing:
    """Returns the routing of hidden layers.

    Only class capsules learn coefficients from labels. Hidden ones would stay
    at 1/J, which is uniform routing, whose capsules may leave.
    """
    chosen = routing.get(of_classes)
    return routing.UniformRouting() if chosen.learns_from_labels else chosen


def capsule_network(
    images: Tensor, children: Any, layers: Sequence[Any], name: str
) -> keras.Model:
    """Returns the model that routes children through layers to class lengths.

    Children are poses, or a pair of poses and activations. If the last of the
    layers learns from labels, the model has an input `labels`.
    """
    poses, activations = children, None
    if isinstance(children, (tuple, list)):
        poses, activations = children
    learns = layers[-1].routing.learns_from_labels
    labels = label_input() if learns else None
    for layer in layers:
        more = {"labels": labels} if learns and layer is layers[-1] else {}
        if activations is not None:
            more["activations"] = activations
        if layer.routing.explicit_activations:
            poses, activations = layer(poses, return_activations=True, **more)
        else:
            poses, activations = layer(poses, **more), None
    # float32 whatever the policy: losses and clients compare small lengths.
    end = Length if activations is None else keras.layers.Identity
    given = poses if activations is None else activations
    lengths = end(dtype="float32", name="lengths")(given)
    if learns:
        inputs = {"images": images, "labels": labels}
        return LabelledModel(inputs, {"lengths": lengths}, name=name)
    return keras.Model(images, lengths, name=name)
