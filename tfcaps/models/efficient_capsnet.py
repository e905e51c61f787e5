"""Efficient-CapsNet, and Eff-ConvCapsNet for larger images."""

from typing import Any, NamedTuple

import keras

from tfcaps.layers import ClassCaps, ConvCaps
from tfcaps.models import building_blocks
from tfcaps.ops import Tensor, check_one_of


class _Variant(NamedTuple):
    """Blocks of channels, window and step; how they are normalised."""

    blocks: list[tuple[int, int, int]]
    norm: str
    smallest: int


_VARIANTS = {
    "mnist": _Variant(
        [(32, 5, 1), (64, 3, 1), (64, 3, 1), (128, 3, 2)], "batch", 11
    ),
    "smallnorb": _Variant(
        [(32, 7, 2), (64, 3, 1), (64, 3, 1), (128, 3, 2)], "instance", 19
    ),
}


def efficient_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    variant: str = "mnist",
    routing: Any = "self_attention",
    name: str = "efficient_capsnet",
) -> keras.Model:
    """Builds Efficient-CapsNet: few parameters and self-attention routing.

    Trainable parameters of the published forms, with ten classes unless said
    otherwise: 161,824 for `"mnist"` on 28x28x1, 168,544 for it on 32x32x3
    (SVHN, CIFAR-10), 151,664 for `"smallnorb"` on 48x48x2 and five classes. The
    published decoders are those of `with_decoder`, `"upsampling"` for
    `"smallnorb"`. What is not listed is that of `dr_capsnet`.

    Args:
        variant: `"mnist"` or `"smallnorb"`. Defaults to `"mnist"`.
        routing: Routing of the class capsules, see `tfcaps.routing.get`.
            Defaults to `"self_attention"`.

    References:
        - Mazzia, Salvetti, Chiaberge, 2021, https://arxiv.org/abs/2101.12491
    """
    check_one_of(_VARIANTS, variant=variant)
    form = _VARIANTS[variant]
    images = keras.Input(input_shape, name="images")
    smallest = (form.smallest, form.smallest)
    building_blocks.check_input_shape(
        input_shape, smallest, f"for variant={variant!r}"
    )
    features = _convolve(images, form.blocks, form.norm)
    children = building_blocks.PrimaryCaps(
        16, 8, features.shape[1:3], depthwise=True, squash="efficient"
    )(features)
    layer = ClassCaps(
        num_classes,
        16,
        routing=routing,
        transformation_initializer="he_normal",
        name="class_caps",
    )
    return building_blocks.capsule_network(images, children, [layer], name)


def efficient_conv_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    routing: Any = 3,
    name: str = "efficient_conv_capsnet",
) -> keras.Model:
    """Builds Eff-ConvCapsNet, which REM uses for images of 128x128 pixels.

    A small backbone, depthwise PrimaryCaps, ConvCaps of 16 types and ClassCaps,
    all capsules of 16 components: 10,816 primary and 2,304 convolutional ones
    on 128x128x3 images. The authors' code is not published; ReLU, batch
    normalisation and matrices shared by type are our choice. What is not listed
    is that of `dr_capsnet`.

    Args:
        routing: Routing of both layers, see `tfcaps.routing.get`. Defaults to
            `3`.

    References:
        - "Capsule Networks Do Not Need to Model Everything", appendix B.1
    """
    building_blocks.check_input_shape(
        input_shape, (33, 33), "for its five windows"
    )
    images = keras.Input(input_shape, name="images")
    blocks = [(32, 5, 2), (64, 3, 1), (64, 3, 1), (256, 3, 2)]
    features = _convolve(images, blocks, "batch")
    children = building_blocks.PrimaryCaps(16, 16, 3, depthwise=True)(features)
    hidden = building_blocks.hidden_routing(routing)
    layers = [
        ConvCaps(16, 16, 3, 2, routing=hidden, name="conv_caps"),
        ClassCaps(
            num_classes, 16, routing=routing, share="type", name="class_caps"
        ),
    ]
    return building_blocks.capsule_network(images, children, layers, name)


def _convolve(
    features: Tensor, blocks: list[tuple[int, int, int]], norm: str
) -> Tensor:
    """Returns the map `[b, h', w', c']` of blocks, see `_Variant`."""
    for number, (channels, window, step) in enumerate(blocks, start=1):
        features = building_blocks.Conv2D(
            channels,
            window,
            step,
            kernel_initializer="he_normal",
            name=f"conv{number}",
        )(features)
        relu = keras.layers.ReLU(
            negative_slope=0.0 if norm == "batch" else 0.3, name=f"relu{number}"
        )
        normalize = keras.layers.BatchNormalization(name=f"norm{number}")
        if norm == "instance":
            normalize = keras.layers.GroupNormalization(
                groups=-1,
                axis=-1,
                epsilon=1e-3,
                beta_initializer="random_uniform",
                gamma_initializer="random_uniform",
                name=f"norm{number}",
            )
        features = normalize(relu(features))
    return features
