"""Stores a model's answers to images drawn from a seed beside the model.

With it an exported folder can be checked anywhere and at any time, without the
model it was made from.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import keras
import numpy as np
from numpy.typing import NDArray

from cli import UserError
from export.signatures import IMAGES
from tfcaps.rem import capsule_outputs, explanation

NAME = "assets.extra/reference.npz"
BATCHES = (1, 3, 32)
TOLERANCE = 1e-5
# They are exponentials of sums that reach hundreds in EM and sharp routing, of
# which float32 knows seven digits.
COUPLING_TOLERANCE = 1e-4

Arrays = dict[str, NDArray[Any]]

# Of 36 rows, those in which a rounded coupling may lie on the other side of an
# edge because a sum was added up in another order.
_ROUNDED_OTHERWISE = 2


def draw_images(batch: int, shape: tuple[int, ...], images: str) -> Any:
    """Returns a batch of noise of different contrast, the same every time.

    Args:
        batch: Int. How many.
        shape: That of an image: rows, columns and channels; or of a signal, a
            row of a table, a volume.
        images: `"uint8"` or `"float32"`.
    """
    # Unlike those of newer generators, its numbers are fixed for ever.
    draw = np.random.RandomState(batch)
    contrast = draw.uniform(0.2, 1.0, (batch, *[1] * len(shape)))
    pixels = contrast * draw.randint(0, 256, (batch, *shape))
    pixels = pixels.astype("uint8")
    return pixels if images == "uint8" else pixels / np.float32(255.0)


def write(model: keras.Model, folder: Path, images: str) -> None:
    """Writes what a Keras model answers, for every signature and batch.

    Args:
        model: The model, whole and without a graph of its own.
        folder: An exported folder.
        images: As in `draw_images`.
    """
    outputs = capsule_outputs(model, couplings=False)
    explained = explanation(model)
    shape = outputs.inputs[0].shape[1:]
    arrays = {}
    for batch in BATCHES:
        drawn = draw_images(batch, shape, images).astype("float32")
        pixels = drawn / np.float32(IMAGES[images])
        served = _numpy(outputs(pixels, training=False))
        shown = _numpy(explained(pixels, training=False))
        served["classes"] = np.argmax(served["lengths"], axis=-1)
        answers = {
            "serving_default": served,
            "explain": shown,
            "encode": {"poses": served["poses"]},
        }
        for signature, answer in answers.items():
            for name, array in answer.items():
                arrays[f"{batch}/{signature}/{name}"] = array
    path = folder / NAME
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def read(folder: Path) -> dict[tuple[int, str], Arrays]:
    """Returns what the model answered, by batch and signature.

    Raises:
        UserError: If that is not known.
    """
    answers: dict[tuple[int, str], Arrays] = {}
    try:
        # Opened here, because NumPy leaves a broken file open.
        with open(folder / NAME, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            for key in arrays.files:
                batch, signature, name = key.split("/")
                answer = answers.setdefault((int(batch), signature), {})
                answer[name] = arrays[key]
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        raise UserError(
            f"parity: {folder / NAME} is missing or broken; export the model "
            "anew."
        ) from error
    return answers


def compare(
    what: str, pairs: Iterator[tuple[Arrays, Arrays]], *, rounded: bool
) -> float:
    """Compares expected answers with those that came.

    Args:
        what: Start of the message.
        pairs: Expected arrays and those that came.
        rounded: Whether couplings are rounded to levels.

    Returns:
        The largest difference.

    Raises:
        UserError: If one is larger than `TOLERANCE`, or `COUPLING_TOLERANCE`
            of couplings.
    """
    largest, others = 0.0, 0
    for expected, came in pairs:
        if {k: v.shape for k, v in expected.items()} != {
            k: v.shape for k, v in came.items()
        }:
            raise UserError(f"{what}: the outputs have other names or shapes.")
        rows, wrong = _rows_apart(expected, came)
        others += int(wrong.sum())
        if wrong.any() and not (rounded and others <= _ROUNDED_OTHERWISE):
            raise UserError(
                f"{what}: an answer differs by {np.max(rows[wrong]):.2g}, more "
                f"than {TOLERANCE}, or {COUPLING_TOLERANCE} of couplings."
            )
        largest = max(largest, float(np.max(rows[~wrong], initial=0.0)))
    return largest


def _rows_apart(
    expected: Arrays, came: Arrays
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """Returns the largest difference in each row, and which are too large.

    Where two classes are equally long, either may come first.
    """
    rows = len(next(iter(expected.values())))
    same = np.ones(rows, bool)
    apart = np.zeros(rows)
    if "classes" in expected:
        lengths = np.sort(expected["lengths"], axis=-1)
        is_tie = lengths[:, -1:] - lengths[:, -2:-1] <= 2 * TOLERANCE
        same = expected["classes"] == came["classes"]
        apart[~same & ~is_tie.any(axis=-1)] = np.inf
    wrong = np.isinf(apart)
    for name in expected.keys() - {"classes"}:
        difference = np.abs(expected[name] - came[name])
        difference = difference.reshape(rows, -1).max(axis=-1, initial=0.0)
        if name in ("couplings", "saliency"):  # towards the class
            difference = np.where(same, difference, 0.0)
        most = COUPLING_TOLERANCE if name == "couplings" else TOLERANCE
        wrong |= ~(difference <= most)  # also where it is not a number
        apart = np.maximum(apart, difference)
    return apart, wrong


def _numpy(outputs: dict[str, Any]) -> Arrays:
    ops: Callable[[Any], Any] = keras.ops.convert_to_numpy
    return {
        name: np.asarray(
            ops(value), "int64" if name == "classes" else "float32"
        )
        for name, value in outputs.items()
    }
