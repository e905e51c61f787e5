"""A network whose parse trees name parts and say where they are."""

from collections.abc import Sequence
from typing import Any

import keras

from tfcaps.layers import ConstellationCaps, PartCaps
from tfcaps.models.building_blocks import check_input_shape, network
from tfcaps.models.parts_capsnet import MOMENTUM
from tfcaps.models.with_decoder import with_decoder
from tfcaps.routing import MeanShiftRouting


def constellation_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    part_types: int = 8,
    *,
    filters: Sequence[int] = (12, 24),
    kernel_size: int = 5,
    window: int = 5,
    repulsion: float = 0.1,
    routing: Any = None,
    decoder: bool = False,
    name: str = "constellation_capsnet",
) -> keras.Model:
    """Builds a small network of parts that stand in constellations.

    Convolutions find parts of a few types, `PartCaps`, whose pose is their
    place alone; `ConstellationCaps` find the class whose blueprint they fit. So
    a leaf of a tree has a type, which says what the part is, and a place.

    Train `tfcaps.models.with_templates(model)`, which also draws the image from
    its parts, with the callback `tfcaps.callbacks.BlueprintEstimation`.

    Args:
        input_shape: Rows, columns and channels of an image. A part is about
            seven pixels large.
        num_classes: Int. Number of classes.
        part_types: Int. Most types of parts there may be. Defaults to `8`.
        filters: Ints. Channels of the convolutions, of which the last one has a
            step of 2. Defaults to `(12, 24)`.
        kernel_size: Int. Their rows and columns. Defaults to `5`.
        window: Int. Within so many places there is one part, see `PartCaps`.
            Defaults to `5`.
        repulsion: Float. See `ConstellationCaps`. Defaults to `0.1`.
        routing: A `MeanShiftRouting`, or `None` for one with its defaults.
            Defaults to `None`.
        decoder: Bool. Add the dense decoder of class poses, see `with_decoder`.
            Defaults to `False`.
        name: String. Name of the model. Defaults to `"constellation_capsnet"`.

    Returns:
        A functional model from images `[b, h, w, c]` in [0, 1] (input `images`)
        to float32 class activations `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If an argument is out of range, the images are too small for
            a part and its neighbours, or there are more types than places.

    Example:

    >>> constellation_capsnet((32, 32, 1), 10, part_types=5).count_params()
    7946

    References:
        - As of `tfcaps.routing.MeanShiftRouting`.
    """
    if not filters:
        raise ValueError("`filters` must not be empty. Received: filters=().")
    least = max(2 * window, kernel_size)
    check_input_shape(
        input_shape, (least, least), f"for window={window} places of 2 pixels"
    )
    images = keras.Input(input_shape, name="images")
    features = images
    for number, channels in enumerate(filters, start=1):
        features = keras.layers.Conv2D(
            channels,
            kernel_size,
            2 if number == len(filters) else 1,
            padding="same",
            data_format="channels_last",
            use_bias=False,
            name=f"conv{number}",
        )(features)
        features = keras.layers.BatchNormalization(
            momentum=MOMENTUM, name=f"norm{number}"
        )(features)
        features = keras.layers.ReLU(name=f"relu{number}")(features)
    _, rows, columns, _ = features.shape
    if part_types > rows * columns:
        raise ValueError(
            "`part_types` must not exceed the places at which parts can stand, "
            f"here {rows}x{columns}. Received: part_types={part_types}."
        )
    # With "same" padding the middle of the first window is on pixel 1 of even
    # sides, on 0 of odd ones.
    places: Any = {
        "stride": 2,
        "offset": tuple(1 - side % 2 for side in input_shape[:2]),
    }
    poses, present = PartCaps(part_types, window, name="part_caps", **places)(
        features
    )
    layer = ConstellationCaps(
        num_classes,
        routing or MeanShiftRouting(),
        repulsion=repulsion,
        name="class_caps",
        **places,
    )
    poses, active = layer(poses, present, return_activations=True)
    model = network(images, (poses, active), name)
    return with_decoder(model) if decoder else model
