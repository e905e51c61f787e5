"""A network whose parse trees name parts and say where they are."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from tfcaps.models.backbone import on_backbone
from tfcaps.models.building_blocks import (
    batch_norm,
    check_input_shape,
    normalized_convolutions,
)
from tfcaps.parts import ConstellationCaps, ConstellationModel, PartCaps

# Types of parts of each class on a backbone, and how far its parts may stand
# from their place: the standard deviation, as a share of the image.
_TYPES_OF_CLASS, _TOLERANCE = 3, 0.3


def constellation_capsnet(
    input_shape: tuple[int, int, int] | None,
    num_classes: int,
    num_types: int | None = None,
    *,
    backbone: keras.Model | None = None,
    filters: Sequence[int] = (12, 24),
    kernel_size: int = 5,
    strides: Sequence[int] | None = None,
    window: int | None = None,
    max_of_type: int = 1,
    max_parts: int | None = None,
    width: float | None = None,
    epsilon: float = 0.02,
    name: str = "constellation_capsnet",
) -> keras.Model:
    """Builds a small network of parts that stand in constellations.

    Convolutions find parts of a few types, `PartCaps`, whose pose is their
    place alone; `ConstellationCaps` find the class whose blueprint they fit. So
    a leaf of a tree has a type, which says what the part is, and a place.

    It is compiled, and `model.fit(images, labels, epochs=6)` trains it; see
    `tfcaps.parts.ConstellationModel`.

    A trained `backbone` may stand in place of the convolutions. What a photo
    shows bends and turns: parts may then stand far from where a class has them,
    each class has types of its own, type `t` that of class `t mod num_classes`,
    and may have one of them at several places. No templates are drawn.

    Results (here lengths are activations) and errors that are not listed are
    those of `dr_capsnet`.

    Args:
        input_shape: Rows, columns and channels of an image. With the defaults
            a part is about seven pixels large. `None` for those of the
            backbone.
        num_classes: Int. Number of classes.
        num_types: Int. Most types of parts there may be; those that training
            does not need are left without a kernel. Defaults to 16, or to three
            a class on a backbone.
        backbone: As in `dr_capsnet`. Defaults to `None`.
        filters: Ints. Channels of the convolutions. Defaults to `(12, 24)`.
        kernel_size: Int. Their rows and columns. Defaults to `5`.
        strides: Ints. Their steps. Defaults to `None`, 2 of the last one.
        window: Int. Within so many places there is one part, see `PartCaps`.
            Defaults to 5, or to half of the map of a backbone.
        max_of_type: Int. How many parts of one type a class may have. Defaults
            to `1`.
        max_parts: Int or `None`. Most parts of a class, see
            `ConstellationCaps`. Defaults to `None`.
        width: Float. How far parts may stand from their place, in pixels, see
            `ConstellationCaps`. Defaults to 2, or to 0.3 of the image on a
            backbone.
        epsilon: Float. See `ConstellationCaps`. Defaults to `0.02`.
        name: String. Name of the model.

    Example:

    >>> constellation_capsnet((32, 32, 1), 10, 5).count_params()
    8552

    References:
        - As of `tfcaps.parts.ConstellationCaps`.
    """
    if backbone is not None:
        images, features = on_backbone(backbone, input_shape)
        features = batch_norm("norm")(features)
        side, count = max(images.shape[1:3]), max(features.shape[1:3])
        step = side / count
        offset: tuple[float, ...] = (step / 2 - 0.5,) * 2
        window = window or 2 * (count // 4) + 1
        num_types = num_types or _TYPES_OF_CLASS * num_classes
        width = width or _TOLERANCE * side
        if num_types < num_classes:
            raise ValueError(
                "`num_types` must be at least as many as the classes, "
                f"{num_classes}. Received: num_types={num_types}."
            )
    else:
        strides = strides or [1] * (len(filters) - 1) + [2]
        step, window = math.prod(strides), window or 5
        least = max(step * window, kernel_size)
        because = f"for window={window} places of {step} pixels"
        check_input_shape(input_shape, (least, least), because)
        images = keras.Input(input_shape, name="images")
        features = normalized_convolutions(
            images, filters, strides, kernel_size
        )
        _, rows, columns, _ = features.shape
        num_types, width = num_types or 16, width or 2.0
        if num_types > rows * columns:
            raise ValueError(
                "`num_types` must not exceed the places at which parts can "
                f"stand, here {rows}x{columns}. Received: "
                f"num_types={num_types}."
            )
        offset = tuple(
            first_place(side, kernel_size, strides)
            for side in images.shape[1:3]
        )
    places: Any = {"stride": step, "offset": offset}
    poses, present, _ = PartCaps(
        num_types,
        window,
        name="part_caps",
        data_format="channels_last",
        **places,
    )(features, return_presence=True)
    _, lengths, _ = ConstellationCaps(
        num_classes,
        width,
        epsilon,
        shared=backbone is None,
        max_of_type=max_of_type,
        max_parts=max_parts,
        name="class_caps",
        **places,
    )(poses, present, return_activations=True, return_evidence=True)
    lengths = keras.layers.Identity(dtype="float32", name="lengths")(lengths)
    model = ConstellationModel(images, lengths, name=name)
    model.compile()
    return model


def first_place(side: int, kernel_size: int, strides: Sequence[int]) -> int:
    """Returns the pixel of the middle of the first window."""
    place, step = 0, 1
    for stride in strides:
        count = -(-side // stride)
        padding = max((count - 1) * stride + kernel_size - side, 0)
        place += step * (kernel_size // 2 - padding // 2)
        side, step = count, step * stride
    return place
