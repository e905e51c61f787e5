"""Networks in int8, and what that costs: accuracy, trees and bytes."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.export import runtimes
from tfcaps.export.networks import (
    IMAGES,
    converting,
    file_of,
    write_other,
)
from tfcaps.export.versions import ExportError
from tfcaps.ops import quantize

# Levels of the trees that are compared, unless the model has its own.
LEVELS = 11
# Images from which ranges of activations are taken, and those of the measures.
_CALIBRATION = 300
_TEST = 2000
# Share of the images from which on fewer right answers are worth a sentence.
_NOTABLE = 0.01
_ASKED_AT_ONCE = 100

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


def read_samples(path: Path, shape: tuple[int, ...], images: str) -> Samples:
    """Reads `x_train`, `x_test` and `y_test` of an `.npz` file.

    Args:
        path: The file. Pixels are uint8 in 0..255, or floats in [0, 1].
        shape: That of the model's images, or of what else it takes.
        images: As in `save`.

    Raises:
        ExportError: If it cannot be read, or its images are not the model's.
    """
    try:
        # Opened here, because NumPy leaves a broken file open.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            x_train, x_test, y_test = (
                arrays[name] for name in ("x_train", "x_test", "y_test")
            )
    except (OSError, ValueError, KeyError, IndexError, BadZipFile) as error:
        raise ExportError(
            f"{path} must be an .npz file with the arrays x_train, x_test and "
            f"y_test: {error}."
        ) from error
    labels = y_test.reshape(len(y_test), -1)
    if labels.shape != (len(x_test), 1) or labels.dtype.kind not in "iu":
        raise ExportError(
            f"{path}: y_test must have a class, a whole number, for each of "
            f"{len(x_test)} images; it is {y_test.dtype} {list(y_test.shape)}."
        )
    rows = _drawn(len(x_test), _TEST)
    return Samples(
        _sent(path, x_train[_drawn(len(x_train), _CALIBRATION)], shape, images),
        _sent(path, x_test[rows], shape, images),
        labels[rows, 0],
    )


def write_int8(
    network: keras.Model, form: str, folder: Path, calibration: Array
) -> None:
    """Writes a network in int8 beside what `write_other` wrote.

    Args:
        network: As `networks.all_outputs` returns it.
        form: Name of the format.
        folder: An exported folder with the network in this format.
        calibration: `[n, h, w, c]`, from which ranges of activations are taken.

    Raises:
        ExportError: If it cannot be written.
    """
    target = folder / file_of(form, int8=True)
    if form == "litert":
        _write_litert(network, folder)
        return
    write = {"onnx": _write_onnx, "openvino": _write_openvino}[form]
    with converting(form, "written in int8"):
        write(folder / file_of(form), target, calibration)


def _write_litert(network: keras.Model, folder: Path) -> None:
    """Writes weights alone in int8.

    LiteRT rounds the activations of each image as they come, and routes in
    floats. With ranges from calibration it would round the routing too: on
    MNIST a sixth of the codes changed instead of one in 270.
    """
    import tensorflow as tf

    default = tf.lite.Optimize.DEFAULT
    write_other(network, "litert", folder, optimizations=[default])


def _write_onnx(source: Path, target: Path, calibration: Array) -> None:
    """Writes convolutions and products of matrices in int8."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        batches = iter([{"images": image[None]} for image in calibration])

        def get_next(self) -> Any:
            return next(self.batches, None)

    # It advises in the log to do what is done here.
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as work:
        prepared = Path(work) / "model.onnx"
        quantization.quant_pre_process(
            source, prepared, skip_symbolic_shape=True
        )
        quantization.quantize_static(
            prepared,
            target,
            Reader(),
            per_channel=True,
            op_types_to_quantize=["Conv", "MatMul"],
        )


