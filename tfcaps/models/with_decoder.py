"""A capsule network with a decoder beside its lengths."""

from typing import Any

import keras

from tfcaps import graphs
from tfcaps.layers import Decoder
from tfcaps.models.building_blocks import label_input
from tfcaps.models.labelled_model import LabelledModel


def with_decoder(
    model: keras.Model,
    network: Any = "dense",
    class_independent: bool = False,
    *,
    frozen: bool = False,
) -> keras.Model:
    """Returns a model that also reconstructs its images.

    It shares the layers, and so the weights, of `model`. Train it on both
    outputs, with `MarginLoss` and `ReconstructionLoss`:

        model.fit(
            {"images": images, "labels": labels},
            {"lengths": labels, "reconstruction": images},
        )

    In training the decoder sees the label's capsule; in prediction, where
    `labels` may be `None`, the longest one. `tfcaps.rem.encoder` returns the
    part from images to lengths.

    Args:
        model: A functional or sequential model from images to class lengths
            whose last routed layer makes the class capsules, such as those of
            `tfcaps.models`.
        network: As in `tfcaps.layers.Decoder`. Defaults to `"dense"`.
        class_independent: As in `tfcaps.layers.Decoder`. Defaults to `False`.
        frozen: Bool. Make all layers of `model` untrainable, so that only the
            decoder learns. Defaults to `False`.

    Returns:
        A functional model with the inputs `images` and `labels`, and the
        outputs `lengths` and `reconstruction`.

    Raises:
        ValueError: If the model has no routed capsule layer, its last one has
            not a capsule for each class, the decoder does not fit its images,
            or the model has its own `train_step` and its class is not made of
            inputs and outputs.
    """
    graphs.keep_pruned(model)
    given = model = graphs.without_couplings(model)
    graphs.check_kind(given)
    model = graphs.functional(model)
    capsules = graphs.last_routed_layer(model)
    if any(isinstance(layer, Decoder) for layer in model.layers):
        raise ValueError(f"The model {model.name!r} has a decoder already.")
    seen: dict[str, Any] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = layer(*args, **kwargs)
        if layer is capsules:
            seen["capsules"] = outputs
        return outputs

    inputs = model.input
    if not isinstance(inputs, dict) and inputs.name != "images":
        inputs = keras.Input(
            inputs.shape[1:], dtype=inputs.dtype, name="images"
        )
    copy = keras.models.clone_model(
        keras.Model(model.input, model.output, name=model.name),
        input_tensors=inputs,
        clone_function=lambda layer: layer,
        call_function=call,
    )
    lengths = copy.output
    if isinstance(lengths, dict):
        lengths = lengths["lengths"]
    images = copy.input
    labels = None
    if isinstance(images, dict):
        images, labels = images["images"], images["labels"]
    if labels is None:
        labels = label_input()
    poses, activations = seen["capsules"], None
    if isinstance(poses, (tuple, list)):
        poses, *rest = poses
        # Activations [b, j], couplings [b, i, j], or both.
        activations = next((x for x in rest if len(x.shape) == 2), None)
    if len(poses.shape) == 5:  # a map of capsules [b, h, w, t, d]
        poses = keras.layers.Reshape((-1, poses.shape[-1]))(poses)
    if poses.shape[1] != lengths.shape[1]:
        raise ValueError(
            f"The model {model.name!r} has {lengths.shape[1]} lengths, and its "
            f"last routed layer {capsules.name!r} {poses.shape[1]} capsules; "
            "a pose is decoded for each class, so they must be as many."
        )
    decoder = Decoder(
        images.shape[1:],
        network,
        class_independent,
        dtype=capsules.dtype_policy,
        name="reconstruction",
    )
    reconstruction = decoder(poses, labels=labels, activations=activations)
    if decoder.compute_dtype != "float32":
        # As the lengths: losses and clients compare small numbers.
        reconstruction = keras.layers.Identity(dtype="float32")(reconstruction)
    if frozen:
        for layer in model.layers:
            layer.trainable = False
    inputs = {"images": images, "labels": labels}
    outputs = {"lengths": lengths, "reconstruction": reconstruction}
    if graphs.check_kind(given):
        return graphs.of_same_kind(given, inputs, outputs)
    return LabelledModel(inputs, outputs, name=model.name)
