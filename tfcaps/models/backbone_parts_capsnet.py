"""Capsules with positions on the features of a trained network."""

from typing import Any

import keras

from tfcaps.layers import PrimaryCaps
from tfcaps.models.backbone import on_backbone
from tfcaps.models.parts_capsnet import MOMENTUM, parts_of
from tfcaps.models.with_decoder import with_decoder


def backbone_parts_capsnet(
    backbone: keras.Model,
    num_classes: int,
    *,
    input_shape: tuple[int, int, int] | None = None,
    primary_types: int = 16,
    primary_dim: int = 8,
    primary_kernel_size: int = 1,
    class_dim: int = 8,
    routing: Any = None,
    share: str | None = "type",
    decoder: bool = False,
    name: str = "backbone_parts_capsnet",
) -> keras.Model:
    """Builds the capsules of `parts_capsnet` on a frozen backbone.

    The feature map is normalised, whatever the scale of the backbone, and each
    of its positions has primary capsules of its own. Routing is as sharp as in
    `parts_capsnet`, so that trees show places of the image; a deep backbone
    sees more around each of them, often the whole image.

    Args:
        backbone: As in `backbone_capsnet`.
        num_classes: Int. Number of classes.
        input_shape: As in `backbone_capsnet`.
        primary_types: Int. Primary capsule types. Defaults to `16`.
        primary_dim: Int. Components of a primary capsule. Defaults to `8`.
        primary_kernel_size: Int. Window of PrimaryCaps on the feature map,
            whose rows and columns stay. Defaults to `1`.
        class_dim: Int. Components of a class capsule. Defaults to `8`.
        routing: As in `parts_capsnet`.
        share: Sharing of transformations, see `ClassCaps`. Defaults to
            `"type"`.
        decoder: Bool. Add the dense decoder, see `with_decoder`. Defaults to
            `False`.
        name: String. Name of the model. Defaults to
            `"backbone_parts_capsnet"`.

    Returns:
        A functional model from images (input `images`), in the backbone's
        scale, to float32 class lengths `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If the backbone is not built or makes no feature map, or the
            images' size is not known or they have other channels.

    Example:

    >>> conv = keras.layers.Conv2D(32, 8, 8)  # stands for a trained model
    >>> backbone = keras.Sequential([keras.Input((64, 64, 3)), conv])
    >>> model = backbone_parts_capsnet(backbone, 10)
    >>> model.get_layer("primary_caps").output.shape
    (None, 8, 8, 16, 8)
    """
    images, features = on_backbone(backbone, input_shape)
    features = keras.layers.BatchNormalization(momentum=MOMENTUM, name="norm")(
        features
    )
    children = PrimaryCaps(
        primary_types,
        primary_dim,
        primary_kernel_size,
        padding="same",
        name="primary_caps",
    )(features)
    model = parts_of(
        images,
        children,
        num_classes,
        class_dim=class_dim,
        routing=routing,
        share=share,
        name=name,
    )
    return with_decoder(model) if decoder else model
