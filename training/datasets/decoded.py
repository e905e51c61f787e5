"""Decodes pictures into one array, in memory or, if it is large, on disk.

What is on disk is used again by the next run, as long as the pictures are the
same. It may be deleted whenever no run uses it.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cli import UserError
from tfcaps.files import write_atomically
from training import images as pixels
from training.datasets.data import Arrays
from training.datasets.listing import Listing, Picture
from training.image_data import Array
from training.progress import progress

LARGEST_IN_MEMORY = 512 * 2**20  # bytes
_VERSION = 1  # of what this module makes of the same pictures
_FEWEST_SHOWN = 1000  # pictures whose reading has a progress bar


@dataclasses.dataclass(frozen=True)
class Decoded:
    """Pictures, those for training, validation and testing in turn.

    Attributes:
        images: `[n, h, w, c]`, uint8.
        labels: Class indices `[n]`.
        counts: How many are for training, validation and testing.
        left_out: A sentence for each file that is not among them.
    """

    images: Array
    labels: Array
    counts: tuple[int, ...]
    left_out: tuple[str, ...]

    def parts(self) -> list[Arrays]:
        """Returns those for training, validation and testing, not copied."""
        ends = np.cumsum(self.counts)[:-1]
        images, labels = (
            np.split(self.images, ends),
            np.split(self.labels, ends),
        )
        return list(zip(images, labels, strict=True))

    def save(self, path: Path) -> None:
        """Writes what `load` needs besides images that are on disk."""
        if not isinstance(self.images, np.memmap):
            return
        content = {
            "shape": self.images.shape,
            "labels": self.labels.tolist(),
            "counts": self.counts,
            "left_out": self.left_out,
        }
        with write_atomically(path.with_suffix(".json"), "w") as file:
            json.dump(content, file)


def load(path: Path) -> Decoded | None:
    """Returns what an earlier run left, or `None`."""
    try:
        content = json.loads(path.with_suffix(".json").read_text("utf-8"))
        images = _on_disk(path, content["shape"])
    except (OSError, ValueError):
        return None
    print(f"decoded   {len(images):,} pictures are read from {path}")
    return Decoded(
        images,
        np.array(content["labels"], np.int64),
        tuple(content["counts"]),
        tuple(content["left_out"]),
    )


def path_of(listing: Listing, settings: Mapping[str, Any]) -> Path:
    """Returns where the decoded pictures are, if they are on disk.

    The name changes with the settings, and with name, size and time of every
    file.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([_VERSION, settings]).encode())
    for picture in listing.pictures:
        try:
            status = picture.file.stat()
            found = [status.st_size, status.st_mtime_ns]
        except OSError:
            found = []
        file = os.path.abspath(picture.file)
        row = [file, picture.label, picture.part, *found]
        digest.update(json.dumps(row).encode())
    return _folder() / f"{digest.hexdigest()}.images"


def _folder() -> Path:
    if own := os.environ.get("TFCAPS_CACHE"):
        return Path(own)
    general = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(general) / "tfcaps" / "pictures"


def decode(
    pictures: Sequence[Picture], path: Path, size: int | None, *, skip: bool
) -> tuple[Array, dict[Picture, str]]:
    """Decodes pictures one after another.

    Args:
        pictures: The pictures.
        path: File for the array, if it is large.
        size: Rows and columns that they get, or `None` where they have one
            size.
        skip: Leave out files that cannot be read, instead of an error.

    Returns:
        Images `[n, h, w, c]`, with one channel if all are grey; and a sentence
        for each picture that is not among them.
    """
    broken: dict[Picture, str] = {}
    images = _good(pictures, size, broken if skip else None)
    first = next(images, None)
    if first is None:
        return np.empty((0, 1, 1, 1), np.uint8), broken
    images = itertools.chain([first], images)
    most = len(pictures) * first.nbytes
    if most <= LARGEST_IN_MEMORY:
        array = np.empty((len(pictures), *first.shape), np.uint8)
        for image, row in zip(images, array, strict=False):
            row[...] = image
    else:
        _make_room(path, most)
        with write_atomically(path) as file:
            file.writelines(image.tobytes() for image in images)
        count = len(pictures) - len(broken)
        array = _on_disk(path, (count, *first.shape))
    return array[: len(pictures) - len(broken)], broken


def _good(
    pictures: Sequence[Picture],
    size: int | None,
    broken: dict[Picture, str] | None,
) -> Iterator[Array]:
    """Yields images `[h, w, c]`, and notes those that cannot be read."""
    headers = map(pixels.header, (picture.file for picture in pictures))
    grey = all(header.is_grey for header in headers if header is not None)
    first, shape = None, ""
    for picture in _shown(pictures):
        try:
            image = pixels.read(picture.file, "L" if grey else "RGB", size)
        except UserError as error:
            text = f"{picture.where}: {error}" if picture.where else str(error)
            if broken is None:
                raise UserError(
                    f"{text} To leave such files out, add --skip-broken."
                ) from error
            broken[picture] = text
            continue
        if first is None:
            first, shape = picture, pixels.size(image)
        elif pixels.size(image) != shape:
            raise UserError(
                f"all images must have one size: {picture} is "
                f"{pixels.size(image)}, {first} is {shape}. Choose a size by "
                "--resize."
            )
        yield image.reshape(*image.shape[:2], -1)


def _shown(pictures: Sequence[Picture]) -> Iterator[Picture]:
    """Yields pictures, under a progress bar if they are many."""
    if len(pictures) < _FEWEST_SHOWN:
        yield from pictures
        return
    import keras

    bar = keras.utils.Progbar(
        len(pictures), verbose=progress(), unit_name="picture"
    )
    for picture in pictures:
        yield picture
        bar.add(1)


def _make_room(path: Path, size: int) -> None:
    """Makes the folder of the file, and checks the space on its disk."""
    advice = "Name another folder by the environment variable TFCAPS_CACHE."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise UserError(
            f"the folder for decoded pictures cannot be made: {error}. {advice}"
        ) from error
    if free < size:
        raise UserError(
            f"decoded pictures need {size / 2**30:.1f} GiB in {path.parent}; "
            f"{free / 2**30:.1f} are free. {advice}"
        )
    print(f"decoded   pictures are kept in {path}, {size / 2**30:.1f} GiB")


def _on_disk(path: Path, shape: Sequence[int]) -> Array:
    return np.memmap(path, np.uint8, "r", shape=tuple(shape))
