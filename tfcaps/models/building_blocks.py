"""Building blocks of several networks: input checks, classic stem, lengths."""

from typing import Any

import keras

from tfcaps.layers import Length, PrimaryCaps
from tfcaps.layers.routed import RoutedCaps
from tfcaps.models.labelled_model import LabelledModel
from tfcaps.ops import Tensor, is_integer
from tfcaps.routing import Routing, UniformRouting
from tfcaps.routing import get as get_routing

Shape = tuple[int, int, int]

# Poses, and activations or `None` where these are the poses' lengths.
Capsules = tuple[Tensor, Tensor | None]


def check_input_shape(
    input_shape: Any, minimum: tuple[int, int], because: str
) -> None:
    """Raises `ValueError` unless images have at least the minimal sides."""
    shape = tuple(input_shape)
    fits = len(shape) == 3 and all(is_integer(s) and s > 0 for s in shape)
    if not fits or shape[0] < minimum[0] or shape[1] < minimum[1]:
        raise ValueError(
            "`input_shape` must be (rows, columns, channels) with at least "
            f"{minimum[0]} rows and {minimum[1]} columns {because}. Received: "
            f"input_shape={shape}. Use larger images or smaller kernels."
        )


def classic_stem(
    images: Tensor,
    filters: int,
    kernel_size: int,
    primary_types: int,
    primary_dim: int,
    primary_kernel_size: int | tuple[int, int],
    primary_strides: int,
) -> Tensor:
    """Returns the primary capsules of the dynamic routing paper.

    Raises:
        ValueError: If the images are too small for the two windows.
    """
    windows = primary_kernel_size
    if isinstance(windows, int):
        windows = (windows, windows)
    check_input_shape(
        images.shape[1:],
        (windows[0] + kernel_size - 1, windows[1] + kernel_size - 1),
        f"for kernel_size={kernel_size} and "
        f"primary_kernel_size={primary_kernel_size}",
    )
    features = keras.layers.Conv2D(
        filters,
        kernel_size,
        activation="relu",
        data_format="channels_last",
        name="conv",
    )(images)
    return PrimaryCaps(
        primary_types,
        primary_dim,
        primary_kernel_size,
        primary_strides,
        name="primary_caps",
    )(features)


def convolve(
    features: Tensor, blocks: list[tuple[int, int, int]], norm: str
) -> Tensor:
    """Applies the convolution blocks of Efficient-CapsNet.

    Args:
        features: Tensor `[b, h, w, c]`.
        blocks: Channels, window and step of each convolution.
        norm: `"batch"` for ReLU and batch normalisation, `"instance"` for a
            leaky ReLU and instance normalisation.
    """
    for number, (channels, window, step) in enumerate(blocks, start=1):
        features = keras.layers.Conv2D(
            channels,
            window,
            step,
            data_format="channels_last",
            kernel_initializer="he_normal",
            name=f"conv{number}",
        )(features)
        if norm == "batch":
            features = keras.layers.ReLU(name=f"relu{number}")(features)
            features = keras.layers.BatchNormalization(name=f"norm{number}")(
                features
            )
        else:
            features = keras.layers.LeakyReLU(0.3, name=f"relu{number}")(
                features
            )
            features = keras.layers.GroupNormalization(
                groups=-1,
                axis=-1,
                epsilon=1e-3,
                beta_initializer="random_uniform",
                gamma_initializer="random_uniform",
                name=f"norm{number}",
            )(features)
    return features


def labels_for(routing: Any) -> Tensor | None:
    """Returns the optional input `labels` of a routing that learns from it."""
    if get_routing(routing).learns_from_labels:
        return label_input()
    return None


def hidden_routing(routing: Any) -> Routing:
    """Returns the routing of hidden layers.

    Only the class capsules can learn coefficients from labels; those of hidden
    layers would stay at 1/J, which is uniform routing.
    """
    of_classes = get_routing(routing)
    return UniformRouting() if of_classes.learns_from_labels else of_classes


def label_input() -> Tensor:
    """Returns the optional input `labels` `[b]`; prediction gives `None`."""
    return keras.Input((), dtype="int32", name="labels", optional=True)


def routed(
    layer: RoutedCaps, capsules: Capsules, labels: Tensor | None = None
) -> Capsules:
    """Returns the parents of capsules, whatever routing the layer has."""
    poses, activations = capsules
    known = {"activations": activations, "labels": labels}
    arguments = {k: v for k, v in known.items() if v is not None}
    if layer.routing.explicit_activations:
        poses, activations = layer(poses, return_activations=True, **arguments)
        return poses, activations
    return layer(poses, **arguments), None


def network(
    images: Tensor,
    capsules: Capsules,
    name: str,
    labels: Tensor | None = None,
) -> keras.Model:
    """Returns the model from images, and labels if need be, to `lengths`."""
    poses, activations = capsules
    # float32 whatever the policy: losses and clients compare small lengths.
    if activations is None:
        lengths = Length(dtype="float32", name="lengths")(poses)
    else:
        lengths = keras.layers.Identity(dtype="float32", name="lengths")(
            activations
        )
    if labels is None:
        return keras.Model(images, lengths, name=name)
    return LabelledModel(
        {"images": images, "labels": labels}, {"lengths": lengths}, name=name
    )
