"""Efficient-CapsNet: few parameters and self-attention routing."""

from typing import Any, NamedTuple

import keras

from tfcaps.layers import ClassCaps, PrimaryCaps
from tfcaps.models.building_blocks import (
    check_input_shape,
    convolve,
    labels_for,
    network,
    routed,
)
from tfcaps.models.with_decoder import with_decoder


class _Variant(NamedTuple):
    """Blocks of channels, window and step; how they are normalised.

    The window of PrimaryCaps is the whole map where it is `None`.
    """

    blocks: list[tuple[int, int, int]]
    norm: str
    smallest: int
    primary_window: int | None = None
    primary_strides: int = 1
    decoder: str = "dense"


_VARIANTS = {
    "mnist": _Variant(
        [(32, 5, 1), (64, 3, 1), (64, 3, 1), (128, 3, 2)], "batch", 11
    ),
    "multimnist": _Variant(
        [(32, 5, 1), (64, 3, 1), (64, 3, 2), (128, 3, 2)],
        "batch",
        29,
        primary_window=5,
        primary_strides=2,
    ),
    "smallnorb": _Variant(
        [(32, 7, 2), (64, 3, 1), (64, 3, 1), (128, 3, 2)],
        "instance",
        19,
        decoder="upsampling",
    ),
}


def efficient_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    variant: str = "mnist",
    primary_capsules: int = 16,
    primary_dim: int = 8,
    class_dim: int = 16,
    routing: Any = "self_attention",
    decoder: bool = False,
    name: str = "efficient_capsnet",
) -> keras.Model:
    """Builds Efficient-CapsNet.

    Trainable parameters of the published forms, with ten classes unless said
    otherwise: 161,824 for `"mnist"` on 28x28x1, 168,544 for it on 32x32x3
    (SVHN, CIFAR-10), 154,656 for `"multimnist"` on 36x36x1, 151,664 for
    `"smallnorb"` on 48x48x2 and five classes.

    Args:
        input_shape: Rows, columns and channels of an image.
        num_classes: Int. Number of classes.
        variant: `"mnist"`, `"multimnist"` or `"smallnorb"`. Defaults to
            `"mnist"`.
        primary_capsules: Int. Primary capsules at each position, of which most
            forms have one. Defaults to `16`.
        primary_dim: Int. Components of a primary capsule; there must be 128
            channels, so `primary_capsules * primary_dim` is 128. Defaults to
            `8`.
        class_dim: Int. Components of a class capsule. Defaults to `16`.
        routing: Routing of the class capsules, see `tfcaps.routing.get`.
            Defaults to `"self_attention"`.
        decoder: Bool. Add the published decoder, see `with_decoder`: the dense
            one, for `"smallnorb"` the upsampling one. Defaults to `False`.
        name: String. Defaults to `"efficient_capsnet"`.

    Returns:
        A functional model from images `[b, h, w, c]` (input `images`) to
        float32 class lengths `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If `variant` is unknown, or the images are too small.

    References:
        - Mazzia, Salvetti, Chiaberge, 2021, https://arxiv.org/abs/2101.12491
    """
    if variant not in _VARIANTS:
        raise ValueError(
            f"`variant` must be one of {tuple(_VARIANTS)}. Received: "
            f"variant={variant!r}."
        )
    form = _VARIANTS[variant]
    check_input_shape(
        input_shape, (form.smallest, form.smallest), f"for variant={variant!r}"
    )
    images = keras.Input(input_shape, name="images")
    features = convolve(images, form.blocks, form.norm)
    children = PrimaryCaps(
        primary_capsules,
        primary_dim,
        form.primary_window or features.shape[1:3],
        form.primary_strides,
        depthwise=True,
        squash="efficient",
        name="primary_caps",
    )(features)
    layer = ClassCaps(
        num_classes,
        class_dim,
        routing=routing,
        transformation_initializer="he_normal",
        name="class_caps",
    )
    labels = labels_for(routing)
    classes = routed(layer, (children, None), labels)
    model = network(images, classes, name, labels)
    return with_decoder(model, form.decoder) if decoder else model
