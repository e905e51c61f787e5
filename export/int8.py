"""What int8 costs and gains: accuracy, trees, bytes and milliseconds."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from cli import UserError
from export import runtime
from export.signatures import IMAGES
from tfcaps.ops import quantize

# Levels of the trees that are compared, unless the model has its own.
LEVELS = 11
# Images from which ranges of activations are taken, and those of the measures.
_CALIBRATION = 300
_TEST = 2000
_BATCHES = (1, 32)
_KINDS = ("float32", "int8")
# Share of the images from which on fewer right answers are worth a sentence.
_NOTABLE = 0.01
_ASKED_AT_ONCE = 100
# Each model is timed so often, and for about so long.
_ROUNDS = (5, 30)
_SECONDS = 20.0

Array = NDArray[Any]


class Samples(NamedTuple):
    """Images as clients send them.

    Attributes:
        calibration: Those from which ranges of activations are taken.
        images: Those of the measures.
        labels: Their classes `[n]`.
    """

    calibration: Array
    images: Array
    labels: Array


def read(path: Path, shape: tuple[int, ...], images: str) -> Samples:
    """Reads `x_train`, `x_test` and `y_test` of an `.npz` file.

    Args:
        path: The file. Pixels are uint8 in 0..255, or floats in [0, 1].
        shape: That of the model's images, or of what else it takes.
        images: As in `write_saved_model`.

    Raises:
        UserError: If it cannot be read, or its images are not the model's.
    """
    try:
        # Opened here, because NumPy leaves a broken file open.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            x_train, x_test, y_test = (
                arrays[name] for name in ("x_train", "x_test", "y_test")
            )
    except (OSError, ValueError, KeyError, IndexError, BadZipFile) as error:
        raise UserError(
            f"--int8 {path} must be an .npz file with the arrays x_train, "
            f"x_test and y_test: {error}."
        ) from error
    labels = y_test.reshape(len(y_test), -1)
    if labels.shape != (len(x_test), 1) or labels.dtype.kind not in "iu":
        raise UserError(
            f"--int8 {path}: y_test must have a class, a whole number, for "
            f"each of {len(x_test)} images; it is {y_test.dtype} "
            f"{list(y_test.shape)}."
        )
    rows = _drawn(len(x_test), _TEST)
    return Samples(
        _sent(path, x_train[_drawn(len(x_train), _CALIBRATION)], shape, images),
        _sent(path, x_test[rows], shape, images),
        labels[rows, 0],
    )


def measure(
    names: Sequence[str],
    folder: Path,
    samples: Samples,
    levels: int | None,
    mode: str,
) -> dict[str, Any]:
    """Measures models in float32 and in int8, each by its own runtime.

    Args:
        names: Names of formats.
        folder: An exported folder.
        samples: Images.
        levels: Levels to which the model rounds its couplings, or `None`.
        mode: `"midtread"` or `"midrise"`.

    Returns:
        `calibration_images`, `test_images`, `levels` of the trees, and
        `formats`, with a row for `float32` and `int8` of each: `accuracy`,
        `bytes`, `milliseconds` (medians for batches of 1 and 32),
        `same_trees`, the share of images with the class and all rounded
        couplings of float32, and `same_codes`, the share of rounded couplings.
    """
    levels = levels or LEVELS
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        models = [runtime.Model(name, folder, int8) for int8 in (False, True)]
        answers = [_answers(model, samples.images) for model in models]
        times = _milliseconds(models, samples.images)
        codes = [
            np.asarray(quantize(couplings, levels, mode=mode))
            for _, couplings in answers
        ]
        rows[name] = {}
        for kind, model, (classes, _), code, milliseconds in zip(
            _KINDS, models, answers, codes, times, strict=True
        ):
            same_class = classes == answers[0][0]
            same = (code == codes[0]) & same_class[:, None]
            rows[name][kind] = {
                "accuracy": float(np.mean(classes == samples.labels)),
                "same_trees": float(np.mean(same.all(axis=-1))),
                "same_codes": float(np.mean(same)),
                "bytes": sum(file.stat().st_size for file in model.files),
                "milliseconds": milliseconds,
            }
    return {
        "calibration_images": len(samples.calibration),
        "test_images": len(samples.images),
        "levels": levels,
        "formats": rows,
    }


def table(measured: Mapping[str, Any]) -> str:
    """Returns a Markdown table of what `measure` returned."""
    head = [
        "format",
        "numbers",
        "accuracy",
        "same trees",
        "same codes",
        "bytes",
        *(f"ms, batch {batch}" for batch in _BATCHES),
    ]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for name, kinds in measured["formats"].items():
        for kind, row in kinds.items():
            lines.append(
                [
                    name,
                    kind,
                    f"{row['accuracy']:.2%}",
                    f"{row['same_trees']:.1%}",
                    f"{row['same_codes']:.2%}",
                    f"{row['bytes']:,}",
                    *(f"{time:.2f}" for time in row["milliseconds"].values()),
                ]
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def losses(measured: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each format that int8 made notably less right."""
    sentences = []
    for name, kinds in measured["formats"].items():
        before, after = (kinds[kind]["accuracy"] for kind in _KINDS)
        if before - after > _NOTABLE:
            sentences.append(
                f"{name}: int8 lost {100 * (before - after):.1f} points of "
                "accuracy. Calibrate with images like those to come, or serve "
                "float32."
            )
    return sentences


