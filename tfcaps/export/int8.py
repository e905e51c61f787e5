"""Networks in int8, and what that costs: accuracy, trees and bytes."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import keras
import numpy as np

from tfcaps.export.networks import write_other
from tfcaps.export.runtimes import ExportError, Model, one_sentence
from tfcaps.ops import Array, quantize

# Levels of the trees that are compared, unless the model has its own.
LEVELS = 11
# Images from which ranges of activations are taken, and those of the measures.
_CALIBRATION = 300
_TEST = 2000
_BATCH = 100  # so many are asked at once


class Samples(NamedTuple):
    """Images as clients send them."""

    calibration: Array  # from which ranges of activations are taken
    images: Array  # of the measures
    labels: Array  # their classes `[n]`


def read_samples(path: Path, shape: tuple[int, ...], dtype: str) -> Samples:
    """Reads `x_train`, `x_test` and `y_test` of an `.npz` file.

    Pixels are uint8 in 0..255 or floats in [0, 1], and become what clients
    send: `[n, *shape]` of the type `dtype`.
    """
    try:
        # Opened here, because NumPy leaves a broken file open.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            x_train, x_test, y_test = (
                arrays[name] for name in ("x_train", "x_test", "y_test")
            )
        labels = y_test.reshape(len(x_test))
        if labels.dtype.kind not in "iu":
            raise ValueError(f"y_test is {labels.dtype}")
        # The same images of a set every time.
        fitted, rows = (
            np.random.RandomState(0).permutation(len(each))[:most]
            for each, most in ((x_train, _CALIBRATION), (x_test, _TEST))
        )
        return Samples(
            _sent(x_train[fitted], shape, dtype),
            _sent(x_test[rows], shape, dtype),
            labels[rows],
        )
    except (OSError, ValueError, KeyError, IndexError, BadZipFile) as error:
        raise ExportError(
            f"{path} must be an .npz file with x_train and x_test, images "
            f"{list(shape)} of uint8 or floats, and y_test, the whole number "
            f"of a class for each of x_test: {error}."
        ) from error


def _sent(pixels: Array, shape: tuple[int, ...], dtype: str) -> Array:
    if pixels.dtype != np.uint8 and pixels.dtype.kind != "f":
        raise ValueError(f"images are {pixels.dtype}")
    # Those in a file may lack the axis of channels.
    pixels = pixels.reshape(len(pixels), *shape)
    is_raw = pixels.dtype == np.uint8
    if dtype == "uint8":
        return pixels if is_raw else np.rint(255 * pixels).astype("uint8")
    return pixels.astype("float32") / np.float32(255 if is_raw else 1)


def write_int8(
    network: keras.Model, form: str, folder: Path, calibration: Array
) -> None:
    """Writes a network in int8 beside what `write_other` wrote."""
    if form == "litert":
        import tensorflow as tf

        # Weights alone. LiteRT rounds the activations of each image as they
        # come, and routes in floats. With ranges from calibration it would
        # round the routing too: on MNIST a sixth of the codes changed instead
        # of one in 270.
        default = tf.lite.Optimize.DEFAULT
        write_other(network, form, folder, optimizations=[default])
        return
    source, target = (Model(folder, form, int8) for int8 in (False, True))
    write = {"onnx": _write_onnx, "openvino": _write_openvino}[form]
    with one_sentence(form, "the model cannot be written in int8"):
        write(source.files[0], target.files[0], calibration)


def _write_onnx(source: Path, target: Path, calibration: Array) -> None:
    """Writes convolutions and products of matrices in int8."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        batches = iter([{"images": image[None]} for image in calibration])

        def get_next(self) -> Any:
            return next(self.batches, None)

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

    Returns:
        `calibration_images`, `test_images`, `levels` of the trees, and
        `formats`, with a row for `float32` and `int8` of each: `accuracy`,
        `bytes`, and the shares of images (`same_trees`) and of rounded
        couplings (`same_codes`) that are as in float32.
    """
    levels = levels or LEVELS
    rows: dict[str, dict[str, Any]] = {form: {} for form in formats}
    for form in formats:
        for kind in ("float32", "int8"):
            model = Model(folder, form, int8=kind == "int8")
            ask, batches = model.load(), range(0, len(samples.images), _BATCH)
            outputs = [
                ask("explain", samples.images[at : at + _BATCH])
                for at in batches
            ]
            classes, couplings = (
                np.concatenate([output[name] for output in outputs])
                for name in ("classes", "couplings")
            )
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
