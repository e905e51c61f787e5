"""smallNORB: toys seen by two cameras, and its splits by viewpoint.

The two views are the two channels of an image of 96x96 pixels. Trained on some
viewpoints, a network is tested on the others (`test`) and on the same ones
(`others["familiar"]`), both of toys that it has never seen.

Source: LeCun, Huang and Bottou, 2004. The splits: Hinton, Sabour and Frosst,
Matrix capsules with EM routing, 2018, section 5.1.
"""

import dataclasses
import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from cli import UserError
from training.datasets import prepared
from training.datasets.data import Arrays, Data, checked
from training.image_data import Array, Rows

_CLASS_NAMES = ["animal", "human", "airplane", "truck", "car"]
_FILES = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training-{}.mat",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing-{}.mat",
}
# The first four bytes of a file say what its numbers are.
_NUMBERS: dict[int, np.dtype[Any]] = {
    0x1E3D4C55: np.dtype("u1"),
    0x1E3D4C54: np.dtype("<i4"),
}
# Degrees that are trained on: a third of the images.
_TRAINED = {
    "azimuth": (300, 320, 340, 0, 20, 40),
    "elevation": (30, 35, 40),
}


@dataclasses.dataclass(frozen=True)
class _Split:
    """Images `[n, 96, 96, 2]`; class and viewpoint in degrees, each `[n]`."""

    images: Array
    labels: Array
    azimuth: Array
    elevation: Array

    def where(self, rows: Rows) -> Arrays:
        return self.images[rows], self.labels[rows]


def load(
    data_dir: str | None,
    validation: float = 0.0,
    *,
    viewpoint: str | None = None,
) -> Data:
    """Loads smallNORB.

    Args:
        data_dir: Folder with the six original files, packed or not, or of
            prepared TensorFlow Datasets.
        validation: Share of the training images that is held out.
        viewpoint: `"azimuth"` or `"elevation"` for a split by that, or `None`
            for all the images.

    Raises:
        UserError: If it is not there or not readable.
    """
    train, test = _read(data_dir)
    if viewpoint is None:
        every = slice(None)
        data = checked(
            "smallnorb", train.where(every), test.where(every), _CLASS_NAMES
        )
        return data.with_validation(validation)
    trained, familiar = (
        np.isin(getattr(split, viewpoint), _TRAINED[viewpoint])
        for split in (train, test)
    )
    if not trained.any() or not familiar.any() or familiar.all():
        raise UserError(
            f"smallnorb must have every {viewpoint} in both of its parts."
        )
    data = checked(
        f"smallnorb-{viewpoint}",
        train.where(trained),
        test.where(~familiar),
        _CLASS_NAMES,
        {"familiar": test.where(familiar)},
    )
    return data.with_validation(validation)


def _read(data_dir: str | None) -> tuple[_Split, _Split]:
    if data_dir is not None and _path(data_dir, "train", "dat") is not None:
        return _original(data_dir, "train"), _original(data_dir, "test")
    try:
        builder = prepared.builder_of("smallnorb", data_dir)
    except UserError as error:
        raise UserError(
            "smallnorb needs its six original files (unpacked or .gz, from "
            "cs.nyu.edu/~ylclab/data/norb-v1.0-small) in the folder of "
            f"--data-dir, or TensorFlow Datasets: {error}"
        ) from error
    return _from_builder(builder, "train"), _from_builder(builder, "test")


def _from_builder(builder: Any, split: str) -> _Split:
    left, right, labels, azimuth, elevation = prepared.read(
        builder,
        split,
        ("image", "image2", "label_category", "label_azimuth")
        + ("label_elevation",),
    )
    return _Split(
        np.concatenate([left, right], axis=-1),
        labels,
        azimuth=20 * azimuth,  # TensorFlow Datasets counts from 0 to 17
        elevation=30 + 5 * elevation,
    )


def _original(data_dir: str, split: str) -> _Split:
    pairs, labels, viewpoints = (
        _matrix(data_dir, split, kind) for kind in ("dat", "cat", "info")
    )
    counts = {len(pairs), len(labels), len(viewpoints)}
    if len(counts) > 1 or pairs.ndim != 4 or viewpoints.ndim != 2:
        raise UserError(
            f"the smallNORB files of the {split} split in {data_dir} do not "
            f"belong together: their arrays are {pairs.shape}, {labels.shape} "
            f"and {viewpoints.shape}."
        )
    _, elevation, azimuth, _ = viewpoints.T
    return _Split(
        np.ascontiguousarray(np.moveaxis(pairs, 1, -1)),
        labels,
        azimuth=10 * azimuth,  # the files have 0, 2, ..., 34
        elevation=30 + 5 * elevation,
    )


def _path(data_dir: str, split: str, kind: str) -> Path | None:
    name = _FILES[split].format(kind)
    paths = (Path(data_dir) / name, Path(data_dir) / f"{name}.gz")
    return next((path for path in paths if path.is_file()), None)


def _matrix(data_dir: str, split: str, kind: str) -> Array:
    """Reads a file: kind of number, number of axes, their lengths, numbers."""
    path = _path(data_dir, split, kind)
    if path is None:
        raise UserError(
            f"{data_dir} has no file {_FILES[split].format(kind)}, nor that "
            "name with .gz."
        )
    try:
        opened = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
        with opened as file:
            content = file.read()
        magic, axes = np.frombuffer(content, "<i4", 2)
        shape = np.frombuffer(content, "<i4", axes, offset=8)
        # Of at least three lengths; those beyond the axes are 1.
        start = 8 + 4 * max(int(axes), 3)
        numbers = np.frombuffer(content, _NUMBERS[int(magic)], offset=start)
        return numbers.reshape(shape)
    except (KeyError, ValueError, OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a file of smallNORB.") from error
