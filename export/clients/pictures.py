"""Reads image and array files as a served network takes them."""

import sys
from pathlib import Path

import numpy as np

from export.clients.server import Array, ClientError, Signature, as_input

_MODES = {1: "L", 3: "RGB"}  # Pillow's, by the number of channels
_UNREADABLE = (OSError, ValueError, MemoryError, SyntaxError)  # broken files


def read_images(path: Path, signature: Signature) -> Array:
    """Returns a file's images as the server wants them, resized if need be.

    Args:
        path: A picture, or an `.npy` file of one image or a batch.
        signature: What takes them.

    Raises:
        ClientError: If it cannot be read, or does not fit.
    """
    try:
        if path.suffix.lower() == ".npy":
            return as_input(_read_array(path, signature.shape), signature)
        return as_input(_read_picture(path, signature.shape), signature)
    except (*_UNREADABLE, ClientError) as error:
        raise ClientError(f"{path} cannot be used: {error}") from error


def _read_array(path: Path, shape: tuple[int, ...]) -> Array:
    with path.open("rb") as file:
        images: Array = np.lib.format.read_array(file, allow_pickle=False)
    if shape[2] == 1 and images.shape[-2:] == shape[:2]:
        images = images[..., None]
    return images[None] if images.ndim == 3 else images


def _read_picture(path: Path, shape: tuple[int, ...]) -> Array:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ClientError(
            "pictures need pillow (pip install pillow); .npy files do not."
        ) from error
    rows, columns, channels = shape
    if channels not in _MODES:
        raise ClientError(f"images of {channels} channels must come as .npy.")
    try:
        with Image.open(path) as picture:
            if picture.mode.startswith(("I", "F")):  # convert would clip it
                raise ClientError("save it with 8 bits per channel, not more.")
            upright = ImageOps.exif_transpose(picture).convert("RGBA")
    except Image.DecompressionBombError as error:
        raise ClientError(str(error)) from error
    ground = Image.new("RGBA", upright.size, "white")  # as in training
    image = Image.alpha_composite(ground, upright).convert(_MODES[channels])
    if image.size != (columns, rows):
        sizes = f"{image.width}x{image.height} to {columns}x{rows} pixels"
        print(f"client.py: {path} is resized from {sizes}", file=sys.stderr)
    # Floats, so that they are rounded once, as in training.
    bands = [
        np.asarray(
            band.convert("F").resize((columns, rows), Image.Resampling.BILINEAR)
        )
        for band in image.split()
    ]
    return np.rint(np.stack(bands, axis=-1)[None]).astype(np.uint8)
