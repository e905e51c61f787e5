"""Building blocks of several networks: convolutions, routing, lengths."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras

from tfcaps.layers import Length
from tfcaps.models.with_decoder import (
    LabelledModel,
    label_input,
    with_decoder,
)
from tfcaps.ops import Tensor, is_integer
from tfcaps.routing import Routing, UniformRouting
from tfcaps.routing import get as get_routing

Shape = tuple[int, int, int]

# Whatever Keras's own default is: capsules are the last axis.
Conv2D = partial(keras.layers.Conv2D, data_format="channels_last")
# Keras's 0.99 lags hundreds of steps behind, and small data have no more.
MOMENTUM = 0.9


def check_input_shape(
    input_shape: Any, minimum: tuple[int, int], because: str
) -> None:
    """Raises `ValueError` unless images have at least the minimal sides."""
    shape = tuple(input_shape)
    fits = len(shape) == 3 and all(is_integer(s) and s > 0 for s in shape)
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
    """Returns the feature map of convolutions that keep the images' sides.

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


def hidden_routing(routing: Any) -> Routing:
    """Returns the routing of hidden layers.

    Only the class capsules can learn coefficients from labels; those of hidden
    layers would stay at 1/J, which is uniform routing.
    """
    of_classes = get_routing(routing)
    return UniformRouting() if of_classes.learns_from_labels else of_classes


def capsule_network(
    images: Tensor,
    children: Any,
    layers: Sequence[Any],
    name: str,
    decoder: bool | str = False,
    **settings: Any,
) -> keras.Model:
    """Returns the model that routes children through layers to class lengths.

    Args:
        images: The input `images`.
        children: Poses, or a pair of poses and activations.
        layers: Routed layers, the last one of class capsules; none if the
            children are these already. If the last one learns from labels, the
            model has an input `labels`.
        name: Name of the model.
        decoder: Whether to add a decoder, or which network of `Decoder` it has.
        **settings: Other arguments of `with_decoder`.
    """
    is_pair = isinstance(children, (tuple, list))
    poses, activations = children if is_pair else (children, None)
    learns = any(layer.routing.learns_from_labels for layer in layers[-1:])
    labels = label_input() if learns else None
    for layer in layers:
        given: dict[str, Any] = {}
        if activations is not None:
            given["activations"] = activations
        if learns and layer is layers[-1]:
            given["labels"] = labels
        if layer.routing.explicit_activations:
            poses, activations = layer(poses, return_activations=True, **given)
        else:
            poses, activations = layer(poses, **given), None
    # float32 whatever the policy: losses and clients compare small lengths.
    if activations is None:
        lengths = Length(dtype="float32", name="lengths")(poses)
    else:
        lengths = keras.layers.Identity(dtype="float32", name="lengths")(
            activations
        )
    if learns:
        inputs = {"images": images, "labels": labels}
        model = LabelledModel(inputs, {"lengths": lengths}, name=name)
    else:
        model = keras.Model(images, lengths, name=name)
    if decoder:
        kind = "dense" if decoder is True else decoder
        return with_decoder(model, kind, **settings)
    return model
