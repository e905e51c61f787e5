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

from training.images import Array

SIDE = 320  # rows and columns to which photos are squashed
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


def read(file: Any, side: int = SIDE) -> KeypointPhotos:
    """Reads the arrays of an open `.npz` file."""
    count = len(file["labels"])
    coded, ends = file["jpeg"].tobytes(), file["offsets"]
    images = np.empty((count, side, side, 3), np.uint8)
    for k in range(count):
        photo = Image.open(io.BytesIO(coded[ends[k] : ends[k + 1]]))
        images[k] = np.asarray(
            photo.convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
        )
    scale = side / file["size"][:, ::-1].astype(float)  # of rows, of columns
    points, boxes = np.zeros((count, 0, 2)), np.zeros((count, 4))
    if "keypoints" in file.files:
        known = file["keypoints"].astype(float)
        points = known[..., 1::-1] * scale[:, None]
        points = np.where(known[..., 2:] > 0, points - 0.5, np.nan)
    if "boxes" in file.files:
        given = file["boxes"].astype(float)
        boxes = given[:, [1, 0, 3, 2]] * np.tile(scale, 2)
    names = file["part_names"] if "part_names" in file.files else ()
    return KeypointPhotos(
        images,
        file["labels"].astype(int),
        file["is_train"] > 0,
        tuple(map(str, file["class_names"])),
        points,
        boxes,
        tuple(map(str, names)),
    )


def load(path: Path, side: int = SIDE) -> KeypointPhotos:
    """Reads a file."""
    with np.load(path, allow_pickle=False) as file:
        return read(file, side)
