"""Networks with a decoder beside their lengths, and with optional labels."""

from typing import Any

import keras

from tfcaps import graphs
from tfcaps.layers import Decoder
from tfcaps.ops import Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class LabelledModel(keras.Model):
    """A functional model of a dict of inputs, whose `labels` are optional.

    In copies too: `keras.models.clone_model` of Keras 3.15 forgets it, but
    keeps the class of the model.
    """

    # Keras makes models again by arguments of these names.
    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ):
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        for layer in self.layers:
            is_input = isinstance(layer, keras.layers.InputLayer)
            if is_input and layer.output is inputs["labels"]:
                layer.optional = True


def label_input() -> Tensor:
    """Returns the optional input `labels` `[b]`; prediction gives `None`."""
    return keras.Input((), dtype="int32", name="labels", optional=True)


def with_decoder(
    model: keras.Model,
    network: Any = "dense",
    class_independent: bool = False,
    *,
    frozen: bool = False,
) -> keras.Model:
    """Returns a model that also reconstructs its images.

    It shares the layers, and so the weights, of `model`. Train it by
    `fit({"images": images, "labels": labels}, {"lengths": labels,
    "reconstruction": images})`, with `MarginLoss` and `ReconstructionLoss`. In
    training the decoder sees the label's capsule; in prediction, where `labels`
    may be `None`, the longest one. `tfcaps.rem.classifier` returns the part
    from images to lengths.

    Args:
        model: A functional or sequential model from images to class lengths
            whose last routed layer makes the class capsules, such as those of
            `tfcaps.models`.
        network: As in `tfcaps.layers.Decoder`, as is the next one.
        class_independent: Bool. Defaults to `False`.
        frozen: Bool. Make all layers of `model` untrainable, so that only the
            decoder learns. Defaults to `False`.

    Returns:
        A functional model with the inputs `images` and `labels`, and the
        outputs `lengths` and `reconstruction`.

    Raises:
        ValueError: If the last routed layer has not a capsule for each class,
            the decoder does not fit the images, or the model has its own
            `train_step` and its class is not made of inputs and outputs.
    """
    graphs.keep_pruned(model)
    given = graphs.without_couplings(model)
    model = graphs.functional(given)
    capsules = graphs.last_routed_layer(model)
    if any(isinstance(layer, Decoder) for layer in model.layers):
        raise ValueError(f"The model {model.name!r} has a decoder already.")
    inputs, labels = model.input, None
    images = graphs.pick_tensor(inputs, "images")
    if isinstance(inputs, dict):
        labels = inputs.get("labels")
        if len(inputs) > 1 + (labels is not None):
            raise ValueError(
                f"The model {model.name!r} must take images, and at most "
                f"labels. Received: the inputs {sorted(inputs)}."
            )
    elif images.name != "images":
        inputs = images = keras.Input(
            images.shape[1:], dtype=images.dtype, name="images"
        )
    copy, calls = graphs.calls_of(model, inputs)
    lengths = copy.output
    if isinstance(lengths, dict):
        lengths = lengths["lengths"]
    if labels is None:
        labels = label_input()
    [*_, outputs] = [call.outputs for call in calls if call.layer is capsules]
    # Activations [b, j], couplings [b, i, j], or both.
    poses, *rest = outputs
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
    joint = graphs.of_same_kind(
        given,
        {"images": images, "labels": labels},
        {"lengths": lengths, "reconstruction": reconstruction},
        LabelledModel,
    )
    if frozen:
        for layer in model.layers:
            layer.trainable = False
    return joint
