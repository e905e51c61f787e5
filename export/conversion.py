"""Writes models in other formats than SavedModel, and checks them."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cli import UserError, check_installed
from export import formats, reference, runtime
from export.graphs import Graphs
from export.int8 import Samples
from export.quiet import native_silence

# Of the batches in `reference.npz`, the one whose rows are also asked alone.
_ROWS = 3


def write(
    names: Sequence[str],
    model: keras.Model,
    folder: Path,
    images: str,
    samples: Samples | None = None,
) -> dict[str, Any]:
    """Writes a model in formats other than SavedModel.

    Args:
        names: Names of the formats.
        model: A functional or sequential model with a routed layer.
        folder: An exported folder.
        images: As in `write_saved_model`.
        samples: Images by which each format is written in int8 too, or `None`.

    Returns:
        What the signatures take and return, for the manifest.

    Raises:
        UserError: If a format lacks one of the model's operations.
    """
    with Graphs(model, images) as graphs:
        for name in names:
            form = formats.module(name)
            with _converting(name, "converted"):
                form.write(graphs, folder)
            if samples:
                with _converting(name, "written in int8"):
                    form.quantize(graphs, folder, samples.calibration)
        return graphs.describe()


def check(
    name: str, folder: Path, about: dict[str, Any], *, int8: bool = False
) -> str:
    """Checks the answers of a format's runtime, in a process of its own.

    Those in float32 must be the Keras model's, and each image's its own. Those
    in int8 must be there and be numbers: the manifest says how good they are.

    Args:
        name: Name of the format.
        folder: An exported folder with `reference.npz`.
        about: Its manifest.
        int8: Bool. Check the model in int8. Defaults to `False`.

    Returns:
        What was found, a line.

    Raises:
        UserError: If its runtime is missing, it cannot be run, or an answer
            differs.
    """
    form = formats.FORMATS[name]
    if form.modules:
        check_installed(**{form.extra: form.runtime})
    model = runtime.Model(name, folder, int8)
    # Before there were formats, LiteRT's file had one signature.
    rows = "explain" if "formats" in about else "serving_default"
    expected = {
        (batch, signature): arrays
        for (batch, signature), arrays in reference.read(folder).items()
        if "formats" in about or signature == rows
    }
    requests = list(_requests(model, expected, about, rows))
    answers = [answer.outputs for answer in runtime.run(requests)]
    pairs = zip(expected.values(), answers, strict=False)
    if int8:
        _check_numbers(model, pairs)
        return f"{name:9} in int8: answers of the right shapes"
    rounded = about["levels"] is not None
    largest = reference.compare(f"{name}: {folder}", pairs, rounded=rounded)
    alone = zip(
        _each(expected[_ROWS, rows]), answers[len(expected) :], strict=True
    )
    reference.compare(
        f"{name}: {folder}: an image asked alone, not with others",
        alone,
        rounded=rounded,
    )
    return f"{name:9} the Keras model's answers within {largest:.1e}"


def _requests(
    model: runtime.Model,
    expected: dict[tuple[int, str], reference.Arrays],
    about: dict[str, Any],
    rows: str,
) -> Iterator[runtime.Request]:
    """Yields what `reference.npz` answers, then each image of one batch.

    Those images are asked for the signature `rows`.
    """
    images = about["signatures"]["serving_default"]["inputs"]["images"]
    shape = tuple(images["shape"][1:])
    for batch, signature in expected:
        images = reference.draw_images(batch, shape, about["images"])
        yield runtime.Request(model, signature, images)
    images = reference.draw_images(_ROWS, shape, about["images"])
    for row in range(0 if model.int8 else _ROWS):
        yield runtime.Request(model, rows, images[row : row + 1])


def _each(arrays: reference.Arrays) -> Iterator[reference.Arrays]:
    """Yields each row of a batch as a batch."""
    for row in range(_ROWS):
        yield {name: array[row : row + 1] for name, array in arrays.items()}


def _check_numbers(
    model: runtime.Model,
    pairs: Iterator[tuple[reference.Arrays, reference.Arrays]],
) -> None:
    for expected, came in pairs:
        fits = {k: v.shape for k, v in expected.items()} == {
            k: v.shape for k, v in came.items()
        }
        if not fits or not all(np.isfinite(v).all() for v in came.values()):
            raise UserError(
                f"{model.format}: {model.files[0]} returns outputs of other "
                "names or shapes, or what is not a number."
            )


@contextlib.contextmanager
def _converting(name: str, done: str) -> Iterator[None]:
    """Drops what converters write, and makes their errors one sentence."""
    try:
        with (
            native_silence(),
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # they raise many kinds
        text = str(error).strip() or type(error).__name__
        reason = " ".join(text.splitlines()[0].split())
        raise UserError(
            f"{name}: the model cannot be {done}: {reason}"
        ) from error
