"""A user's own images: an `.npz` file, or a folder of class folders."""

import collections
import contextlib
import dataclasses
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cli import UserError, progress
from training import pictures
from training.datasets import keypoint_photos
from training.datasets.data import Data, checked, held_out
from training.datasets.npz import missing, opened
from training.datasets.prepared import TEST_SHARE
from training.images import Array, Images, Split, size_text
from training.names import as_text

PARTS = ("train", "validation", "test")
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_FEWEST_SHOWN = 1000  # pictures whose reading has a progress bar


def npz(path: Path) -> Data:
    """Loads arrays of a file."""
    with opened(path) as arrays:
        names = getattr(arrays, "files", [])
        if "jpeg" in names:
            return _of_photos(path.stem, keypoint_photos.read(path, arrays))
        if missing(arrays, _ARRAYS):
            raise UserError(
                f"{path} must have the arrays {', '.join(_ARRAYS)}; "
                f"it has {', '.join(names) or 'none'}."
            )
        x_train, y_train, x_test, y_test = (arrays[n] for n in _ARRAYS)
    return checked(path.stem, (x_train, y_train), (x_test, y_test), None)


def _of_photos(name: str, photos: keypoint_photos.KeypointPhotos) -> Data:
    """Returns photos and classes, without what is to measure by."""
    train, test = [
        (photos.images[rows], photos.labels[rows])
        for rows in (photos.is_train, ~photos.is_train)
    ]
    return checked(name, train, test, photos.class_names)


# ----------------------------------------------------- which pictures there are


class Picture(NamedTuple):
    """A file and its class."""

    file: Path
    label: str
    part: str = "train"  # one of `PARTS`


class Listing(NamedTuple):
    """Pictures, and what was left out."""

    folder: Path
    pictures: tuple[Picture, ...]
    class_names: tuple[str, ...]  # also those without pictures
    left_out: tuple[str, ...] = ()  # a sentence for each file

    def labels(self) -> Array:
        """Returns the class index of each picture."""
        numbers = {name: k for k, name in enumerate(self.class_names)}
        return np.array([numbers[p.label] for p in self.pictures], np.int64)

    def without(self, sentences: Mapping[Picture, str]) -> "Listing":
        """Returns the listing without some pictures, and why."""
        kept = tuple(p for p in self.pictures if p not in sentences)
        reasons = [sentences[p] for p in self.pictures if p in sentences]
        left_out = (*self.left_out, *dict.fromkeys(reasons))
        return self._replace(pictures=kept, left_out=left_out)

    def split(self, validation: float) -> list[Array]:
        """Returns which are for training, validation and testing.

        What the list does not say is drawn, of each class the same share.
        """
        labels = self.labels()
        given = np.array([picture.part for picture in self.pictures])
        rows = {part: np.flatnonzero(given == part) for part in PARTS}
        for part, share in (("test", TEST_SHARE), ("validation", validation)):
            if not len(rows[part]) and share:
                train = rows["train"]
                left, held = held_out(labels[train], share)
                rows["train"], rows[part] = train[left], train[held]
        return [rows[part] for part in PARTS]


def list_pictures(path: Path) -> Listing:
    """Lists the pictures of a folder of class folders."""
    folders = [f for f in sorted(path.iterdir()) if f.is_dir() and _shows(f)]
    listed: tuple[Picture, ...] = ()
    left_out = [pictures.unread_in(f) for f in (path, *folders)]
    for folder in folders:
        files = pictures.files_in(folder)
        listed += tuple(Picture(f, as_text(folder.name)) for f in files)
        for deeper, inside, _ in os.walk(folder):
            inside[:] = sorted(name for name in inside if _shows(Path(name)))
            files = pictures.files_in(Path(deeper))
            if files and files[0].parent != folder:
                left_out.append(
                    f"{files[0]} and what else is in {deeper}: pictures must "
                    f"stand in {folder} itself."
                )
    names = sorted({as_text(folder.name) for folder in folders})
    return Listing(path, listed, tuple(names), tuple(filter(None, left_out)))


def _shows(folder: Path) -> bool:
    # The second is what macOS puts into archives, shadows of pictures.
    return folder.name[0] != "." and folder.name != "__MACOSX"


def _check(listing: Listing) -> None:
    """Raises `UserError` if there are too few classes or pictures."""
    if len(listing.class_names) < 2:
        raise UserError(
            f"{listing.folder} must have at least two folders, one of images "
            f"for each class; it has {len(listing.class_names)}."
        )
    counts = collections.Counter(p.label for p in listing.pictures)
    for name in listing.class_names:
        if counts[name] < 2:
            place = listing.folder / name
            why = f" ({', '.join(pictures.SUFFIXES)})."
            if every := listing.left_out:
                about = [t for t in every if str(place) in t] or every
                why = f" besides those left out: {about[-1]}"
            raise UserError(
                f"{place} must have at least two images; it has "
                f"{counts[name]}{why}"
            )


