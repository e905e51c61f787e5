"""Lists the data sets by name; to add one, add its module and its line here.

This file loads nothing, so that a command can say at once what there is.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli import UserError


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set that `--list-datasets` names, and the line about it.

    Its loader, `"module:function"` of `training/datasets/`, takes `data_dir`,
    `validation`, the options here, and `seed` if it is drawn by one. Without it
    is what TensorFlow Datasets have under that name.
    """

    about: str
    loader: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    drawn: bool = False


SOURCES = {
    "digits": Source(
        "scikit-learn's 8x8 digits, part of that package", "digits:load"
    ),
    "figures": Source(
        "arrangements of five parts among loose ones, made here",
        "figures:generate",
        drawn=True,
    ),
    "figures_of_four": Source(
        "the same of other parts, of which every class lacks some",
        "figures:generate_of_four",
        drawn=True,
    ),
    "figures_repeated": Source(
        "the same of which a class has one part twice and lacks others",
        "figures:generate_repeated",
        drawn=True,
    ),
    "mnist": Source("28x28 handwritten digits (TensorFlow Datasets)"),
    "fashion_mnist": Source("28x28 clothes (TensorFlow Datasets)"),
    "cifar10": Source("32x32 photos of ten kinds (TensorFlow Datasets)"),
    "svhn_cropped": Source("32x32 house numbers (TensorFlow Datasets)"),
    "cats_vs_dogs": Source("photos, resized to 128x128 (TensorFlow Datasets)"),
    "imagenette": Source(
        "photos of ten kinds, at 128x128 (TensorFlow Datasets)"
    ),
    "affnist": Source(
        "shifted MNIST, tested on affNIST's distorted digits", "affnist:load"
    ),
    "affine_mnist": Source(
        "the same with a test set that is made here", "affnist:generate"
    ),
    "smallnorb": Source("toys seen by two cameras", "small_norb:load"),
    "smallnorb-azimuth": Source(
        "the same, tested on new azimuths",
        "small_norb:load",
        {"viewpoint": "azimuth"},
    ),
    "smallnorb-elevation": Source(
        "the same, tested on new elevations",
        "small_norb:load",
        {"viewpoint": "elevation"},
    ),
    "tiny_imagenet": Source("200 classes of photos", "tiny_imagenet:load"),
}


def check(name: str, data_dir: str | None) -> None:
    """Raises `UserError` if there is no such data set or folder."""
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir!r} is not a folder.")
    if name in SOURCES:
        return
    path = Path(name)
    if name and path.is_dir() or path.suffix in (".csv", ".npz"):
        return  # what reads them says more
    if not name or path.exists() or name[0] in "/.~" or name[-1] == "/":
        raise UserError(
            f"data set {name!r} is neither a folder nor an .npz file."
        )
