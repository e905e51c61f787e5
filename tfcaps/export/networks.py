"""Networks as clients ask them, written in each format."""

from pathlib import Path
from typing import Any

import keras
from keras import ops

from tfcaps.export.runtimes import SIGNATURES, ExportError, Model, one_sentence
from tfcaps.ops import longest
from tfcaps.rem import capsule_outputs, explanation
from tfcaps.routing.loop import unrolled

# What a client sends: raw pixels, or the numbers that the network was given.
IMAGES = {"uint8": 255.0, "float32": 1.0}
_ALL = ("lengths", "poses", "classes", "couplings", "saliency")
# The newest that tf2onnx 1.17 writes.
_OPSET = 18


def all_outputs(model: keras.Model, images: str) -> keras.Model:
    """Returns a model from what a client sends to all that it may get.

    Pixels are `"uint8"` from 0 to 255, or `"float32"` in [0, 1].

    Raises:
        ValueError: If the model has no routed layer.
    """
    return _served(explanation(model), images, _ALL)


def describe(network: keras.Model) -> dict[str, Any]:
    """Returns the inputs and outputs of each signature, as JSON."""

    def form(tensor: Any) -> dict[str, Any]:
        shape = [-1 if size is None else size for size in tensor.shape]
        return {"dtype": tensor.dtype, "shape": shape}

    outputs = {name: form(each) for name, each in network.output.items()}
    return {
        signature: {
            "inputs": {"images": form(network.inputs[0])},
            "outputs": {n: outputs[n] for n in sorted(names) if n in outputs},
        }
        for signature, names in SIGNATURES.items()
    }


def write_saved_model(model: keras.Model, folder: Path, images: str) -> None:
    """Writes a SavedModel of all signatures, of what `all_outputs` takes."""
    import tensorflow as tf

    plain = capsule_outputs(model, couplings=False)
    shown = explanation(model)
    sources = {"serving_default": plain, "explain": shown, "encode": plain}
    # Not Keras' ExportArchive: that of 3.15 writes every weight twice.
    module, signatures = tf.Module(), {}
    module.weights = [v.value for v in (*shown.variables, *plain.variables)]
    for name, source in sources.items():
        network = _served(source, images, SIGNATURES[name])
        signatures[name] = _function(network)
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
    source: keras.Model, images: str, names: tuple[str, ...]
) -> keras.Model:
    """Returns a model from what a client sends to the named outputs."""
    sent = keras.Input(source.inputs[0].shape[1:], name="images", dtype=images)
    outputs = source(ops.cast(sent, "float32") / IMAGES[images])
    outputs = {"classes": longest(outputs["lengths"]), **outputs}
    types = {"classes": "int64"}
    return keras.Model(
        sent,
        {
            name: ops.cast(outputs[name], types.get(name, "float32"))
            for name in names
            if name in outputs
        },
    )


def _function(network: keras.Model) -> Any:
    import tensorflow as tf

    sent = network.inputs[0]
    spec = tf.TensorSpec(sent.shape, sent.dtype, name="images")

    def call(images: Any) -> Any:
        return network(images, training=False)

    return tf.function(call, [spec], autograph=False)


def _fold_constants(path: Path) -> None:
    """Computes what depends on weights alone, of which tf2onnx keeps a copy."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    )
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(path.read_bytes(), options)
