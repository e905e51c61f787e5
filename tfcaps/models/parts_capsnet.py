"""A network whose parse trees are made of parts of the image."""

from collections.abc import Sequence
from typing import Any

import keras

from tfcaps.layers import ClassCaps
from tfcaps.models import building_blocks
from tfcaps.models.backbone import on_backbone
from tfcaps.routing import DynamicRouting

# A child abstains if the sharpness times this exceeds its logits by much.
_SHARPNESS = 40.0
_ORPHAN = 0.055
# Components of all capsules.
_DIM = 8


def parts_capsnet(
    input_shape: tuple[int, int, int] | None,
    num_classes: int,
    *,
    backbone: keras.Model | None = None,
    filters: Sequence[int] = (16, 32),
    strides: Sequence[int] | None = None,
    kernel_size: int = 5,
    primary_types: int = 16,
    routing: Any = None,
    share: str | None = "type",
    name: str = "parts_capsnet",
) -> keras.Model:
    """Builds a small convolutional network whose trees show parts of an image.

    By default each primary capsule sees a window of 13x13 pixels, and their
    grid has a stride of four. A type has the same matrices at every position,
    so it means the same everywhere. Routing is sharp, and a child may abstain:
    only the few that agree with a class are in its tree.
    `tfcaps.rem.receptive_fields` returns where they look.

    A `backbone` may stand in place of the convolutions. Its map is normalised,
    whatever its scale, and each position has primary capsules. A deep one sees
    more around each of them, often the whole image.

    What is not listed is that of `dr_capsnet`.

    Args:
        input_shape: Rows, columns and channels of an image; at least 16x16
            leaves a grid of 4x4.
        filters: Ints. Channels of the convolutions. Defaults to `(16, 32)`.
        strides: Ints. Their steps, as many. Defaults to `1` for the first one,
            which keeps the size of the image, and `2` for the others.
        kernel_size: Int. Their rows and columns. Defaults to `5`.
        primary_types: Int. Primary capsule types. Defaults to `16`.
        routing: Routing of the class capsules, see `tfcaps.routing.get`.
            Defaults to dynamic routing of three iterations with an orphan of
            0.055 and a sharpness of 40, which
            `tfcaps.callbacks.SharpnessSchedule` may set in training.
        share: Sharing of transformations, see `ClassCaps`. Defaults to
            `"type"`.

    Example:

    >>> parts_capsnet((32, 32, 1), 10).count_params()
    60625
    """
    if backbone is not None:
        images, features = on_backbone(backbone, input_shape)
        children = building_blocks.PrimaryCaps(primary_types, _DIM, 1)(
            building_blocks.batch_norm("norm")(features)
        )
    else:
        if strides is None:
            strides = (1,) + (2,) * (len(filters) - 1)
        window = (kernel_size, kernel_size)
        building_blocks.check_input_shape(
            input_shape, window, f"for windows of {kernel_size}x{kernel_size}"
        )
        images = keras.Input(input_shape, name="images")
        children = building_blocks.PrimaryCaps(
            primary_types, _DIM, 3, 2, padding="same"
        )(
            building_blocks.normalized_convolutions(
                images, filters, strides, kernel_size
            )
        )
    if routing is None:
        routing = DynamicRouting(
            leaky=True,
            sharpness=_SHARPNESS,
            orphan=_ORPHAN,
            sharpness_mode="scheduled",
        )
    layer = ClassCaps(
        num_classes,
        _DIM,
        routing=routing,
        use_bias=False,
        share=share,
        name="class_caps",
    )
    return building_blocks.capsule_network(images, children, [layer], name)
