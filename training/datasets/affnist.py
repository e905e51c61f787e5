"""Expanded MNIST for training, affine-transformed digits for testing.

Expanded MNIST has the digits of MNIST on 40x40 black pixels, moved by up to 6
to each side, so that none is cut. The images here have the digit in the middle;
`Batches` with a shift of 6 moves it.

As in the released code of the REM paper, all training digits are trained on,
and the test digits of MNIST, in the middle, are both the validation set and the
"expanded MNIST" of the tables (`others["expanded"]`).

Source: Tieleman, affNIST, 2013, www.cs.toronto.edu/~tijmen/affNIST.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from cli import UserError
from training.augmentation import warped
from training.datasets import prepared
from training.datasets.data import Arrays, Data, checked
from training.images import Array

_SIZE, _MARGIN = 40, 6  # pixels, and those around a digit of MNIST
# The ranges that affNIST draws from, each evenly.
_ROTATION = np.deg2rad(20.0)  # to both sides
_SHEAR = 0.2  # pixels to the side for a pixel up
_SCALES = (0.8, 1.2)  # drawn for rows and for columns
_SHIFT = 4.0  # pixels by which no digit leaves the image


def load(
    data_dir: str | None, validation: float, *, mnist: Data | None = None
) -> Data:
    """Loads affNIST's test set, with expanded MNIST for training."""
    path = Path(data_dir or ".") / "test.mat"
    if data_dir is None or not path.is_file():
        raise UserError(
            "affnist needs test.mat of the transformed digits (from "
            "www.cs.toronto.edu/~tijmen/affNIST) in the folder of --data-dir; "
            f"{data_dir or 'no folder'} is given. What tfcaps can make itself "
            "is affine_mnist."
        )
    images, labels = _read(path)
    if _is_transposed(images, labels):
        images = images.swapaxes(1, 2)
    known = mnist or _mnist(data_dir)
    return _data("affnist", known, (images, labels), validation)


def generate(
    data_dir: str | None, validation: float, *, mnist: Data | None = None
) -> Data:
    """Makes a test set in the manner of affNIST, which it is not."""
    known = mnist or _mnist(data_dir)
    images, labels = known.test.images.pixels, known.test.labels
    draw, count = np.random.default_rng(0), len(labels)
    angle = draw.uniform(-_ROTATION, _ROTATION, count)
    shear = draw.uniform(-_SHEAR, _SHEAR, count)
    down, right = draw.uniform(*_SCALES, (2, count))
    cosine, sine = np.cos(angle), np.sin(angle)
    turned = np.array([[cosine, -sine], [sine, cosine]])
    scaled = np.array([[down, 0.0 * down], [shear * down, right]])
    back = np.linalg.inv(np.einsum("ijn,jkn->nik", turned, scaled))
    places = draw.uniform(-_SHIFT, _SHIFT, (count, 2))
    offsets = np.einsum("nij,nj->ni", back, -places)
    test = warped(images, back, offsets, (_SIZE, _SIZE), "black")
    return _data("affine_mnist", known, (test, labels), validation)


def _mnist(data_dir: str | None) -> Data:
    # Not beside the original files: in the library's own folder.
    there = data_dir is not None and (Path(data_dir) / "mnist").is_dir()
    return prepared.load("mnist", data_dir if there else None)


def _data(name: str, mnist: Data, test: Arrays, validation: float) -> Data:
    margins = ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN), (0, 0))
    train, expanded = (
        (np.pad(images.pixels, margins), labels)
        for images, labels in (mnist.train, mnist.test)
    )
    others = {"expanded": expanded}
    data = checked(name, train, test, mnist.class_names, others)
    if not validation:
        return data
    return dataclasses.replace(data, validation=data.others["expanded"])


def _read(path: Path) -> Arrays:
    """Reads images `[n, 40, 40, 1]` and labels `[n]` of a MATLAB file."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        struct: Any = loadmat(path, squeeze_me=True)["affNISTdata"]
        images = struct["image"].item().T.reshape(-1, _SIZE, _SIZE, 1)
        labels = np.asarray(struct["label_int"].item()).reshape(len(images))
    except (
        LookupError,
        AttributeError,
        NotImplementedError,  # MATLAB 7.3
        OSError,
        TypeError,
        ValueError,
        MatReadError,
    ) as error:
        raise UserError(
            f"{path} is not a file of affNIST: it must have a struct "
            "affNISTdata with image [1600, n] and label_int [n]."
        ) from error
    return images, labels.astype(np.int64)


def _is_transposed(images: Array, labels: Array) -> bool:
    """Tells whether rows and columns are exchanged: ones are to be upright."""
    ones = images[labels == 1, ..., 0]
    return bool(ones.any(axis=2).sum() < ones.any(axis=1).sum())
