"""Checks an exported folder by answers that the Keras model gave."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.export import runtimes
from tfcaps.export.graph import check_graph
from tfcaps.export.networks import SIGNATURES
from tfcaps.export.runtimes import Arrays
from tfcaps.export.serving import check_warmup
from tfcaps.export.versions import ExportError, read_manifest

REFERENCE = "assets.extra/reference.npz"
TOLERANCE = 1e-5
# They are exponentials of sums that reach hundreds in EM and sharp routing, of
# which float32 knows seven digits.
COUPLING_TOLERANCE = 1e-4

_BATCHES = (1, 3, 32)
# The batch whose rows are also asked alone.
_ROWS = 3
# Of 36 rows, those in which a rounded coupling may lie on the other side of an
# edge because a sum was added up in another order.
_ROUNDED_OTHERWISE = 2


def check(folder: Path) -> Iterator[str]:
    """Checks an exported folder as a server would see it.

    | check | fails unless |
    |---|---|
    | manifest | every file is there, and is the one that was written |
    | graph | a SavedModel needs neither XLA nor Python and takes any batch |
    | warmup | a server can ask what it asks when it starts |
    | savedmodel, litert, onnx, openvino | the answers are the Keras model's |

    Answers may differ by 1e-5, couplings by 1e-4, and must not depend on the
    other images of a batch. They come from a process that loads neither Keras
    nor TensorFlow's Python; a SavedModel is run by TensorFlow's C library, with
    XLA off.

    Args:
        folder: The folder of a version.

    Yields:
        A line for each check that was passed.

    Raises:
        ExportError: If one fails; the message begins with its name.
    """
    folder = Path(folder)
    about = read_manifest(folder)
    yield f"manifest   {len(about['files'])} files are whole"
    if "savedmodel" in about["formats"]:
        signatures = check_graph(folder)
        yield "graph      no XLA, no Python, any batch"
        check_warmup(folder, about["model"], signatures)
        yield "warmup     requests of every signature"
    for form in about["formats"]:
        largest = _check_answers(runtimes.Model(folder, form), about)
        yield f"{form:10} the Keras model's answers within {largest:.1e}"
        if "int8" in about and form != "savedmodel":
            _check_numbers(runtimes.Model(folder, form, int8=True), about)
            yield f"{form:10} in int8: answers of the right shapes"


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


def write_reference(network: keras.Model, folder: Path, images: str) -> None:
    """Writes what a Keras model answers to images drawn from a seed.

    With it an exported folder can be checked anywhere and at any time, without
    the model that it was made from.

    Args:
        network: As `networks.all_outputs` returns it.
        folder: An exported folder.
        images: As in `draw_images`.
    """
    numpy: Callable[[Any], Any] = keras.ops.convert_to_numpy
    arrays = {}
    for batch in _BATCHES:
        drawn = draw_images(batch, network.inputs[0].shape[1:], images)
        for name, value in network(drawn, training=False).items():
            arrays[f"{batch}/{name}"] = numpy(value)
    path = folder / REFERENCE
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def read_reference(folder: Path) -> dict[int, Arrays]:
    """Returns what the model answered, by batch.

    Raises:
        ExportError: If that is not known.
    """
    answers: dict[int, Arrays] = {}
    try:
        # Opened here, because NumPy leaves a broken file open.
        with open(folder / REFERENCE, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            for key in arrays.files:
                batch, name = key.split("/")
                answers.setdefault(int(batch), {})[name] = arrays[key]
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        raise ExportError(
            f"reference: {folder / REFERENCE} is missing or broken; export the "
            "model anew."
        ) from error
    return answers


def compare(
    what: str, pairs: Iterable[tuple[Arrays, Arrays]], *, rounded: bool
) -> float:
    """Compares expected answers with those that came.

    Args:
        what: Start of the message.
        pairs: Expected arrays and those that came.
        rounded: Whether couplings are rounded to levels.

    Returns:
        The largest difference.

    Raises:
        ExportError: If one is larger than `TOLERANCE`, or `COUPLING_TOLERANCE`
            of couplings.
    """
    largest, others = 0.0, 0
    for expected, came in pairs:
        _check_shapes(what, expected, came)
        rows, wrong = _rows_apart(expected, came)
        others += int(wrong.sum())
        if wrong.any() and not (rounded and others <= _ROUNDED_OTHERWISE):
            raise ExportError(
                f"{what}: an answer differs by {np.max(rows[wrong]):.2g}, more "
                f"than {TOLERANCE}, or {COUPLING_TOLERANCE} of couplings."
            )
        largest = max(largest, float(np.max(rows[~wrong], initial=0.0)))
    return largest


def _check_answers(model: runtimes.Model, about: dict[str, Any]) -> float:
    """Returns how far answers are from the expected ones."""
    known = _known(model, about)
    alone = [
        (
            request._replace(images=request.images[row : row + 1]),
            {name: array[row : row + 1] for name, array in arrays.items()},
        )
        for request, arrays in known
        if (request.signature, len(request.images)) == ("explain", _ROWS)
        for row in range(_ROWS)
    ]
    answers = runtimes.run([request for request, _ in [*known, *alone]])
    pairs = [
        (arrays, answer.outputs)
        for (_, arrays), answer in zip([*known, *alone], answers, strict=True)
    ]
    what = f"{model.format}: {model.folder}"
    rounded = about["levels"] is not None
    largest = compare(what, pairs[: len(known)], rounded=rounded)
    what += ": an image asked alone, not with others"
    compare(what, pairs[len(known) :], rounded=rounded)
    return largest


def _check_numbers(model: runtimes.Model, about: dict[str, Any]) -> None:
    """Checks a model in int8; the manifest says how good its answers are."""
    known = _known(model, about)
    answers = runtimes.run([request for request, _ in known])
    for (_, arrays), answer in zip(known, answers, strict=True):
        what = f"{model.format}: {model.files[0]}"
        _check_shapes(what, arrays, answer.outputs)
        if not all(np.isfinite(v).all() for v in answer.outputs.values()):
            raise ExportError(f"{what} returns what is not a number.")


def _known(
    model: runtimes.Model, about: dict[str, Any]
) -> list[tuple[runtimes.Request, Arrays]]:
    """Returns requests, and the answers of the Keras model."""
    images = about["signatures"]["encode"]["inputs"]["images"]
    known = []
    for batch, answers in read_reference(model.folder).items():
        drawn = draw_images(batch, tuple(images["shape"][1:]), images["dtype"])
        for signature, names in SIGNATURES.items():
            expected = {k: answers[k] for k in names if k in answers}
            request = runtimes.Request(model, signature, drawn)
            known.append((request, expected))
    return known


def _check_shapes(what: str, expected: Arrays, came: Arrays) -> None:
    if {k: v.shape for k, v in expected.items()} != {
        k: v.shape for k, v in came.items()
    }:
        raise ExportError(f"{what}: the outputs have other names or shapes.")


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
