"""γ-CapsNet: two layers of scaled-distance-agreement routing."""

from typing import Any

import keras

from tfcaps.layers import ClassCaps, FcCaps
from tfcaps.models.building_blocks import (
    classic_stem,
    hidden_routing,
    labels_for,
    network,
    routed,
)
from tfcaps.models.with_decoder import with_decoder


def gamma_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    filters: int = 256,
    kernel_size: int = 9,
    primary_types: int = 32,
    primary_dim: int = 8,
    primary_kernel_size: int | tuple[int, int] = 9,
    primary_strides: int = 2,
    hidden_capsules: int = 32,
    hidden_dim: int = 8,
    class_dim: int = 16,
    routing: Any = "scaled_distance",
    decoder: bool = False,
    name: str = "gamma_capsnet",
) -> keras.Model:
    """Builds γ-CapsNet: DR-CapsNet with a hidden layer and another routing.

    The defaults are the published network, which has 7,730,336 parameters on
    28x28x1 images and ten classes, and 9,141,680 with the decoder. (The
    published decoder sees all class capsules, ours only one, as elsewhere.)

    Args:
        input_shape: Rows, columns and channels of an image.
        num_classes: Int. Number of classes.
        filters: Int. Channels of the first convolution. Defaults to `256`.
        kernel_size: Int. Window of the first convolution. Defaults to `9`.
        primary_types: Int. Primary capsule types. Defaults to `32`.
        primary_dim: Int. Components of a primary capsule. Defaults to `8`.
        primary_kernel_size: Int or two ints. Window of PrimaryCaps. Defaults to
            `9`.
        primary_strides: Int. Step of PrimaryCaps. Defaults to `2`.
        hidden_capsules: Int. Capsules of the hidden layer. Defaults to `32`.
        hidden_dim: Int. Components of a hidden capsule. Defaults to `8`.
        class_dim: Int. Components of a class capsule. Defaults to `16`.
        routing: Routing of both layers, see `tfcaps.routing.get`. Defaults to
            `"scaled_distance"`.
        decoder: Bool. Add the dense decoder, see `with_decoder`. Defaults to
            `False`.
        name: String. Defaults to `"gamma_capsnet"`.

    Returns:
        A functional model from images `[b, h, w, c]` in [0, 1] (input `images`)
        to float32 class lengths `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If the images are too small for the two windows.

    References:
        - Peer, Stabinger, Rodríguez-Sánchez, 2018,
          https://arxiv.org/abs/1812.09707
    """
    images = keras.Input(input_shape, name="images")
    children = classic_stem(
        images,
        filters,
        kernel_size,
        primary_types,
        primary_dim,
        primary_kernel_size,
        primary_strides,
    )
    layers = [
        FcCaps(
            hidden_capsules,
            hidden_dim,
            routing=hidden_routing(routing),
            name="hidden_caps",
        ),
        ClassCaps(num_classes, class_dim, routing=routing, name="class_caps"),
    ]
    labels = labels_for(routing)
    hidden = routed(layers[0], (children, None))
    classes = routed(layers[1], hidden, labels)
    model = network(images, classes, name, labels)
    return with_decoder(model) if decoder else model
