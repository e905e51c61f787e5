"""Tiny ImageNet, from its own folder: 200 classes of 64x64 pixels.

The labelled validation images are the test set, as nobody has the labels of the
test images.
"""

import dataclasses
from pathlib import Path

from cli import UserError
from training.datasets import own
from training.datasets.data import Data
from training.datasets.own import Listing, Picture
from training.pictures import files_in

_FOLDER = "tiny-imagenet-200"


def load(data_dir: str | None, validation: float = 0.0) -> Data:
    """Loads Tiny ImageNet."""
    places = (Path(data_dir or "."), Path(data_dir or ".") / _FOLDER)
    folders = [place for place in places if (place / "wnids.txt").is_file()]
    if data_dir is None or not folders:
        raise UserError(
            f"tiny_imagenet needs its folder {_FOLDER}, unpacked from the "
            "archive of cs231n.stanford.edu, in the folder of --data-dir; "
            f"{data_dir or 'no folder'} is given."
        )
    folder = folders[0]
    try:
        ids = (folder / "wnids.txt").read_text("utf-8").split()
        pictures = [
            Picture(path, wnid)
            for wnid in ids
            for path in files_in(folder / "train" / wnid / "images")
        ]
        # Name of the file, class, and a box that is not needed.
        annotations = folder / "val" / "val_annotations.txt"
        for line in annotations.read_text("utf-8").splitlines():
            name, wnid = line.split("\t")[:2]
            path = folder / "val" / "images" / name
            pictures.append(Picture(path, wnid, "test"))
        # The first of the words for each class, or else its id.
        lines = (folder / "words.txt").read_text("utf-8").splitlines()
        if stray := {picture.label for picture in pictures}.difference(ids):
            raise ValueError(f"{min(stray)} of {annotations} has no folder")
    except (OSError, ValueError) as error:
        raise UserError(f"tiny_imagenet is not complete: {error}.") from error
    called = dict(line.split("\t", 1) for line in lines if "\t" in line)
    names = tuple(called.get(wnid, wnid).split(",")[0] for wnid in ids)
    listing = Listing(folder, tuple(pictures), tuple(ids))
    data = own.read(listing, "tiny_imagenet", None, validation)
    return dataclasses.replace(data, class_names=names)
