"""Capsules on the features of a trained network."""

from typing import Any

import keras

from tfcaps.layers import ClassCaps, PrimaryCaps
from tfcaps.models.backbone import on_backbone
from tfcaps.models.building_blocks import labels_for, network, routed
from tfcaps.models.with_decoder import with_decoder
from tfcaps.ops import Tensor


def backbone_capsnet(
    backbone: keras.Model,
    num_classes: int,
    *,
    input_shape: tuple[int, int, int] | None = None,
    padding: int = 6,
    primary_types: int = 1,
    primary_dim: int = 8,
    primary_kernel_size: int | tuple[int, int] = 9,
    primary_strides: int = 2,
    class_dim: int = 16,
    routing: Any = 3,
    use_bias: bool = True,
    decoder: bool = False,
    name: str = "backbone_capsnet",
) -> keras.Model:
    """Builds DR-CapsNet's capsules on a frozen backbone.

    The feature map of the backbone goes through a ReLU and a border of zeros
    into PrimaryCaps and ClassCaps, which alone are trained. The defaults are
    those of the REM paper on Tiny ImageNet: on the 7x7x512 map of a ResNet-18
    they make 36 primary capsules and, for 200 classes, 1,256,584 trainable
    parameters.

    Args:
        backbone: Trained model from images `[b, h, w, c]` to a feature map
            `[b, rows, columns, channels]`, such as one of `keras.applications`
            with `include_top=False`. It is frozen in place, and works as in
            prediction: batch normalisation keeps its statistics.
        num_classes: Int. Number of classes.
        input_shape: Rows, columns and channels of an image. Images of another
            size than the backbone's are resized in the network. Defaults to
            the backbone's own.
        padding: Int. Zeros on each side of the feature map. Defaults to `6`.
        primary_types: Int. Primary capsule types. Defaults to `1`.
        primary_dim: Int. Components of a primary capsule. Defaults to `8`.
        primary_kernel_size: Int or two ints. Window of PrimaryCaps. Defaults to
            `9`.
        primary_strides: Int. Step of PrimaryCaps. Defaults to `2`.
        class_dim: Int. Components of a class capsule. Defaults to `16`.
        routing: As in `dr_capsnet`. Defaults to `3`.
        use_bias: Bool. Routing bias of the class capsules. Defaults to `True`.
        decoder: Bool. Add the dense decoder, see `with_decoder`. Defaults to
            `False`.
        name: String. Name of the model. Defaults to `"backbone_capsnet"`.

    Returns:
        A functional model from images (input `images`), in the backbone's
        scale, to float32 class lengths `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If the backbone is not built or makes no feature map, the
            images' size is not known or they have other channels, or the map
            is too small for the window.

    Example:

    >>> import math
    >>> conv = keras.layers.Conv2D(512, 32, 32)  # stands for a trained model
    >>> backbone = keras.Sequential([keras.Input((224, 224, 3)), conv])
    >>> model = backbone_capsnet(backbone, 200, input_shape=(64, 64, 3))
    >>> sum(math.prod(v.shape) for v in model.trainable_variables)
    1256584

    References:
        - "Capsule Networks Do Not Need to Model Everything", table 10
    """
    images, features = on_backbone(backbone, input_shape)
    features = keras.layers.ReLU(name="relu")(features)
    features = keras.layers.ZeroPadding2D(
        padding, data_format="channels_last", name="padding"
    )(features)
    check_window(features, primary_kernel_size, padding)
    children = PrimaryCaps(
        primary_types,
        primary_dim,
        primary_kernel_size,
        primary_strides,
        name="primary_caps",
    )(features)
    labels = labels_for(routing)
    layer = ClassCaps(
        num_classes,
        class_dim,
        routing=routing,
        use_bias=use_bias,
        name="class_caps",
    )
    classes = routed(layer, (children, None), labels)
    model = network(images, classes, name, labels)
    return with_decoder(model) if decoder else model


def check_window(
    features: Tensor, window: int | tuple[int, int], padding: int
) -> None:
    """Raises `ValueError` if the window is larger than the map."""
    sides = features.shape[1:3]
    windows = (window, window) if isinstance(window, int) else window
    if any(
        side is not None and side < size
        for side, size in zip(sides, windows, strict=True)
    ):
        raise ValueError(
            f"A feature map of {sides[0]} rows and {sides[1]} columns, with "
            f"padding={padding}, is too small for primary_kernel_size={window}."
        )
