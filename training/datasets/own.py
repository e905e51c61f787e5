"""A user's own images: an `.npz` file, a folder of class folders, or a CSV."""

import dataclasses
import itertools
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from cli import UserError
from training import images as pixels
from training.datasets import listing
from training.datasets.data import Data, checked, held_out
from training.datasets.listing import PARTS, Listing, Picture
from training.datasets.prepared import TEST_SHARE
from training.image_data import Array, Images, Split
from training.progress import progress

LARGEST_IN_MEMORY = 512 * 2**20  # bytes of all pictures
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_FEWEST_SHOWN = 1000  # pictures whose reading has a progress bar


def npz(path: Path) -> Data:
    """Loads arrays of a file."""
    try:
        # Opened here, because numpy leaves a broken file open.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            names = getattr(arrays, "files", [])
            if not set(_ARRAYS) <= set(names):
                raise UserError(
                    f"{path} must have the arrays {', '.join(_ARRAYS)}; "
                    f"it has {', '.join(names) or 'none'}."
                )
            parts = [arrays[name] for name in _ARRAYS]
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except MemoryError as error:
        raise UserError(
            f"{path} says that its arrays need more memory than there is: "
            f"{error}."
        ) from error
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}.") from (
            error
        )
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise UserError(f"{path} has members that are no arrays.")
    x_train, y_train, x_test, y_test = parts
    return checked(path.stem, (x_train, y_train), (x_test, y_test), None)


@dataclasses.dataclass(frozen=True)
class Survey:
    """What the headers of pictures tell.

    Attributes:
        sizes: Width and height of each picture that has a header.
        pictures: These pictures.
        training: Those for training and validation, unless the same picture
            comes several times.
    """

    sizes: tuple[tuple[int, int], ...]
    pictures: tuple[Picture, ...]
    training: tuple[Picture, ...]

    @property
    def shorter_side(self) -> int:
        """The median over images of the shorter side, in pixels."""
        return int(np.median([min(size) for size in self.sizes]))

    @property
    def is_square(self) -> bool:
        """Whether all images have one size, as many rows as columns."""
        return len(set(self.sizes)) == len(set(self.sizes[0])) == 1


def survey(path: Path) -> Survey | None:
    """Reads the headers of pictures, or returns `None` without any.

    Of a folder nothing is refused here; `pictures` does that.
    """
    if not listing.is_listed(path):
        return None
    found = listing.of(path)
    headers = {p: pixels.header(p.file) for p in found.pictures}
    sizes = {p: h.size for p, h in headers.items() if h is not None}
    if not sizes:
        return None
    test = {found.pictures[k] for k in _split(found, validation=0.0)[-1]}
    training = tuple(p for p in sizes if p not in test)
    return Survey(tuple(sizes.values()), tuple(sizes), training)


def pictures(
    path: Path,
    size: int | None,
    validation: float,
    *,
    skip_broken: bool = False,
) -> Data:
    """Loads the pictures of a folder of class folders, or of a CSV file.

    Where there are many, they are on disk, and not in memory.

    Args:
        path: The folder or file.
        size: Rows and columns that the images get, or `None` where they have
            one size.
        validation: Share of the training images that is held out.
        skip_broken: Leave out files that cannot be read, see `Data.left_out`.
            Defaults to `False`, which refuses them.
    """
    found = listing.of(path)
    found.check()
    found = found.unique(skip_broken=skip_broken)
    lost = True
    while lost:
        found.check()
        rows = _split(found, validation)
        order = [found.pictures[k] for k in np.concatenate(rows)]
        images, broken = _decode(order, size, skip=skip_broken)
        labels = found.labels()
        good = np.array([p not in broken for p in found.pictures])
        left = [part[good[part]] for part in rows]
        found = found.without(broken)
        # A class may have lost all its pictures of a part: split without those.
        lost = any(
            set(labels[part]) != set(labels[whole])
            for part, whole in zip(left, rows, strict=True)
        )
    ends = np.cumsum([len(part) for part in left])[:-1]
    train, held, test = np.split(images, ends)
    known, validated, tested = (labels[part] for part in left)
    name = path.name if path.is_dir() else path.stem
    names = list(found.class_names)
    return dataclasses.replace(
        checked(name, (train, known), (test, tested), names),
        validation=Split(Images(held), validated),
        left_out=found.left_out,
    )


def _split(found: Listing, validation: float) -> list[Array]:
    """Returns which pictures are for training, validation and testing.

    What the list does not say is drawn, of each class the same share.
    """
    labels = found.labels()
    given = np.array([picture.part for picture in found.pictures])
    rows = {part: np.flatnonzero(given == part) for part in PARTS}
    for part, share in (("test", TEST_SHARE), ("validation", validation)):
        if not len(rows[part]) and share:
            train = rows["train"]
            left, held = held_out(labels[train], share)
            rows["train"], rows[part] = train[left], train[held]
    return [rows[part] for part in PARTS]


def _decode(
    order: Sequence[Picture], size: int | None, *, skip: bool
) -> tuple[Array, dict[Picture, str]]:
    """Decodes pictures one after another, into memory or a temporary file.

    Args:
        order: The pictures.
        size: Rows and columns that they get, or `None` where they have one
            size.
        skip: Leave out files that cannot be read, instead of an error.

    Returns:
        Images `[n, h, w, c]`, with one channel if all are grey; and a sentence
        for each picture that is not among them.
    """
    broken: dict[Picture, str] = {}
    images = _good(order, size, broken if skip else None)
    first = next(images, None)
    if first is None:
        return np.empty((0, 1, 1, 1), np.uint8), broken
    images = itertools.chain([first], images)
    whole = len(order) * first.nbytes
    if whole <= LARGEST_IN_MEMORY:
        array = np.empty((len(order), *first.shape), np.uint8)
        for image, row in zip(images, array, strict=False):
            row[...] = image
        return array[: len(order) - len(broken)], broken
    try:
        with tempfile.TemporaryFile() as file:
            file.writelines(image.tobytes() for image in images)
            file.flush()
            shape = (len(order) - len(broken), *first.shape)
            return np.memmap(file, np.uint8, "r", shape=shape), broken
    except OSError as error:
        raise UserError(
            f"decoded pictures need {whole / 2**30:.1f} GiB in "
            f"{tempfile.gettempdir()}: {error}. Name another folder by the "
            "environment variable TMPDIR."
        ) from error


def _good(
    order: Sequence[Picture],
    size: int | None,
    broken: dict[Picture, str] | None,
) -> Iterator[Array]:
    """Yields images `[h, w, c]`, and notes those that cannot be read."""
    import keras

    shown = progress() if len(order) >= _FEWEST_SHOWN else 0
    bar = keras.utils.Progbar(len(order), verbose=shown, unit_name="picture")
    headers = [pixels.header(picture.file) for picture in order]
    grey = all(header.is_grey for header in headers if header is not None)
    first, shape = None, ""
    for picture in order:
        bar.add(1)
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
