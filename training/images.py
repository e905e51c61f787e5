"""Reads, resizes and cuts images."""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from tfcaps.cli import UserError

Array = NDArray[Any]
_CHUNK = 64  # images that are resized at a time
# What Pillow raises for files that are no images, or broken ones.
_UNREADABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError)
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def files_in(folder: Path) -> list[Path]:
    """Returns the image files of a folder, in the order of their names."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in _SUFFIXES)


def read(path: Path, mode: str | None = None) -> Array:
    """Reads a file as `[h, w]` if it is grey, else as `[h, w, 3]`.

    What is transparent becomes white; a camera's picture stands upright; of an
    animation it is the first image.

    Args:
        path: The file.
        mode: `"L"` or `"RGB"` instead of what the file is.

    Raises:
        UserError: If it cannot be read, or has more than 8 bits per channel.
    """
    try:
        # Pillow warns of large images; of very large ones it raises.
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                if image.mode.startswith(("I", "F")):
                    raise UserError(
                        f"{path} has more than 8 bits per channel, which would "
                        "be cut off; save it with 8."
                    )
                # Cameras store how they were held, and not what was up.
                image = ImageOps.exif_transpose(image)
                if image.has_transparency_data:
                    image = _on_white(image)
                own = "L" if image.mode in ("1", "L") else "RGB"
                return np.asarray(image.convert(mode or own))
    except (
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise UserError(f"{path} has too many pixels: {error}") from error
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except _UNREADABLE as error:
        raise UserError(f"{path} is not a readable image.") from error


def _on_white(image: Image.Image) -> Image.Image:
    """Returns an image without transparency; what showed through is white."""
    layer = image.convert("RGBA")
    ground = Image.new("RGBA", layer.size, "white")
    opaque = Image.alpha_composite(ground, layer)
    return opaque.convert("L" if image.mode == "LA" else "RGB")


def resize(images: Array, size: int | tuple[int, int]) -> Array:
    """Returns images `[n, h, w, c]` in another size, bilinear.

    The whole image is kept; where it becomes smaller, all the pixels that fall
    together are averaged, as by Pillow.

    Args:
        images: uint8, or float in [0, 1].
        size: Rows and columns, or both in one number.
    """
    count, height, width, channels = images.shape
    sides = (size, size) if isinstance(size, int) else size
    if (height, width) == sides:
        return images
    rows, columns = _weights(height, sides[0]), _weights(width, sides[1])
    whole = images.dtype == np.uint8
    resized = np.empty(
        (count, *sides, channels), np.uint8 if whole else np.float32
    )
    for start in range(0, count, _CHUNK):
        chunk = images[start : start + _CHUNK].astype(np.float32)
        lines = rows @ chunk.reshape(-1, height, width * channels)
        # Weights need not add up to 1 exactly.
        new = columns @ lines.reshape(-1, sides[0], width, channels)
        new = np.rint(new) if whole else np.minimum(new, 1.0)
        resized[start : start + _CHUNK] = new
    return resized


@functools.lru_cache
def _weights(old: int, new: int) -> NDArray[np.float32]:
    """Returns what each old pixel gives to each new one, `[new, old]`."""
    each = Image.fromarray(np.eye(old, dtype=np.float32))
    return np.asarray(each.resize((old, new), Image.Resampling.BILINEAR))


def centre_crop(images: Array, size: int) -> Array:
    """Returns the middle of images `[n, h, w, c]` as `[n, size, size, c]`."""
    top, left = ((side - size) // 2 for side in images.shape[1:3])
    return images[:, top : top + size, left : left + size]


def centred(images: Array, size: int) -> Array:
    """Returns images `[n, h, w, c]` in the middle of `size` rows and columns.

    What is around them is 0.
    """
    margins = [divmod(size - side, 2) for side in images.shape[1:3]]
    sides = [(half, half + rest) for half, rest in margins]
    return np.pad(images, [(0, 0), *sides, (0, 0)])


def channel_statistics(
    images: Array,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and standard deviation of each channel, as in [0, 1]."""
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    # A channel at a time: float64 of a whole data set would be large.
    channels = [images[..., c] / scale for c in range(images.shape[3])]
    means = tuple(float(channel.mean()) for channel in channels)
    return means, tuple(float(channel.std()) for channel in channels)


def size(image: Array) -> str:
    """Returns the shape of an image in words."""
    return "x".join(str(side) for side in image.shape)
