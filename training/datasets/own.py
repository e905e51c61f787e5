"""A user's own images: an `.npz` file, or a folder of class folders."""

import contextlib
import dataclasses
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from PIL import Image

from tfcaps.cli import UserError
from training import images as pixels
from training.datasets.data import Data, checked, hold_out
from training.datasets.prepared import TEST_SHARE

# What Pillow raises of a file whose header is none of an image.
_NO_HEADER = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
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


@dataclasses.dataclass(frozen=True)
class Survey:
    """What the headers of a folder's images tell.

    Attributes:
        sizes: Width and height of each image that has a header.
        files: The images.
        labels: The class of each, from 0.
    """

    sizes: tuple[tuple[int, int], ...]
    files: tuple[Path, ...]
    labels: tuple[int, ...]

    @property
    def num_training(self) -> int:
        """About how many images are for training, validation among them."""
        return round((1.0 - TEST_SHARE) * len(self.sizes))

    @property
    def shorter_side(self) -> int:
        """The median over images of the shorter side, in pixels."""
        return int(np.median([min(size) for size in self.sizes]))

    @property
    def is_square(self) -> bool:
        """Whether all images have one size, as many rows as columns."""
        return len(set(self.sizes)) == len(set(self.sizes[0])) == 1


def survey(path: Path) -> Survey | None:
    """Reads the headers of a folder's images, or returns `None` without any.

    Nothing is refused here; `folder` does that.
    """
    found = []
    folders = sorted(p for p in path.iterdir() if p.is_dir())
    for label, class_folder in enumerate(folders):
        for file in pixels.files_in(class_folder):
            with contextlib.suppress(*_NO_HEADER), Image.open(file) as image:
                found.append((image.size, file, label))
    return Survey(*zip(*found, strict=True)) if found else None


def folder(
    path: Path, size: int | None = None, *, skip_broken: bool = False
) -> Data:
    """Loads a folder of class folders.

    Args:
        path: The folder.
        size: Rows and columns that the images get, or `None` where they have
            one size.
        skip_broken: Leave out files that cannot be read, see `Data.left_out`.
            Defaults to `False`, which refuses them.
    """
    folders = sorted(p for p in path.iterdir() if p.is_dir())
    if len(folders) < 2:
        raise UserError(
            f"{path} must have at least two folders, one of images for each "
            f"class; it has {len(folders)}."
        )
    images, labels, left_out = [], [], []
    for label, class_folder in enumerate(folders):
        files = pixels.files_in(class_folder)
        for file in files:
            try:
                image = pixels.read(file)
            except UserError as error:
                if not skip_broken:
                    raise UserError(
                        f"{error} To leave such files out, add --skip-broken."
                    ) from error
                left_out.append(str(error))
                continue
            if size is not None:
                whole = image.reshape(1, *image.shape[:2], -1)
                image = pixels.resize(whole, size)[0]
            if images and image.shape[:2] != images[0].shape[:2]:
                raise UserError(
                    "all images must have one size: "
                    f"{file} is {pixels.size(image)}, those before are "
                    f"{pixels.size(images[0])}. Choose a size by --resize."
                )
            images.append(image.reshape(*image.shape[:2], -1))
            labels.append(label)
        if labels.count(label) < 2:
            raise UserError(f"{class_folder} must have at least two images.")
    if len({image.shape[2] for image in images}) > 1:  # grey ones among them
        images = [np.broadcast_to(i, (*i.shape[:2], 3)) for i in images]
    train, test = hold_out(np.stack(images), np.array(labels), TEST_SHARE)
    data = checked(path.name, train, test, [p.name for p in folders])
    return dataclasses.replace(data, left_out=tuple(left_out))
