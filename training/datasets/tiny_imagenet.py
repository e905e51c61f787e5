"""Tiny ImageNet, from its own folder: 200 classes of 64x64 pixels.

The labelled validation images are the test set, as nobody has the labels of the
test images.
"""

from pathlib import Path

import numpy as np

from cli import UserError
from training import images as pixels
from training.datasets.data import Arrays, Data, checked

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
    train = [
        (path, wnid)
        for wnid in ids
        for path in pixels.files_in(_there(folder / "train" / wnid / "images"))
    ]
    annotations = _there(folder / "val" / "val_annotations.txt")
    lines = annotations.read_text("utf-8").splitlines()
    # Name of the file, class, and a box that is not needed.
    rows = [line.split("\t")[:2] for line in lines if line]
    if not all(len(row) == 2 and row[1] in ids for row in rows):
        raise UserError(
            f"each line of {annotations} must begin with an image and a class "
            "of wnids.txt."
        )
    test = [(folder / "val" / "images" / name, wnid) for name, wnid in rows]
    # The first of the words for each class, or else its id.
    words = folder / "words.txt"
    lines = words.read_text("utf-8").splitlines() if words.is_file() else []
    called = dict(line.split("\t", 1) for line in lines if "\t" in line)
    names = [called.get(wnid, wnid).split(",")[0] for wnid in ids]
    data = checked("tiny_imagenet", _read(train, ids), _read(test, ids), names)
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


def _there(path: Path) -> Path:
    if not path.exists():
        raise UserError(f"tiny_imagenet is not complete: there is no {path}.")
    return path


def _read(files: list[tuple[Path, str]], ids: list[str]) -> Arrays:
    if not files:
        raise UserError("tiny_imagenet has no images in one of its folders.")
    images = []
    for path, _ in files:
        images.append(pixels.read(path, "RGB"))
        if images[-1].shape != images[0].shape:
            raise UserError(
                f"{path} is {pixels.size(images[-1])}, not "
                f"{pixels.size(images[0])} as those before."
            )
    return np.stack(images), np.array([ids.index(wnid) for _, wnid in files])
