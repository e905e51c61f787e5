"""A network whose parse trees name parts and say where they are."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import graphs
from tfcaps.layers import ConstellationCaps, PartCaps
from tfcaps.layers.part_caps import SPARE_BIAS
from tfcaps.models.building_blocks import (
    capsule_network,
    check_input_shape,
    normalized_convolutions,
)
from tfcaps.models.with_decoder import with_decoder
from tfcaps.parts.model import ConstellationModel


def constellation_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    part_types: int = 16,
    *,
    filters: Sequence[int] = (12, 24),
    kernel_size: int = 5,
    strides: Sequence[int] | None = None,
    window: int = 5,
    instances: int = 1,
    parts: int | None = None,
    repulsion: float = 0.1,
    routing: Any = None,
    decoder: bool = False,
    name: str = "constellation_capsnet",
) -> keras.Model:
    """Builds a small network of parts that stand in constellations.

    Convolutions find parts of a few types, `PartCaps`, whose pose is their
    place alone; `ConstellationCaps` find the class whose blueprint they fit. So
    a leaf of a tree has a type, which says what the part is, and a place.

    It is compiled, and `model.fit(images, labels, epochs=6)` trains it; see
    `tfcaps.parts.ConstellationModel`.

    Arguments, results (here lengths are activations) and errors that are not
    listed are those of `dr_capsnet`.

    Args:
        input_shape: Rows, columns and channels of an image. With the defaults
            a part is about seven pixels large.
        part_types: Int. Most types of parts there may be; those that training
            does not need are left without a kernel. Defaults to `16`.
        filters: Ints. Channels of the convolutions. Defaults to `(12, 24)`.
        kernel_size: Int. Their rows and columns. Defaults to `5`.
        strides: Ints. Their steps. Defaults to `None`, 2 of the last one.
        window: Int. Within so many places there is one part, see `PartCaps`.
            Defaults to `5`.
        instances: Int. How many parts of one type a class may have. Defaults to
            `1`.
        parts: Int or `None`. Most parts of a class, see `ConstellationCaps`.
            Defaults to `None`.
        repulsion: Float. See `ConstellationCaps`. Defaults to `0.1`.
        routing: A `MeanShiftRouting`, or `None` for one with its defaults.
            Defaults to `None`.
        decoder: Bool. Add the dense decoder of class poses, see `with_decoder`.
            Defaults to `False`.

    Example:

    >>> constellation_capsnet((32, 32, 1), 10, part_types=5).count_params()
    8552

    References:
        - As of `tfcaps.routing.MeanShiftRouting`.
    """
    strides = strides or [1] * (len(filters) - 1) + [2]
    step = math.prod(strides)
    least = max(step * window, kernel_size)
    because = f"for window={window} places of {step} pixels"
    check_input_shape(input_shape, (least, least), because)
    images = keras.Input(input_shape, name="images")
    features = normalized_convolutions(images, filters, strides, kernel_size)
    _, rows, columns, _ = features.shape
    if part_types > rows * columns:
        raise ValueError(
            "`part_types` must not exceed the places at which parts can stand, "
            f"here {rows}x{columns}. Received: part_types={part_types}."
        )
    offset = [first_place(n, kernel_size, strides) for n in input_shape[:2]]
    places: Any = {"stride": step, "offset": tuple(offset)}
    poses, present = PartCaps(
        part_types,
        window,
        name="part_caps",
        **places,
        data_format="channels_last",
    )(features)
    layer = ConstellationCaps(
        num_classes,
        routing,
        repulsion=repulsion,
        instances=instances,
        parts=parts,
        name="class_caps",
        **places,
    )
    # By their place: `Beside` takes no other tensors by name.
    classes = layer(poses, present, return_activations=True)
    return constellation_network(images, classes, name, decoder)


def constellation_network(
    images: Any, classes: Any, name: str, decoder: bool
) -> keras.Model:
    """Returns a compiled model of parts, or one with a dense decoder."""
    model = capsule_network(images, classes, [], name)
    if decoder:
        return with_decoder(model)
    model = ConstellationModel(model.input, model.output, name=name)
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


def without_spare_types(model: keras.Model) -> keras.Model:
    """Returns a network of parts without the types that others have taken in.

    It has the same outputs, and fewer children. Types are numbered anew, in
    their order. Its other layers are those of `model`.

    Args:
        model: A functional model with one `PartCaps` and one
            `ConstellationCaps`, that is trained.

    Returns:
        `model` itself, if no type is spare.

    Raises:
        ValueError: If the model has not one of each of these layers, or all
            types are spare.
    """
    parts = graphs.only_layer(model, PartCaps)
    classes = graphs.only_layer(model, ConstellationCaps)
    kept = ops.convert_to_numpy(parts.conv.bias) > 0.5 * SPARE_BIAS
    if not kept.any():
        raise ValueError(
            f"All {len(kept)} types of {model.name!r} are spare. Train it anew."
        )
    if kept.all():
        return model

    def smaller(layer: Any) -> Any:
        if layer not in (parts, classes):
            return layer
        config = layer.get_config()
        if layer is parts:
            config["num_types"] = int(kept.sum())
        return type(layer).from_config(config)

    clone = keras.models.clone_model(model, clone_function=smaller)
    rows = np.tile(kept, classes.instances)  # of the blueprints
    for layer in (parts, classes):
        pairs = zip(
            layer.weights, clone.get_layer(layer.name).weights, strict=True
        )
        for old, new in pairs:
            value = ops.convert_to_numpy(old)
            if value.shape != tuple(new.shape):
                value = value[..., kept] if layer is parts else value[rows]
            new.assign(value)
    if isinstance(clone, ConstellationModel) and clone.decoder is not None:
        old = ops.convert_to_numpy(model.decoder.templates)
        clone.decoder.set_weights([old[..., kept], model.decoder.ground])
    return clone
