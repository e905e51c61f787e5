"""Tiny ImageNet, from its own folder: 200 classes of 64x64 pixels.

The labelled validation images are the test set, as nobody has the labels of the
test images.
"""

from pathlib import Path

import numpy as np

from cli import UserError
from training import images as pixels
from training.datasets.data import Arrays, Data, checked
from training.image_data import Array

_FOLDER = "tiny-imagenet-200"


def load(data_dir: str | None, validation: float = 0.0) -> Data:
    """Loads Tiny ImageNet.

    Args:
        data_dir: The unpacked folder, or the one it lies in.
        validation: Share of the training images that is held out.

    Raises:
        UserError: If it is not there or not complete.
    """
    folder = _find(data_dir)
    ids = (folder / "wnids.txt").read_text("utf-8").split()
    numbers = {wnid: number for number, wnid in enumerate(ids)}
    data = checked(
        "tiny_imagenet",
        _train(folder, numbers),
        _validation(folder, numbers),
        _class_names(folder, ids),
    )
    return data.with_validation(validation)


def _find(data_dir: str | None) -> Path:
    if data_dir is not None:
        for folder in (Path(data_dir), Path(data_dir) / _FOLDER):
            if (folder / "wnids.txt").is_file():
                return folder
    raise UserError(
        f"tiny_imagenet needs its folder {_FOLDER}, unpacked from the archive "
        "of cs231n.stanford.edu, in the folder of --data-dir; "
        f"{data_dir or 'no folder'} is given."
    )


def _class_names(folder: Path, ids: list[str]) -> list[str]:
    """Returns the first of the words for each class, or else its id."""
    words = folder / "words.txt"
    lines = words.read_text("utf-8").splitlines() if words.is_file() else []
    names = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return [names.get(wnid, wnid).split(",")[0] for wnid in ids]


def _train(folder: Path, numbers: dict[str, int]) -> Arrays:
    images, labels = [], []
    for wnid, number in numbers.items():
        of_class = folder / "train" / wnid / "images"
        if not of_class.is_dir():
            raise UserError(f"there is no folder {of_class}.")
        for path in pixels.files_in(of_class):
            images.append(path)
            labels.append(number)
    return _read(images), np.array(labels)


def _validation(folder: Path, numbers: dict[str, int]) -> Arrays:
    annotations = folder / "val" / "val_annotations.txt"
    if not annotations.is_file():
        raise UserError(f"there is no file {annotations}.")
    lines = annotations.read_text("utf-8").splitlines()
    # Name of the file, class, and a box that is not needed.
    rows = [line.split("\t")[:2] for line in lines if line]
    if not all(len(row) == 2 and row[1] in numbers for row in rows):
        raise UserError(
            f"each line of {annotations} must begin with an image and a class "
            "of wnids.txt."
        )
    images = [folder / "val" / "images" / name for name, _ in rows]
    return _read(images), np.array([numbers[wnid] for _, wnid in rows])


def _read(paths: list[Path]) -> Array:
    if not paths:
        raise UserError("tiny_imagenet has no images in one of its folders.")
    first = pixels.read(paths[0], "RGB")
    whole = np.empty((len(paths), *first.shape), np.uint8)
    for number, path in enumerate(paths):
        image = pixels.read(path, "RGB")
        if image.shape != whole.shape[1:]:
            raise UserError(
                f"{path} is {pixels.size(image)}, not "
                f"{pixels.size(whole[0])} as those before."
            )
        whole[number] = image
    return whole
