"""Trained networks that come with the package."""

import hashlib
import json
from pathlib import Path

import keras

from tfcaps.ops import check_that

# For each name a `.keras` file and a `.json` with its hash and its numbers,
# written by `training/pretrained.py`, and an `.md`, the card that shows them.
_FOLDER = Path(__file__).with_name("pretrained")


def load_pretrained(name: str) -> keras.Model:
    """Returns a network that was trained with REM and comes with the package.

    Nothing is downloaded. The card beside the file,
    `tfcaps/models/pretrained/<name>.md`, says what the network was trained on,
    how good it is, what its classes are, and what it cannot do.

    Args:
        name: `"figures"`, figures that are made of five parts; `"mnist"`,
            handwritten digits, or `"fashion_mnist"`, clothes; and
            `"mnist_strokes"` and `"fashion_mnist_parts"`, the same two told by
            parts that their trees need.

    Returns:
        A network of parts, float32 and not compiled, from images
        `[b, 32, 32, 1]` (figures) or `[b, 28, 28, 1]` in [0, 1], bright on a
        dark ground, to the lengths `[b, 10]` of the classes, each in [0, 1].

    Raises:
        ValueError: If there is no such network, or its file was changed.
        FileNotFoundError: If its file is missing.

    Example:

    >>> load_pretrained("figures").output_shape
    (None, 10)
    """
    names = sorted(path.stem for path in _FOLDER.glob("*.json"))
    check_that(name in names, f"be one of {names}", name=name)
    path = _FOLDER / f"{name}.keras"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. {_MEND}")
    card = json.loads((_FOLDER / f"{name}.json").read_text("utf-8"))
    if hashlib.sha256(path.read_bytes()).hexdigest() != card["sha256"]:
        raise ValueError(
            f"{path} is not the file that was packed: its SHA-256 is not "
            f"{card['sha256']}. {_MEND}"
        )
    return keras.saving.load_model(path, compile=False)


_MEND = (
    "Install tfcaps again; in a clone of the repository, "
    "`git checkout -- tfcaps/models/pretrained` brings the files back."
)
