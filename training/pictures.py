"""Picture files: which there are in a folder, and how they are read."""

import contextlib
import warnings
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from cli import UserError
from training.images import BILINEAR

# What Pillow raises for files that are no images, or broken ones.
_UNREADABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError)
_TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)
SUFFIXES = tuple(".png .jpg .jpeg .jfif .bmp .gif .webp .tif .tiff".split())
# Pictures, as their names say, that are not read: of phones, cameras, editors.
_OTHERS = frozenset(
    ".heic .heics .heif .heifs .hif .avif .avifs .jxl .jxr .wdp .jp2 .j2k "
    ".jpf .jpx .jpe .raw .dng .3fr .arw .cr2 .cr3 .crw .dcr .erf .iiq .kdc "
    ".mef .mos .mrw .nef .nrw .orf .pef .raf .rw2 .rwl .sr2 .srf .srw .x3f "
    ".btf .tf2 .tf8 .psd .psb .svg .svgz .eps .ai .xcf .tga .pcx .ppm .pgm "
    ".pbm .pnm .ico .icns .hdr .exr .dds .apng .dib".split()
)
_CONVERT = "save such pictures as PNG or JPEG"
_DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # grey, as Pillow names them
_GREY = ("1", "L", "LA", "La", *_DEEP)


class Header(NamedTuple):
    """What a file says of its image."""

    size: tuple[int, int]  # width and height, before it is turned upright
    is_grey: bool


def files_in(folder: Path) -> list[Path]:
    """Returns the picture files of a folder, not hidden, in order of names."""
    return _with_suffix(folder, SUFFIXES)


def unread_in(*folders: Path) -> str | None:
    """Says which pictures in folders are of kinds that are not read, if any."""
    files = [f for folder in folders for f in _with_suffix(folder, _OTHERS)]
    if not files:
        return None
    kinds = ", ".join(sorted({file.suffix.lower() for file in files}))
    which = f"{files[0]} is"
    if len(files) > 1:
        which = f"{len(files):,} files ({kinds}), such as {files[0]}, are"
    return f"{which} not read; {_CONVERT}."


def _with_suffix(folder: Path, suffixes: Container[str]) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and path.name[0] != "."
    )


def header(path: Path) -> Header | None:
    """Returns what a file says of its image, or `None` if it is not one."""
    try:
        with _opened(path) as image:
            return Header(image.size, image.mode in _GREY)
    except _UNREADABLE + _TOO_LARGE:
        return None


def read(
    path: Path, mode: str | None = None, size: int | None = None
) -> NDArray[np.uint8]:
    """Reads a file as `[h, w]` if it is grey, else as `[h, w, 3]`.

    What is transparent becomes white; a camera's picture stands upright; of an
    animation it is the first image; 16 bits of grey become 8.

    With a mode, `"L"` or `"RGB"`, it is that; with a size it gets so many rows
    and columns, for which a large JPEG is not decoded finer than it takes.
    """
    try:
        with _opened(path) as image:
            if size and (coarse := image.draft(None, (2 * size, 2 * size))):
                # The last pixels may stand for less than the others.
                image = image.resize((size, size), BILINEAR, box=coarse[1])
            # Cameras store how they were held, and not what was up.
            image = ImageOps.exif_transpose(image)
            own = "L" if image.mode in _GREY else "RGB"
            image = _in_8_bits(image, path)
            if image.has_transparency_data:
                layer = image.convert("RGBA")
                white = Image.new("RGBA", layer.size, "white")
                image = Image.alpha_composite(white, layer)
            image = image.convert(own).convert(mode or own)
            if size is not None:
                image = image.resize((size, size), BILINEAR)
            return np.asarray(image)
    except _TOO_LARGE as error:
        raise UserError(f"{path} has too many pixels: {error}") from error
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except _UNREADABLE as error:
        kind = f"; {_CONVERT}" * (path.suffix.lower() in _OTHERS)
        raise UserError(f"{path} is not a readable image{kind}.") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    with warnings.catch_warnings():
        # Of broken notes beside the pixels, which do no harm.
        warnings.simplefilter("ignore", UserWarning)
        # Pillow warns of large images; of very large ones it raises.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        # A path would be mapped, where Pillow 13 scrambles a TIFF of a camera
        # that was held sideways.
        with open(path, "rb") as file, Image.open(file) as image:
            yield image


def _in_8_bits(image: Image.Image, path: Path) -> Image.Image:
    """Returns an image whose channels have 8 bits; 65,535 becomes 255."""
    if image.mode in _DEEP:
        values = np.asarray(image).astype(np.int64)
        if values.min() >= 0 and values.max() < 2**16:
            return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    elif image.mode != "F":
        return image
    raise UserError(
        f"{path} has more than 16 bits per channel, or floats; save it with "
        "8 or 16 bits."
    )
