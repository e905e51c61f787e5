"""The trained network of `--backbone`: a file, or the one that has a name."""

from pathlib import Path

import keras

from cli import UserError, read_model
from training import efficientnet_lite0

Shape = tuple[int, int, int]


def load(name: str, folder: str | None, shape: Shape) -> keras.Model:
    """Loads a trained network without its top, for images in [0, 1].

    Its name is `efficientnet_lite0`, or that of a `.keras` file, by itself or
    in the folder.
    """
    if name == efficientnet_lite0.NAME:
        return efficientnet_lite0.build(shape)
    for path in (Path(folder or ".") / name, Path(name)):
        if path.is_file():
            return read_model(path)
    raise UserError(
        f"there is no backbone {name!r}, neither as a path nor in the folder "
        "of --data-dir; give a .keras file of a trained network without its "
        f"top, or {efficientnet_lite0.NAME}."
    )
