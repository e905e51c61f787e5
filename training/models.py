"""The networks that `--model` names."""

from collections.abc import Callable

import keras

import tfcaps
from tfcaps.cli import UserError

Shape = tuple[int, int, int]

# Above it, a window of the whole map has too many weights.
_LARGEST = 40


def _dr_capsnet_small(shape: Shape, classes: int) -> keras.Model:
    """DR-CapsNet for two cores, with few children and long votes.

    Votes must be long to disagree: logits are votes times poses, which are
    shorter than 1. The more children share the work of making a class capsule
    long, the shorter their votes, and the nearer all couplings to uniform. So
    the window of PrimaryCaps is the whole map, which leaves one position with
    eight capsules, and routing takes more iterations.
    """
    rows, columns, _ = shape
    kernel_size = 3 if min(rows, columns) < 16 else 9
    if not kernel_size <= min(rows, columns) <= max(rows, columns) <= _LARGEST:
        raise ValueError(
            f"sides must be from 3 to {_LARGEST} pixels. Received: {rows} rows "
            f"and {columns} columns. Resize the images."
        )
    return tfcaps.models.dr_capsnet(
        shape,
        classes,
        filters=64,
        kernel_size=kernel_size,
        primary_types=8,
        primary_kernel_size=(rows - kernel_size + 1, columns - kernel_size + 1),
        primary_strides=1,
        class_dim=8,
        routing=tfcaps.routing.DynamicRouting(iterations=12),
        use_bias=False,
        name="dr_capsnet_small",
    )


def _dr_capsnet(shape: Shape, classes: int) -> keras.Model:
    return tfcaps.models.dr_capsnet(shape, classes)


MODELS: dict[str, Callable[[Shape, int], keras.Model]] = {
    "dr_capsnet": _dr_capsnet,
    "dr_capsnet_small": _dr_capsnet_small,
}


def build(name: str, shape: Shape, classes: int) -> keras.Model:
    """Builds the network called `name`.

    Raises:
        UserError: If the name is unknown or the images do not fit.
    """
    if name not in MODELS:
        raise UserError(
            f"unknown model {name!r}; the models are {', '.join(MODELS)}."
        )
    try:
        return MODELS[name](shape, classes)
    except ValueError as error:
        raise UserError(f"{name} does not fit the images: {error}") from error
