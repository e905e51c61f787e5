"""The networks that `--model` names."""

from collections.abc import Callable

import keras

import tfcaps
from tfcaps.cli import UserError

Shape = tuple[int, int, int]


def _dr_capsnet_small(shape: Shape, classes: int, routing: object):
    """DR-CapsNet cut down for two cores, with windows that fit the images."""
    if min(shape[:2]) < 17:
        sizes = {"filters": 32, "kernel_size": 3, "primary_kernel_size": 3}
    else:
        sizes = {"filters": 64, "kernel_size": 9, "primary_kernel_size": 9}
    return tfcaps.models.dr_capsnet(
        shape,
        classes,
        routing=routing,
        primary_types=8,
        name="dr_capsnet_small",
        **sizes,
    )


def _dr_capsnet(shape: Shape, classes: int, routing: object):
    return tfcaps.models.dr_capsnet(shape, classes, routing=routing)


MODELS: dict[str, Callable[[Shape, int, object], keras.Model]] = {
    "dr_capsnet": _dr_capsnet,
    "dr_capsnet_small": _dr_capsnet_small,
}


def build(
    name: str, shape: Shape, classes: int, routing: tfcaps.routing.Routing
) -> keras.Model:
    """Builds the network called `name`.

    Raises:
        UserError: If the name is unknown or the images do not fit.
    """
    if name not in MODELS:
        raise UserError(
            f"unknown model {name!r}; the models are {', '.join(MODELS)}."
        )
    try:
        return MODELS[name](shape, classes, routing)
    except ValueError as error:
        raise UserError(f"{name} does not fit the images: {error}") from error
