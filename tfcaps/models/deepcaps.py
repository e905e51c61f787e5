"""DeepCaps: residual cells of capsule convolutions and 3-D routing."""

from typing import Any

import keras

from tfcaps.layers import CapsuleConv2D, ClassCaps, ConvCaps3D, Squash
from tfcaps.models.building_blocks import (
    Conv2D,
    capsule_network,
    check_input_shape,
)
from tfcaps.ops import Tensor, check_one_of

_TYPES = 32
_DIMS = (4, 8, 8, 8)
_CLASS_DIM = 32


def deepcaps(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    variant: str = "corrected",
    routing: Any = 3,
    name: str = "deepcaps",
) -> keras.Model:
    """Builds DeepCaps.

    Four cells halve the map; in each, a capsule convolution is followed by two
    more beside a skip connection, which in the last cell is `ConvCaps3D`. The
    capsules of the last two cells together are the children of the class
    capsules: 640 of them on images of 28 and 32 pixels, 2,560 on 64.

    `"corrected"` is the first author's network, but the 3-D layer sees its
    children in their right order and squashes each capsule alone, and couplings
    are constants of the backward pass unless `routing` says otherwise. `"rem"`
    is the other published one: no ReLU but a squash after the first
    convolution, biases in all convolutions, symmetric padding, and a 3-D layer
    that sees three of eight components; it adds the class bias only in the last
    iteration, ours in each. What is not listed is that of `dr_capsnet`.

    On 28x28x1 and ten classes they have 8,442,176 (8,441,920 trainable) and
    8,433,984 (8,433,728 trainable) parameters. The published decoder is
    `with_decoder(model, "deconvolution", class_independent=True)`.

    Args:
        variant: `"corrected"` or `"rem"`. Defaults to `"corrected"`.
        routing: Routing of the 3-D layer and the class capsules, one that
            `ConvCaps3D` takes. Defaults to `3`.

    References:
        - Rajasegaran et al., 2019, https://arxiv.org/abs/1904.09546
    """
    check_one_of(("corrected", "rem"), variant=variant)
    check_input_shape(input_shape, (1, 1), "")
    is_rem = variant == "rem"
    images = keras.Input(input_shape, name="images")
    capsules = _stem(images, is_rem)
    maps = []
    for number, dim in enumerate(_DIMS, start=1):
        is_last = number == len(_DIMS)
        capsules = _cell(
            capsules, dim, f"cell{number}", routing if is_last else None, is_rem
        )
        maps.append(keras.layers.Reshape((-1, dim))(capsules))
    last_two = maps[-2:] if is_rem else maps[:-3:-1]
    children = keras.layers.Concatenate(axis=1, name="children")(last_two)
    initializer = keras.initializers.RandomNormal(stddev=0.05)
    layer = ClassCaps(
        num_classes,
        _CLASS_DIM,
        routing=routing,
        transformation_initializer=initializer,
        bias_initializer=initializer.clone() if is_rem else None,
        name="class_caps",
    )
    return capsule_network(images, children, [layer], name)


def _stem(images: Tensor, is_rem: bool) -> Tensor:
    """Returns capsules `[b, h, w, 128, 1]` of images."""
    activation = None if is_rem else "relu"
    features = Conv2D(
        128, 3, padding="same", activation=activation, name="conv"
    )(images)
    # The momentum of the other code is 0.99 in the sense of PyTorch.
    features = keras.layers.BatchNormalization(
        momentum=0.01 if is_rem else 0.99,
        epsilon=1e-8 if is_rem else 1e-3,
        name="norm",
    )(features)
    capsules = keras.layers.Reshape((*features.shape[1:], 1))(features)
    return Squash(name="squash")(capsules) if is_rem else capsules


def _cell(
    capsules: Tensor, dim: int, name: str, routing: Any, is_rem: bool
) -> Tensor:
    """Returns capsules `[b, h / 2, w / 2, 32, dim]`; may route on the skip."""

    def convolve(capsules: Tensor, number: int, strides: int = 1) -> Tensor:
        if is_rem:
            sides = ((1, 1), (1, 1), (0, 0))
            capsules = keras.layers.ZeroPadding3D(
                sides, data_format="channels_last"
            )(capsules)
        return CapsuleConv2D(
            _TYPES,
            dim,
            strides=strides,
            padding="valid" if is_rem else "same",
            use_bias=is_rem,
            name=f"{name}_conv{number}",
        )(capsules)

    start = convolve(capsules, 1, strides=2)
    straight = convolve(convolve(start, 2), 3)
    if routing is None:
        skip = convolve(start, 4)
    else:
        skip = ConvCaps3D(
            _TYPES,
            dim,
            routing=routing,
            bias="votes" if is_rem else "routing",
            depth=3 if is_rem else None,
            name=f"{name}_routed",
        )(start)
    return keras.layers.Add(name=f"{name}_sum")([straight, skip])
