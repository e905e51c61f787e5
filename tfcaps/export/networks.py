"""Networks as clients ask them, written in each format."""

import inspect
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.export.pixels import Pixels
from tfcaps.export.runtimes import (
    SIGNATURES,
    Arrays,
    ExportError,
    Model,
    one_sentence,
)
from tfcaps.graphs import clone_with_call, functional, inner_model
from tfcaps.models.backbone import FrozenModel
from tfcaps.ops import longest
from tfcaps.rem import capsule_outputs, explanation
from tfcaps.rem.batches import predict
from tfcaps.routing.loop import unrolled

_ALL = ("lengths", "poses", "classes", "couplings", "saliency")
# The newest that tf2onnx 1.17 writes.
_OPSET = 18


def all_outputs(model: keras.Model, pixels: Pixels) -> keras.Model:
    """Returns a model from what a client sends to all that it may get."""
    return _served(explanation(model), pixels, _ALL)


def answers(shown: keras.Model, images: Any, pixels: Pixels) -> Arrays:
    """Returns what a model of `explanation` itself answers to images as sent.

    It is given them in its own units, and nothing is put around it.
    """
    if pixels.divisor > 1:
        images = images / np.float32(pixels.divisor)
    outputs = predict(shown, images.astype(shown.inputs[0].dtype))
    return {
        name: outputs[name].astype(_type_of(name))
        for name in _ALL
        if name in outputs
    }


def describe(network: keras.Model, pixels: Pixels) -> dict[str, Any]:
    """Returns the inputs and outputs of each signature, as JSON."""

    def form(tensor: Any) -> dict[str, Any]:
        shape = [-1 if size is None else size for size in tensor.shape]
        return {"dtype": tensor.dtype, "shape": shape}

    outputs = {name: form(each) for name, each in network.output.items()}
    images = form(network.inputs[0])
    if pixels.largest is not None:
        images["range"] = [0, pixels.largest]
    return {
        signature: {
            "inputs": {"images": images},
            "outputs": {n: outputs[n] for n in sorted(names) if n in outputs},
        }
        for signature, names in SIGNATURES.items()
    }


def write_saved_model(model: keras.Model, folder: Path, pixels: Pixels) -> None:
    """Writes a SavedModel of all signatures, of what `all_outputs` takes."""
    import tensorflow as tf

    plain = capsule_outputs(model, couplings=False)
    shown = explanation(model)
    sources = {"serving_default": plain, "explain": shown, "encode": plain}
    # Not Keras' ExportArchive: that of 3.15 writes every weight twice.
    module, signatures = tf.Module(), {}
    module.weights = [v.value for v in (*shown.variables, *plain.variables)]
    for name, source in sources.items():
        signatures[name] = _function(_served(source, pixels, SIGNATURES[name]))
    try:
        tf.saved_model.save(module, str(folder), signatures)
    except tf.errors.OpError as error:
        raise ExportError(
            f"{folder.parent} cannot be written: {error.message}"
        ) from error


def write_other(
    network: keras.Model, form: str, folder: Path, **options: Any
) -> None:
    """Writes a network of `all_outputs` in a format other than SavedModel."""
    [path, *_] = Model(folder, form, int8="optimizations" in options).files
    if form == "onnx":
        options["opset_version"] = _OPSET
    [sent] = network.inputs
    spec = keras.InputSpec(dtype=sent.dtype, shape=sent.shape, name="images")
    # Other runtimes are slow in a loop, and cannot quantise what is in it.
    with one_sentence(form, "the model cannot be converted"), unrolled():
        network.export(
            str(path),
            format=form,
            verbose=False,
            input_signature=[spec],
            **options,
        )
        if form == "onnx":
            _fold_constants(path)


def _served(
    source: keras.Model, pixels: Pixels, names: tuple[str, ...]
) -> keras.Model:
    """Returns a model from what a client sends to the named outputs."""
    shape, dtype = source.inputs[0].shape[1:], source.inputs[0].dtype
    images = keras.Input(shape, name="images", dtype=pixels.dtype)
    taken = ops.cast(images, dtype)
    if pixels.divisor > 1:
        taken = taken / pixels.divisor
    # A name that no input and no operation has.
    outputs = _in_use(source, "network")(taken)
    outputs = {"classes": longest(outputs["lengths"]), **outputs}
    return keras.Model(
        images,
        {
            name: ops.cast(outputs[name], _type_of(name))
            for name in names
            if name in outputs
        },
    )


def _type_of(output: str) -> str:
    return "int64" if output == "classes" else "float32"


def _in_use(model: keras.Model, name: str | None = None) -> keras.Model:
    """Returns a model without what other runtimes lack and training needs."""

    def call(layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(layer, FrozenModel):
            return layer.around(_in_use(functional(layer.model)))(inputs)
        inner = None if args or kwargs else inner_model(layer)
        if inner is not None:
            return _in_use(inner)(inputs)
        if isinstance(layer, keras.layers.Normalization):
            layer = _constant(layer)
        if _does_nothing(layer, inputs):
            return inputs
        return layer(inputs, *args, **kwargs)

    copy = clone_with_call(model, call)
    return keras.Model(copy.input, copy.output, name=name)


def _constant(layer: keras.layers.Normalization) -> keras.layers.Layer:
    """Returns a layer of numbers, not of tensors, which are inputs in ONNX."""
    scale = np.sqrt(ops.convert_to_numpy(layer.variance))
    scale = np.maximum(scale, keras.config.epsilon())
    offset = ops.convert_to_numpy(layer.mean)
    if not layer.invert:
        scale, offset = 1.0 / scale, -offset / scale
    return keras.layers.Rescaling(scale.tolist(), offset.tolist())


def _does_nothing(layer: Any, inputs: Any) -> bool:
    """Tells whether a layer changes images in training alone."""
    if not isinstance(layer, keras.layers.Layer) or layer.trainable_weights:
        return False
    takes = inspect.signature(layer.call).parameters
    shape = getattr(inputs, "shape", (None, None))[1:]
    if "training" not in takes or None in shape:
        return False
    noise = np.random.RandomState(0).uniform(size=(2, *shape))
    noise = noise.astype(inputs.dtype)
    made = keras.tree.flatten(layer(noise, training=False))
    return len(made) == 1 and bool(
        np.array_equal(ops.convert_to_numpy(made[0]), noise)
    )


def _function(network: keras.Model) -> Any:
    import tensorflow as tf

    [sent] = network.inputs
    spec = tf.TensorSpec(sent.shape, sent.dtype, name="images")
    return tf.function(
        lambda images: network(images, training=False), [spec], autograph=False
    )


def _fold_constants(path: Path) -> None:
    """Computes what depends on weights alone, of which tf2onnx keeps a copy."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    )
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(path.read_bytes(), options)
