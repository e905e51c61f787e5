"""Data sets: one `load` for every source of images and labels.

`DESCRIPTIONS` are those with settings of their own, as `--list-datasets` prints
them. Besides them there are any name of TensorFlow Datasets, a file ending in
`.npz` with the arrays `x_train`, `y_train`, `x_test`, `y_test`, a folder with
one folder of images for each class, and a CSV file of images and labels, see
`labels_csv`.

`--data-dir` is where TensorFlow Datasets are prepared, or where the original
files of affNIST, smallNORB or Tiny ImageNet lie; the modules say which.
A folder of the current directory comes before a name of TensorFlow Datasets.
Of pictures that need much memory the decoded ones are kept on disk, see
`decoded`.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfcaps.cli import UserError
from training.datasets import (
    affnist,
    cluttered,
    digits,
    figures,
    multimnist,
    own,
    prepared,
    small_norb,
    tiny_imagenet,
)
from training.datasets.data import Data
from training.datasets.protocols import Protocol, protocol
from training.images import channel_statistics

__all__ = [
    "DESCRIPTIONS",
    "Data",
    "Protocol",
    "channel_statistics",
    "load",
    "protocol",
]

DESCRIPTIONS = {
    "digits": "scikit-learn's 8x8 digits, part of that package",
    "cluttered_digits": "the same, enlarged, among pieces of other digits",
    "figures": "arrangements of five parts among loose ones, made here",
    "mnist": "28x28 handwritten digits (TensorFlow Datasets)",
    "fashion_mnist": "28x28 clothes (TensorFlow Datasets)",
    "cifar10": "32x32 photos of ten kinds (TensorFlow Datasets)",
    "svhn_cropped": "32x32 house numbers (TensorFlow Datasets)",
    "cats_vs_dogs": "photos, resized to 128x128 (TensorFlow Datasets)",
    "imagenette": "photos of ten kinds, at 128x128 (TensorFlow Datasets)",
    "affnist": "shifted MNIST, tested on affNIST's distorted digits",
    "affine_mnist": "the same with a test set that is made here",
    "cluttered_mnist": "shifted MNIST among pieces of other digits",
    "multimnist": "two digits of MNIST on top of each other",
    "smallnorb": "toys seen by two cameras",
    "smallnorb-azimuth": "the same, tested on new azimuths",
    "smallnorb-elevation": "the same, tested on new elevations",
    "tiny_imagenet": "200 classes of photos",
}

_OF_MNIST: dict[str, Callable[..., Data]] = {
    "affnist": affnist.load,
    "affine_mnist": affnist.generate,
    "cluttered_mnist": cluttered.mnist,
    "multimnist": multimnist.generate,
}
_MADE: dict[str, Callable[..., Data]] = {
    "figures": figures.generate,
    "cluttered_digits": cluttered.digits,
}
_NAMED: dict[str, Callable[..., Data]] = {
    "digits": digits.load,
    "smallnorb": functools.partial(small_norb.load, None),
    "smallnorb-azimuth": functools.partial(small_norb.load, "azimuth"),
    "smallnorb-elevation": functools.partial(small_norb.load, "elevation"),
    "tiny_imagenet": tiny_imagenet.load,
}


def load(
    name: str,
    data_dir: str | None = None,
    validation: float = 0.1,
    *,
    resize: int | None = None,
    crop: int | None = None,
    skip_broken: bool = False,
    **options: Any,
) -> Data:
    """Loads a data set.

    Args:
        name: See the head of this module.
        data_dir: Folder of prepared TensorFlow Datasets, or of the original
            files. Without it TensorFlow Datasets are downloaded to the
            library's own folder.
        validation: Share of the training images that is held out, of each class
            the same, at every call the same; 0 for none.
        resize: Rows and columns that all images get, or `None` to keep theirs.
        crop: Rows and columns that are cut out of the middle of all but the
            training images, or `None`. Those are for `Batches` to cut.
        skip_broken: Leave out files of a folder that cannot be read.
        **options: `maps` for `affine_mnist`, `partners` and `shift` for
            `multimnist`, `train` and `test` for `figures`, `copies` for
            `cluttered_digits` and `cluttered_mnist`, see there.

    Raises:
        UserError: If there is no such data set or it is not usable.
    """
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir!r} is not a folder.")
    if not 0.0 <= validation < 1.0:
        raise UserError(
            "the share of training images held out for validation must be at "
            f"least 0 and less than 1; it is {validation}."
        )
    if name in _OF_MNIST:
        if name == "affnist":
            affnist.files(data_dir)  # or MNIST is downloaded for nothing
        mnist = prepared.load("mnist", _folder_of_mnist(data_dir))
        data = _OF_MNIST[name](mnist, data_dir, validation, **options)
    elif name in _MADE:
        data = _MADE[name](data_dir, validation, **options)
    elif options:
        raise TypeError(f"{name} has no options; received {options}.")
    elif name not in _NAMED and name and own.has_pictures(Path(name)):
        data = own.pictures(
            Path(name), resize, validation, skip_broken=skip_broken
        )
    else:
        data = _read(name, data_dir, resize)
        data = data.with_validation(validation)
    if resize is not None:
        data = data.resized(resize)
    if crop is None:
        return data
    if crop > min(data.image_shape[:2]):
        raise UserError(
            f"{name}: {crop} rows and columns cannot be cut out of images of "
            f"{data.image_shape[0]}x{data.image_shape[1]}."
        )
    return data.centre_cropped(crop)


def _read(name: str, data_dir: str | None, resize: int | None) -> Data:
    """Reads a source; `resize` is for images of different sizes."""
    if name in _NAMED:
        return _NAMED[name](data_dir)
    path = Path(name)
    if path.suffix == ".npz":
        return own.npz(path)
    if not name or path.exists() or name[0] in "/.~" or name[-1] == "/":
        raise UserError(
            f"data set {name!r} is neither a folder nor an .npz file."
        )
    return prepared.load(name, data_dir, resize)


def _folder_of_mnist(data_dir: str | None) -> str | None:
    """Returns the folder if MNIST is in it, or None for the library's own."""
    there = data_dir is not None and (Path(data_dir) / "mnist").is_dir()
    return data_dir if there else None