def _drawn(number: int, wanted: int) -> Array:
    """Returns the same images of a set every time."""
    rows: Array = np.random.RandomState(0).permutation(number)[:wanted]
    return rows


def _sent(
    path: Path, pixels: Array, shape: tuple[int, ...], images: str
) -> Array:
    """Returns pixels as a client sends them."""
    if pixels.ndim == len(shape):  # without the axis of channels
        pixels = pixels[..., None]
    is_raw = pixels.dtype == np.uint8
    if pixels.shape[1:] != shape or not (is_raw or pixels.dtype.kind == "f"):
        raise UserError(
            f"--int8 {path}: the model takes images {list(shape)}, uint8 or "
            f"floats; these are {pixels.dtype} {list(pixels.shape[1:])}."
        )
    if images == "uint8":
        return pixels if is_raw else np.rint(255 * pixels).astype("uint8")
    scale = np.float32(IMAGES["uint8"] if is_raw else 1)
    return pixels.astype("float32") / scale


def _answers(model: runtime.Model, images: Array) -> tuple[Array, Array]:
    """Returns the classes of images, and the couplings towards them."""
    requests = [
        runtime.Request(model, "explain", part)
        for part in _parts(images, _ASKED_AT_ONCE)
    ]
    outputs = [answer.outputs for answer in runtime.run(requests)]
    return (
        np.concatenate([output["classes"] for output in outputs]),
        np.concatenate([output["couplings"] for output in outputs]),
    )


def _parts(images: Array, size: int) -> Iterator[Array]:
    for start in range(0, len(images), size):
        yield images[start : start + size]


def _milliseconds(
    models: list[runtime.Model], images: Array
) -> list[dict[str, float]]:
    """Returns the times of each model for each batch, taken in turn."""
    rows: list[dict[str, float]] = [{} for _ in models]
    for batch in _BATCHES:
        # A runtime prepares anew for another batch: one process for each.
        asked = np.resize(images, (batch, *images.shape[1:]))
        requests = [
            runtime.Request(model, "serving_default", asked) for model in models
        ]
        seconds = sum(a.seconds[-1] for a in runtime.run(requests, rounds=2))
        rounds = int(np.clip(_SECONDS / seconds, *_ROUNDS))
        # The first time does not count.
        for row, answer in zip(
            rows, runtime.run(requests, rounds + 1), strict=True
        ):
            row[str(batch)] = round(1e3 * np.median(answer.seconds[1:]), 3)
    return rows
