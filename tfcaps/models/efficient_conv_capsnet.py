"""Eff-ConvCapsNet: convolutional capsules for larger images."""

from typing import Any

import keras

from tfcaps.layers import ClassCaps, ConvCaps, PrimaryCaps
from tfcaps.models.building_blocks import (
    check_input_shape,
    convolve,
    hidden_routing,
    labels_for,
    network,
    routed,
)
from tfcaps.models.with_decoder import with_decoder

_BLOCKS = [(32, 5, 2), (64, 3, 1), (64, 3, 1), (256, 3, 2)]
_SMALLEST = 33


def efficient_conv_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    routing: Any = 3,
    share: str | None = "type",
    decoder: bool = False,
    name: str = "efficient_conv_capsnet",
) -> keras.Model:
    """Builds Eff-ConvCapsNet, which REM uses for images of 128x128 pixels.

    A small backbone, depthwise PrimaryCaps, ConvCaps of 16 types and ClassCaps,
    all capsules of 16 components. On 128x128x3 images there are 10,816 primary
    and 2,304 convolutional capsules. The authors' code is not published; ReLU,
    batch normalisation and matrices shared by type are our choice.

    Args:
        input_shape: Rows, columns and channels of an image.
        num_classes: Int. Number of classes.
        routing: Routing of both layers, see `tfcaps.routing.get`. Defaults to
            `3`.
        share: Sharing of the class capsules' matrices, see `ClassCaps`.
            Defaults to `"type"`.
        decoder: Bool. Add the deconvolution decoder, see `with_decoder`.
            Defaults to `False`.
        name: String. Defaults to `"efficient_conv_capsnet"`.

    Returns:
        A functional model from images `[b, h, w, c]` in [0, 1] (input `images`)
        to float32 class lengths `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If the images are too small.

    References:
        - "Capsule Networks Do Not Need to Model Everything", appendix B.1
    """
    check_input_shape(
        input_shape, (_SMALLEST, _SMALLEST), "for its five windows"
    )
    images = keras.Input(input_shape, name="images")
    features = convolve(images, _BLOCKS, "batch")
    children = PrimaryCaps(16, 16, 3, depthwise=True, name="primary_caps")(
        features
    )
    layers = [
        ConvCaps(
            16, 16, 3, 2, routing=hidden_routing(routing), name="conv_caps"
        ),
        ClassCaps(
            num_classes, 16, routing=routing, share=share, name="class_caps"
        ),
    ]
    labels = labels_for(routing)
    parents = routed(layers[0], (children, None))
    classes = routed(layers[1], parents, labels)
    model = network(images, classes, name, labels)
    if decoder:
        return with_decoder(model, "deconvolution", class_independent=True)
    return model
