"""EM-CapsNet: matrix capsules with EM routing."""

from typing import Any

import keras

from tfcaps.layers import ClassCaps, ConvCaps, PrimaryMatrixCaps
from tfcaps.models.building_blocks import (
    Conv2D,
    capsule_network,
    check_input_shape,
)
from tfcaps.routing import EMRouting


def em_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    filters: int = 64,
    primary_types: int = 8,
    conv_types: tuple[int, int] = (16, 16),
    routing: Any = None,
    name: str = "em_capsnet",
) -> keras.Model:
    """Builds the network of matrix capsules.

    Convolution, PrimaryMatrixCaps, two layers of ConvCaps and ClassCaps, all
    with 4x4 poses and activations of their own. The output `lengths` are the
    activations of the class capsules. The defaults are the sizes of the careful
    re-implementation; the paper has `filters=32`, `primary_types=32` and
    `conv_types=(32, 32)`, and 32x32 crops of smallNORB. What is not listed is
    that of `dr_capsnet`.

    Args:
        filters: Int. Channels of the first convolution. Defaults to `64`.
        primary_types: Int. Primary capsule types. Defaults to `8`.
        conv_types: Two ints. Types of the two ConvCaps. Defaults to `(16, 16)`.
        routing: Routing of all layers, see `tfcaps.routing.get`. Defaults to
            `EMRouting(2, inverse_temperature=0.03, epsilon=0.01)`: with three
            iterations, or the least variance of the paper's form, 1e-9, it
            hardly learns in a short training.

    References:
        - Hinton, Sabour, Frosst, 2018, "Matrix capsules with EM routing"
        - Gritzman, 2019, https://arxiv.org/abs/1907.00652
    """
    if routing is None:
        routing = EMRouting(2, inverse_temperature=0.03, epsilon=0.01)
    check_input_shape(input_shape, (13, 13), "for its windows")

    def matrices() -> dict[str, Any]:
        # Layers that share an initialiser would start with the same matrices.
        initializer = keras.initializers.TruncatedNormal(stddev=1.0)
        return {"matrix": True, "transformation_initializer": initializer}

    images = keras.Input(input_shape, name="images")
    features = Conv2D(filters, 5, 2, "same", activation="relu", name="conv")(
        images
    )
    children = PrimaryMatrixCaps(
        primary_types, name="primary_caps", data_format="channels_last"
    )(features)
    layers: list[Any] = [
        ConvCaps(
            types,
            16,
            3,
            step,
            routing=routing,
            name=f"conv_caps{number}",
            **matrices(),
        )
        for number, types, step in zip((1, 2), conv_types, (2, 1), strict=True)
    ]
    layers.append(
        ClassCaps(
            num_classes,
            16,
            routing=routing,
            share="type",
            coordinates=True,
            name="class_caps",
            **matrices(),
        )
    )
    return capsule_network(images, children, layers, name)
