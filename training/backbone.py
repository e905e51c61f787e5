"""The trained network that `--backbone` names."""

from pathlib import Path

import keras

from cli import UserError
from training import applications
from training.folder import read_model


def load(
    name: str, folder: str | None, shape: tuple[int, int, int]
) -> keras.Model:
    """Loads a trained network without its top.

    Args:
        name: Of `keras.applications`; or a `.keras` file, as its name in the
            folder or as its path.
        folder: The folder, or `None`.
        shape: Rows, columns and channels of an image.

    Raises:
        UserError: If there is no such network, or it cannot be read.
    """
    if is_application(name):
        return applications.load(name, shape)
    for path in (Path(folder or ".") / name, Path(name)):
        if path.is_file():
            return read_model(path)
    near = applications.near(name)
    raise UserError(
        f"there is no backbone {name!r}, neither as a path nor in the folder "
        "of --data-dir; give a .keras file of a trained network without its "
        "top, or a name of keras.applications, such as "
        f"{', '.join(near or ['MobileNetV3Small'])}."
    )


def is_application(name: str | None) -> bool:
    """Tells whether it is of `keras.applications`, which scale images."""
    return name in applications.NAMES
