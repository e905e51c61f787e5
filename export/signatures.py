"""Signatures of an exported model.

| signature | from `images` `[b, h, w, c]` to |
|---|---|
| `serving_default` | `lengths` `[b, j]`, `poses` `[b, j, d]`, `classes` `[b]` |
| `explain` | `lengths`, `classes`, `couplings` `[b, i]`, `saliency` |
| `encode` | `poses` |

What the network takes need not be images: signals, rows of a table and volumes
have that name too. Couplings are those towards the predicted class; the
saliency map `[b, h, w]` is there if the network takes images and the children
of the class capsules have positions. Floats are float32, classes int64. Every
row depends on its own image alone.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from cli import UserError
from export.packed import Weights
from export.saved_model import SIGNATURES
from tfcaps.rem import capsule_outputs, explanation
from tfcaps.rem.maps.explanation import explained as explained_model
from tfcaps.routing.loop import unrolled

# What a client sends: raw pixels, or the numbers that the network was given.
IMAGES = {"uint8": 255.0, "float32": 1.0}


def write_saved_model(
    model: keras.Model,
    folder: Path,
    images: str,
    *,
    packed: bool = True,
    names: Sequence[str] = SIGNATURES,
) -> None:
    """Writes a SavedModel into a folder.

    Args:
        model: A functional or sequential model with a routed layer.
        folder: Where to. It should be empty.
        images: `"uint8"` for pixels from 0 to 255, which the graph divides by
            255, or `"float32"` for pixels in [0, 1].
        packed: Bool. Store weights of many zeros without these, see
            `export/packed.py`. Defaults to `True`.
        names: Which signatures it has. Defaults to all.

    Raises:
        ValueError: If the model has no routed layer.
        UserError: If it cannot be written.
    """
    outputs = capsule_outputs(model, couplings=False)
    explained = explanation(model) if "explain" in names else outputs
    weights = Weights(explained, packed)
    pixels, spec = _pixels(outputs, images)

    def serving_default(images: Any) -> dict[str, Any]:
        served = weights.call(outputs, pixels(images))
        classes = tf.argmax(served["lengths"], axis=-1)
        return {**_float32(served), "classes": classes}

    def explain(images: Any) -> dict[str, Any]:
        return _explained(weights.call(explained, pixels(images)))

    def encode(images: Any) -> dict[str, Any]:
        served = weights.call(outputs, pixels(images))
        return _float32({"poses": served["poses"]})

    # Not Keras' ExportArchive: that of 3.15 writes every weight twice.
    signatures = {
        function.__name__: tf.function(function, [spec], autograph=False)
        for function in (serving_default, explain, encode)
        if function.__name__ in names
    }
    try:
        tf.saved_model.save(weights, str(folder), signatures)
    except tf.errors.OpError as error:
        raise UserError(
            f"{folder.parent} cannot be written: {error.message}"
        ) from error


def all_outputs(model: keras.Model, images: str) -> tuple[Weights, Any]:
    """Returns a function that returns what all signatures do, and its weights.

    Its graph has no loops.

    Args:
        model: A functional or sequential model with a routed layer.
        images: As in `write_saved_model`.

    Raises:
        ValueError: If the model has no routed layer.
    """
    explained = explained_model(model, True, "field", poses=True)
    weights = Weights(explained, packed=False)
    pixels, spec = _pixels(explained, images)

    def whole(images: Any) -> dict[str, Any]:
        with unrolled():
            return _explained(weights.call(explained, pixels(images)))

    return weights, tf.function(whole, [spec], autograph=False)


def _pixels(
    network: keras.Model, images: str
) -> tuple[Callable[[Any], Any], tf.TensorSpec]:
    """Returns what makes a network's input of images, and their form."""
    scale = IMAGES[images]
    shape = (None, *network.inputs[0].shape[1:])
    spec = tf.TensorSpec(shape, tf.as_dtype(images), name="images")
    return lambda images: tf.cast(images, tf.float32) / scale, spec


def _explained(outputs: dict[str, Any]) -> dict[str, Any]:
    floats = {k: v for k, v in outputs.items() if k != "classes"}
    classes = tf.cast(outputs["classes"], tf.int64)
    return {**_float32(floats), "classes": classes}


def _float32(outputs: dict[str, Any]) -> dict[str, Any]:
    """Returns outputs of a network of any precision as clients get them."""
    return {name: tf.cast(value, "float32") for name, value in outputs.items()}
