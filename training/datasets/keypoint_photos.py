"""Photos with classes, and keypoints and boxes to measure by.

A file has the arrays `jpeg`, of bytes, and `offsets` `[n + 1]`, so that photo
`i` is `jpeg[offsets[i]:offsets[i + 1]]`; `labels` and `is_train` `[n]`; `size`
`[n, 2]`, width and height; `class_names`; and to measure by `keypoints` `[n,
parts, 3]`, x, y and whether it is seen, and `boxes` `[n, 4]`, x, y, width and
height. No training reads the last two.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cli import UserError
from training.datasets.npz import missing, opened
from training.images import Array

SIDE = 320  # rows and columns to which photos are squashed
_MEASURED_BY = ("keypoints", "boxes", "part_names")
NAMES = ("jpeg", "offsets", "labels", "is_train", "size", "class_names")


class KeypointPhotos(NamedTuple):
    """Photos, squashed to squares.

    Attributes:
        images: uint8 `[n, side, side, 3]`.
        labels: Classes `[n]`.
        is_train: Bool `[n]`.
        class_names: Names of the classes.
        points: Row and column in pixels, NaN where a part is not seen, `[n,
            parts, 2]`.
        boxes: First row, first column, height and width in pixels, `[n, 4]`.
        part_names: Names of the parts.
    """

    images: Array
    labels: Array
    is_train: Array
    class_names: tuple[str, ...]
    points: Array
    boxes: Array
    part_names: tuple[str, ...]


def read(path: Path, file: Any, side: int = SIDE) -> KeypointPhotos:
    """Reads the arrays of an open `.npz` file, whose path errors name."""
    if lacking := missing(file, NAMES):
        raise UserError(
            f"{path} has JPEG photos and must have the arrays "
            f"{', '.join(NAMES)}; it lacks {', '.join(lacking)}."
        )
    count, names = len(file["labels"]), tuple(map(str, file["class_names"]))
    coded, ends = file["jpeg"].tobytes(), file["offsets"]
    rows = {
        name: len(file[name])
        for name in ("is_train", "size", "keypoints", "boxes")
        if name in file.files
    }
    rows["offsets, less one,"] = len(ends) - 1
    for name, length in rows.items():
        if length != count:
            raise UserError(
                f"{path} must have as many {name} as labels, {count}; it has "
                f"{length}."
            )
    labels, is_train = file["labels"].astype(int), file["is_train"] > 0
    if not (is_train.any() and (~is_train).any()):
        raise UserError(
            f"{path} must have training and test photos; `is_train` is 1 for "
            f"{is_train.sum()} of {count}."
        )
    if labels.min() < 0 or labels.max() >= len(names):
        raise UserError(
            f"{path}: labels must be in 0 to {len(names) - 1}, as there are "
            f"{len(names)} `class_names`; they go from {labels.min()} to "
            f"{labels.max()}."
        )
    images = np.empty((count, side, side, 3), np.uint8)
    for k in range(count):
        try:
            stored = Image.open(io.BytesIO(coded[ends[k] : ends[k + 1]]))
            photo = stored.convert("RGB")
        except OSError as error:
            raise UserError(f"{path}: photo {k} is no JPEG.") from error
        photo = photo.resize((side, side), Image.Resampling.BICUBIC)
        images[k] = np.asarray(photo)
    scale = side / file["size"][:, ::-1].astype(float)  # of rows, of columns
    points, boxes = np.zeros((count, 0, 2)), np.zeros((count, 4))
    if "keypoints" in file.files:
        known = file["keypoints"].astype(float)
        points = known[..., 1::-1] * scale[:, None]
        points = np.where(known[..., 2:] > 0, points - 0.5, np.nan)
    if "boxes" in file.files:
        given = file["boxes"].astype(float)
        boxes = given[:, [1, 0, 3, 2]] * np.tile(scale, 2)
    parts = file["part_names"] if "part_names" in file.files else ()
    return KeypointPhotos(
        images, labels, is_train, names, points, boxes, tuple(map(str, parts))
    )


def load(path: Path, side: int = SIDE) -> KeypointPhotos:
    """Reads a file that has what to measure by, too.

    Raises:
        UserError: If it lacks an array, or has none of something.
    """
    with opened(path) as file:
        if lacking := missing(file, (*NAMES, *_MEASURED_BY)):
            raise UserError(
                f"{path} lacks the arrays {', '.join(lacking)}; photos with "
                f"parts have {', '.join((*NAMES, *_MEASURED_BY))}."
            )
        photos = read(path, file, side)
    if not np.isfinite(photos.points[~photos.is_train]).any():
        raise UserError(
            f"{path} has no visible keypoint in a test photo, so that parts "
            "cannot be measured."
        )
    return photos
