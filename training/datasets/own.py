"""A user's own images: an `.npz` file, a folder of class folders, or a CSV."""

import dataclasses
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from cli import UserError
from training import images as pixels
from training.datasets import decoded, labels_csv, listing
from training.datasets.data import Data, checked, held_out
from training.datasets.decoded import Decoded
from training.datasets.listing import PARTS, Listing, Picture
from training.datasets.prepared import TEST_SHARE
from training.image_data import Array, Images, Split

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


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
            x_train, y_train, x_test, y_test = (arrays[n] for n in _ARRAYS)
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
    parts = (x_train, y_train, x_test, y_test)
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise UserError(f"{path} has members that are no arrays.")
    return checked(path.stem, (x_train, y_train), (x_test, y_test), None)


def has_pictures(path: Path) -> bool:
    """Tells whether a path is what `pictures` reads."""
    return path.is_dir() or labels_csv.is_csv(path)


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
    if not has_pictures(path):
        return None
    listed = _listed(path)
    headers = {p: pixels.header(p.file) for p in listed.pictures}
    sizes = {p: h.size for p, h in headers.items() if h is not None}
    if not sizes:
        return None
    test = {listed.pictures[k] for k in _split(listed, validation=0.0)[-1]}
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
    found = _listed(path)
    found.check()
    kept = decoded.path_of(
        found,
        {"size": size, "validation": validation, "skip_broken": skip_broken},
    )
    read = decoded.load(kept) or _decode(
        found,
        kept,
        size=size,
        validation=validation,
        skip_broken=skip_broken,
    )
    train, held, test = read.parts()
    name = path.name if path.is_dir() else path.stem
    data = checked(name, train, test, list(found.class_names))
    images, labels = held
    return dataclasses.replace(
        data,
        validation=Split(Images(images), labels),
        left_out=read.left_out,
    )


def _listed(path: Path) -> Listing:
    if labels_csv.is_csv(path):
        return labels_csv.read(path)
    return listing.of(path)


def _decode(
    found: Listing,
    kept: Path,
    *,
    size: int | None,
    validation: float,
    skip_broken: bool,
) -> Decoded:
    """Decodes pictures, those for training, validation and testing in turn."""
    found = found.unique(skip_broken=skip_broken)
    while True:
        found.check()
        rows = _split(found, validation)
        order = [found.pictures[k] for k in np.concatenate(rows)]
        images, broken = decoded.decode(order, kept, size, skip=skip_broken)
        labels = found.labels()
        good = np.array([p not in broken for p in found.pictures])
        left = [part[good[part]] for part in rows]
        found = found.without(broken)
        if all(
            set(labels[part]) == set(labels[whole])
            for part, whole in zip(left, rows, strict=True)
        ):
            break
        # A class has lost all its pictures of a part: split without those.
    read = Decoded(
        images,
        labels[np.concatenate(left)],
        tuple(len(part) for part in left),
        found.left_out,
    )
    read.save(kept)
    return read


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
