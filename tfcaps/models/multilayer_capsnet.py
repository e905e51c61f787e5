"""A network of several fully connected capsule layers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras

from tfcaps.layers import ClassCaps, FcCaps, PrimaryCaps
from tfcaps.models.building_blocks import (
    Conv2D,
    capsule_network,
    check_input_shape,
    hidden_routing,
)
from tfcaps.routing import DynamicRouting

# With the usual 0.1, sixteen children make a parent so short that nothing is
# left of it after four squashes, and 64 steps on 500 digits learn nothing.
_INITIALIZER = partial(keras.initializers.RandomNormal, stddev=1.0)


def multilayer_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    capsules: Sequence[int] = (16, 16, 16, 16),
    dim: int = 8,
    kernel_size: int = 9,
    routing: Any = None,
    decoder: bool = False,
    name: str = "multilayer_capsnet",
) -> keras.Model:
    """Builds the network whose parse trees REM draws over all layers.

    The defaults are its capsule layers: 16, 16, 16, 16 and the classes, all of
    8 components, with dynamic routing. The layers before them are not
    published; here they are a convolution of `16 * 8` channels and depthwise
    PrimaryCaps that see the whole map.

    Arguments, results and errors that are not listed are those of `dr_capsnet`.

    Args:
        capsules: Ints. Capsules of the primary and the hidden layers. Defaults
            to `(16, 16, 16, 16)`.
        dim: Int. Components of every capsule. Defaults to `8`.
        kernel_size: Int. Window of the convolution. Defaults to `9`.
        routing: Routing of all layers, see `tfcaps.routing.get`. Defaults to
            `DynamicRouting(gradient="full")`: layers upon layers learn less if
            couplings are constants of the backward pass.

    References:
        - "Capsule Networks Do Not Need to Model Everything", appendix B.1
    """
    if routing is None:
        routing = DynamicRouting(gradient="full")
    if not capsules or min(capsules) < 1:
        raise ValueError(
            "`capsules` must be one or more numbers of at least 1. Received: "
            f"capsules={tuple(capsules)}."
        )
    window = (kernel_size, kernel_size)
    check_input_shape(input_shape, window, f"for kernel_size={kernel_size}")
    primary, *hidden = capsules
    images = keras.Input(input_shape, name="images")
    features = Conv2D(
        primary * dim, kernel_size, activation="relu", name="conv"
    )(images)
    window = features.shape[1:3]
    children = PrimaryCaps(
        primary, dim, window, depthwise=True, name="primary_caps"
    )(features)
    layers: list[Any] = [
        FcCaps(
            count,
            dim,
            routing=hidden_routing(routing),
            transformation_initializer=_INITIALIZER(),
            name=f"hidden_caps{number}",
        )
        for number, count in enumerate(hidden, start=1)
    ]
    layers.append(
        ClassCaps(
            num_classes,
            dim,
            routing=routing,
            transformation_initializer=_INITIALIZER(),
            name="class_caps",
        )
    )
    return capsule_network(images, children, layers, name, decoder)
