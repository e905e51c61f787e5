"""A user's own images: an `.npz` file, or a folder of class folders."""

import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from tfcaps.cli import UserError
from training import images as pixels
from training.datasets.data import Data, checked, hold_out
from training.datasets.prepared import TEST_SHARE

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


def folder(path: Path, size: int | None = None) -> Data:
    """Loads a folder of class folders.

    Args:
        path: The folder.
        size: Rows and columns that the images get, or `None` where they have
            one size.
    """
    folders = sorted(p for p in path.iterdir() if p.is_dir())
    if len(folders) < 2:
        raise UserError(
            f"{path} must have at least two folders, one of images for each "
            f"class; it has {len(folders)}."
        )
    images, labels = [], []
    for label, class_folder in enumerate(folders):
        files = pixels.files_in(class_folder)
        if len(files) < 2:
            raise UserError(f"{class_folder} must have at least two images.")
        for file in files:
            image = pixels.read(file)
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
    if len({image.shape[2] for image in images}) > 1:  # grey ones among them
        images = [np.broadcast_to(i, (*i.shape[:2], 3)) for i in images]
    train, test = hold_out(np.stack(images), np.array(labels), TEST_SHARE)
    return checked(path.name, train, test, [p.name for p in folders])
