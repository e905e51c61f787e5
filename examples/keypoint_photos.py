"""Photos with classes, and keypoints and boxes to measure by.

A file has the arrays `jpeg`, of bytes, and `offsets` `[n + 1]`, so that photo
`i` is `jpeg[offsets[i]:offsets[i + 1]]`; `labels` and `is_train` `[n]`; `size`
`[n, 2]`, width and height; `class_names` and `part_names`; `keypoints` `[n,
parts, 3]`, x, y and whether it is seen, and `boxes` `[n, 4]`, x, y, width and
height. No training reads the last two.
"""

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from cli import UserError
from training.datasets.npz import missing, opened
from training.images import Array

SIDE = 320  # rows and columns to which photos are squashed
NAMES = (
    *("jpeg", "offsets", "labels", "is_train", "size", "class_names"),
    *("part_names", "keypoints", "boxes"),
)


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


def load(path: Path, side: int = SIDE) -> KeypointPhotos:
    """Reads a file."""
    with opened(path) as file:
        if lacking := missing(file, NAMES):
            raise UserError(f"{path} lacks the arrays {', '.join(lacking)}.")
        arrays = {name: file[name] for name in NAMES}
    coded, ends = arrays["jpeg"].tobytes(), arrays["offsets"]
    images = np.empty((len(ends) - 1, side, side, 3), np.uint8)
    for k in range(len(images)):
        stored = Image.open(io.BytesIO(coded[ends[k] : ends[k + 1]]))
        photo = stored.convert("RGB")
        images[k] = photo.resize((side, side), Image.Resampling.BICUBIC)
    scale = side / arrays["size"][:, ::-1].astype(float)  # of rows, of columns
    known = arrays["keypoints"].astype(float)
    points = known[..., 1::-1] * scale[:, None] - 0.5
    boxes = arrays["boxes"].astype(float)[:, [1, 0, 3, 2]] * np.tile(scale, 2)
    return KeypointPhotos(
        images,
        arrays["labels"].astype(int),
        arrays["is_train"] > 0,
        tuple(map(str, arrays["class_names"])),
        np.where(known[..., 2:] > 0, points, np.nan),
        boxes,
        tuple(map(str, arrays["part_names"])),
    )
