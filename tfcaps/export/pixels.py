"""What a pixel is: what clients send, and what the network takes."""

from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps.graphs import calls_of, inner_model
from tfcaps.ops import check_that

_BYTE = 255
# The layers before the first kernel bring what a network takes to a width of
# about 1: bytes to `255 w`, pixels in [0, 1] to `w`. Both are as far from 1
# where `w` is 1/16.
_WIDTH = 1 / 16
# They may take a mean off: about 120 from bytes, 0.5 from pixels in [0, 1].
_MEAN = 8


class Pixels(NamedTuple):
    """The inputs of a network, as clients send them."""

    dtype: str  # the type that is sent
    largest: int | None  # pixel that is sent, `None` of what is no image
    divisor: int = 1  # by what it is divided before the network


def pixels_of(
    model: keras.Model,
    input_dtype: str | None = None,
    pixels: int | None = None,
) -> Pixels:
    """Returns what clients send, by the arguments of `tfcaps.export.save`."""
    known = input_dtype in (None, "uint8", "float32")
    check_that(known, 'be "uint8" or "float32"', input_dtype=input_dtype)
    check_that(pixels in (None, 1, _BYTE), "be 1 or 255", pixels=pixels)
    [taken] = model.inputs
    is_integer = np.dtype(taken.dtype).kind in "iu" if taken.dtype else False
    if len(taken.shape) != 4:  # signals, tables, volumes
        if is_integer:
            return Pixels(taken.dtype, None)
        return Pixels(input_dtype or "float32", None, _divisor(input_dtype))
    if pixels is None:
        pixels = _BYTE if is_integer or _takes_bytes(model) else 1
    if pixels == 1:
        if is_integer:
            raise ValueError(
                f"`pixels` must be 255 for {model.name!r}, which takes "
                f"{taken.dtype}. Received: pixels=1."
            )
        sent = input_dtype or "float32"
        return Pixels(sent, _divisor(sent), _divisor(sent))
    if input_dtype == "float32":
        raise ValueError(
            f'`input_dtype` must be "uint8" for {model.name!r}, which takes '
            "pixels from 0 to 255 and scales them itself. Received: "
            'input_dtype="float32". If it does take pixels in [0, 1], add '
            "`pixels=1`."
        )
    return Pixels("uint8", _BYTE)


def _divisor(dtype: str | None) -> int:
    return _BYTE if dtype == "uint8" else 1


def _takes_bytes(model: keras.Model) -> bool:
    """Tells by an image of noise what pixels are at the first kernel."""
    shape = (1, *(size or 32 for size in model.inputs[0].shape[1:]))
    noise = np.random.RandomState(0).uniform(size=shape).astype("float32")
    grey, black = (_at_first_kernel(model, x) for x in (noise, 0 * noise))
    mean = np.abs(keras.ops.convert_to_numpy(black)).max()
    apart = keras.ops.convert_to_numpy(keras.ops.subtract(grey, black))
    width = np.abs(apart).max()
    return bool(width < _WIDTH or mean > _MEAN * width)


def _at_first_kernel(model: keras.Model, images: Any) -> Any:
    """Returns what the first layer with a kernel takes, also inside."""
    copy, calls = calls_of(model)
    for layer, taken, *_ in calls:
        if not taken or not _has_kernel(layer):
            continue
        images = keras.Model(copy.input, taken[0])(images, training=False)
        first = getattr(layer, "first_layers", None)
        parts = getattr(layer, "equivalent_layers", [layer])
        for part in first() if first else parts:
            if _has_kernel(part):
                inner = inner_model(part)
                return (
                    images if inner is None else _at_first_kernel(inner, images)
                )
            images = part(images)
    return images


def _has_kernel(layer: Any) -> bool:
    return any(len(w.shape) > 1 for w in getattr(layer, "weights", ()))
