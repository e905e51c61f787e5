"""The trained network that `--backbone` names."""

from pathlib import Path

import keras

from tfcaps.cli import UserError
from training.folder import read_model


def load(name: str, folder: str | None = None) -> keras.Model:
    """Loads a trained network without its top from a `.keras` file.

    Args:
        name: Its name in the folder, or its path.
        folder: The folder, or `None`.

    Raises:
        UserError: If there is no such file, or it cannot be read.
    """
    for path in (Path(folder or ".") / name, Path(name)):
        if path.is_file():
            return read_model(path)
    raise UserError(
        f"there is no backbone {name!r}, neither as a path nor in the folder "
        "of --data-dir; give a .keras file of a trained network without its "
        "top."
    )