def _unique(listing: Listing, *, skip_broken: bool) -> Listing:
    """Returns the listing with each picture once, by the bytes of its file.

    The second of a class would stand in training and test images.
    """
    by_bytes = collections.defaultdict(list)
    for picture in listing.pictures:
        with contextlib.suppress(OSError):
            digest = hashlib.blake2b(picture.file.read_bytes()).digest()
            by_bytes[digest].append(picture)
    sentences: dict[Picture, str] = {}
    for first, *copies in by_bytes.values():
        if not copies or pictures.header(first.file) is None:
            continue
        others = [p for p in copies if p.label != first.label]
        if not others:
            same = f"is the same picture as {first.file}."
            sentences |= {copy: f"{copy.file} {same}" for copy in copies}
            continue
        text = (
            f"{first.file} and {others[0].file} are the same picture in two "
            f"classes, {first.label!r} and {others[0].label!r}. A picture has "
            "one class; several labels for one are not supported."
        )
        if not skip_broken:
            raise UserError(f"{text} Leave one out, or both by --skip-broken.")
        sentences |= dict.fromkeys((first, *copies), text)
    return listing.without(sentences)


# -------------------------------------------------------------- what they show


class Survey(NamedTuple):
    """What the headers of pictures tell; of one that comes twice, both count.

    Attributes:
        sizes: Width and height of each, `[n, 2]`.
        counts: How many each class has.
        training: How many are for training and validation.
    """

    sizes: Array
    counts: Array
    training: int

    def steps(self, balanced: bool, batch_size: int) -> int:
        """Returns about how many steps an epoch has.

        Balanced, a rare class is seen as often as the most frequent one.
        """
        most = len(self.counts) * self.counts.max()
        repeats = most / self.counts.sum() if balanced else 1.0
        return math.ceil(self.training * repeats / batch_size)


def survey(path: Path) -> Survey | None:
    """Reads the headers of pictures, or returns `None` without any.

    Of a folder nothing is refused here; `load` does that.
    """
    if not path.is_dir():
        return None
    listing = list_pictures(path)
    headers = {p: pictures.header(p.file) for p in listing.pictures}
    listing = listing.without({p: "" for p, h in headers.items() if h is None})
    if not listing.pictures:
        return None
    sizes = [h.size for h in headers.values() if h is not None]
    _, counts = np.unique(listing.labels(), return_counts=True)
    *training, _ = listing.split(validation=0.0)
    return Survey(np.array(sizes), counts, sum(map(len, training)))


def load(
    path: Path, size: int | None, validation: float, *, skip_broken: bool
) -> Data:
    """Loads the pictures of a folder of class folders.

    They get `size` rows and columns, unless they have one size. Files that
    cannot be read may be left out, see `Data.left_out`.
    """
    listing = list_pictures(path)
    _check(listing)
    listing = _unique(listing, skip_broken=skip_broken)
    name = as_text(path.name if path.is_dir() else path.stem)
    return read(listing, name, size, validation, skip_broken=skip_broken)


def read(
    listing: Listing,
    name: str,
    size: int | None,
    validation: float,
    *,
    skip_broken: bool = False,
) -> Data:
    """Reads the pictures of a listing, see `load`."""
    _check(listing)
    images, broken = _decode(listing.pictures, size, skip=skip_broken)
    listing = listing.without(broken)
    _check(listing)
    labels = listing.labels()
    train, held, test = (
        (images[rows], labels[rows]) for rows in listing.split(validation)
    )
    return dataclasses.replace(
        checked(name, train, test, listing.class_names),
        validation=Split(Images(held[0]), held[1]),
        left_out=listing.left_out,
    )


def _decode(
    listed: Sequence[Picture], size: int | None, *, skip: bool
) -> tuple[Array, dict[Picture, str]]:
    """Decodes pictures to `[n, h, w, c]`, with one channel if all are grey.

    With a sentence for each picture that is not among them.
    """
    import keras

    headers = [pictures.header(picture.file) for picture in listed]
    grey = all(header.is_grey for header in headers if header is not None)
    broken: dict[Picture, str] = {}
    images: list[Array] = []
    shown = progress() if len(listed) >= _FEWEST_SHOWN else 0
    bar = keras.utils.Progbar(len(listed), verbose=shown)
    for picture in listed:
        bar.add(1)
        try:
            image = pictures.read(picture.file, "L" if grey else "RGB", size)
        except UserError as error:
            broken[picture] = str(error)
            if not skip:
                raise UserError(
                    f"{broken[picture]} To leave such files out, add "
                    "--skip-broken."
                ) from error
            continue
        images.append(image.reshape(*image.shape[:2], -1))
        if images[-1].shape != images[0].shape:
            raise UserError(
                f"all images must have one size: {picture.file} is "
                f"{size_text(images[-1])}, others are "
                f"{size_text(images[0])}. Choose a size by --resize."
            )
    return np.array(images, np.uint8), broken