def _write_openvino(source: Path, target: Path, calibration: Array) -> None:
    """Writes convolutions in int8."""
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    quantized = nncf.quantize(
        openvino.Core().read_model(source),
        nncf.Dataset([image[None] for image in calibration]),
        subset_size=len(calibration),
        # The fast one moved the biases of a DR-CapsNet so far that a quarter of
        # its answers were wrong.
        fast_bias_correction=False,
        # OpenVINO 2026.4 cannot run those of routing and saliency together.
        ignored_scope=nncf.IgnoredScope(types=["MatMul"], validate=False),
    )
    openvino.save_model(quantized, target, compress_to_fp16=False)


def measure(
    formats: Sequence[str],
    folder: Path,
    samples: Samples,
    levels: int | None,
    mode: str,
) -> dict[str, Any]:
    """Measures models in float32 and in int8, each by its own runtime.

    Args:
        formats: Names of formats.
        folder: An exported folder.
        samples: Images.
        levels: Levels to which the model rounds its couplings, or `None`.
        mode: `"midtread"` or `"midrise"`.

    Returns:
        `calibration_images`, `test_images`, `levels` of the trees, and
        `formats`, with a row for `float32` and `int8` of each: `accuracy`,
        `bytes`, `same_trees`, the share of images with the class and all
        rounded couplings of float32, and `same_codes`, the share of rounded
        couplings.
    """
    levels = levels or LEVELS
    rows: dict[str, dict[str, Any]] = {}
    for form in formats:
        rows[form] = {}
        for kind in ("float32", "int8"):
            model = runtimes.Model(folder, form, int8=kind == "int8")
            classes, couplings = _answers(model, samples.images)
            codes = np.asarray(quantize(couplings, levels, mode=mode))
            if kind == "float32":
                first = classes, codes
            same = (codes == first[1]) & (classes == first[0])[:, None]
            rows[form][kind] = {
                "accuracy": float(np.mean(classes == samples.labels)),
                "same_trees": float(np.mean(same.all(axis=-1))),
                "same_codes": float(np.mean(same)),
                "bytes": sum(file.stat().st_size for file in model.files),
            }
    return {
        "calibration_images": len(samples.calibration),
        "test_images": len(samples.images),
        "levels": levels,
        "formats": rows,
    }


def table(measured: Mapping[str, Any]) -> str:
    """Returns a Markdown table of what `measure` returned."""
    lines = [
        "| format | numbers | accuracy | same trees | same codes | bytes |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for form, kinds in measured["formats"].items():
        for kind, row in kinds.items():
            lines.append(
                f"| {form} | {kind} | {row['accuracy']:.2%} "
                f"| {row['same_trees']:.1%} | {row['same_codes']:.2%} "
                f"| {row['bytes']:,} |"
            )
    return "\n".join(lines)


def losses(measured: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each format that int8 made notably less right."""
    sentences = []
    for form, kinds in measured["formats"].items():
        lost = kinds["float32"]["accuracy"] - kinds["int8"]["accuracy"]
        if lost > _NOTABLE:
            sentences.append(
                f"{form}: int8 lost {100 * lost:.1f} points of accuracy. "
                "Calibrate with images like those to come, or serve float32."
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
        raise ExportError(
            f"{path}: the model takes images {list(shape)}, uint8 or floats; "
            f"these are {pixels.dtype} {list(pixels.shape[1:])}."
        )
    if images == "uint8":
        return pixels if is_raw else np.rint(255 * pixels).astype("uint8")
    scale = np.float32(IMAGES["uint8"] if is_raw else 1)
    return pixels.astype("float32") / scale


def _answers(model: runtimes.Model, images: Array) -> tuple[Array, Array]:
    """Returns the classes of images, and the couplings towards them."""
    requests = [
        runtimes.Request(model, "explain", images[start:][:_ASKED_AT_ONCE])
        for start in range(0, len(images), _ASKED_AT_ONCE)
    ]
    outputs = [answer.outputs for answer in runtimes.run(requests)]
    return (
        np.concatenate([output["classes"] for output in outputs]),
        np.concatenate([output["couplings"] for output in outputs]),
    )
