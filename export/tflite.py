"""The model as a TensorFlow Lite file, for phones and small boards."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cli import UserError
from export import reference
from export.quiet import native_silence
from export.signatures import write_saved_model

NAME = "model.tflite"


def write(model: keras.Model, folder: Path, images: str) -> None:
    """Writes the signature `serving_default` as `model.tflite`.

    Args:
        model: A functional or sequential model with a routed layer.
        folder: An exported folder.
        images: As in `write_saved_model`.

    Raises:
        UserError: If TensorFlow Lite lacks one of its operations.
    """
    import tensorflow as tf

    try:
        with tempfile.TemporaryDirectory() as plain, native_silence():
            # It takes no weights that are unpacked at loading.
            names = ["serving_default"]
            write_saved_model(
                model, Path(plain), images, packed=False, names=names
            )
            content = tf.lite.TFLiteConverter.from_saved_model(
                plain, signature_keys=names
            ).convert()
    except Exception as error:  # it raises many kinds
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"tflite: the model cannot be converted: {reason}"
        ) from error
    (folder / NAME).write_bytes(content)


def check(folder: Path, images: str, *, rounded: bool) -> float:
    """Compares the file's answers with the model's, as its interpreter gives.

    Args:
        folder: An exported folder with `model.tflite`.
        images: As in `reference.draw_images`.
        rounded: Whether couplings are rounded to levels.

    Returns:
        The largest difference.

    Raises:
        UserError: If it cannot be run, or an answer differs.
    """
    expected = reference.read(folder)
    try:
        with native_silence():
            runner = _runner(folder)
            pairs = [
                (answer, _run(runner, batch, images))
                for (batch, signature), answer in expected.items()
                if signature == "serving_default"
            ]
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"tflite: {folder / NAME} cannot be run: {reason}"
        ) from error
    return reference.compare("tflite", iter(pairs), rounded=rounded)


def _runner(folder: Path) -> Any:
    import tensorflow as tf

    with warnings.catch_warnings():
        # It will move to another package; this one is what TensorFlow brings.
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(str(folder / NAME))
    return interpreter.get_signature_runner("serving_default")


def _run(runner: Any, batch: int, images: str) -> dict[str, Any]:
    _, *shape = runner.get_input_details()["images"]["shape_signature"]
    outputs = runner(images=reference.draw_images(batch, tuple(shape), images))
    return {name: np.asarray(value) for name, value in outputs.items()}
