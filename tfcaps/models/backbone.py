"""A trained network below capsules, which stays as it is."""

from typing import Any

import keras
from keras import ops

from tfcaps.configs import Configured
from tfcaps.models.building_blocks import Shape
from tfcaps.ops import Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class FrozenModel(Configured, keras.layers.Layer):
    """Runs a trained model in inference mode and keeps its weights fixed.

    Images of another size are resized. Its weights are neither trained nor
    pruned, also in copies and after loading, where Keras makes all layers of a
    trainable model trainable. The model is a built one of one input and one
    output, and frozen in place.
    """

    def __init__(self, model: keras.Model, **kwargs: Any):
        super().__init__(**kwargs)
        self.model = model

    def build(self, input_shape: Any) -> None:
        self._freeze()

    def call(self, inputs: Tensor) -> Tensor:
        size = self.model.inputs[0].shape[1:3]
        if None not in size and inputs.shape[1:3] != size:
            inputs = ops.image.resize(inputs, size, data_format="channels_last")
        return self.model(inputs, training=False)

    def around(self, model: keras.Model) -> "FrozenModel":
        """Returns the same layer of another model."""
        return FrozenModel(model)

    @property
    def calls_a_sample(self) -> int:
        """How often the model runs for an image."""
        return 1

    @property
    def equivalent_layers(self) -> list[keras.layers.Layer]:
        """The layers that do the same, for `tfcaps.rem.receptive_fields`."""
        size = self.model.inputs[0].shape[1:3]
        if None in size:
            return [self.model]
        resize = keras.layers.Resizing(*size, data_format="channels_last")
        return [resize, self.model]

    @property
    def trainable(self) -> bool:
        return False

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._freeze()  # whatever the value

    def _freeze(self) -> None:
        # Keras does not reach layers in layers that are frozen already.
        for weight in self.model.weights:
            weight.trainable = weight.prunable = False

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FrozenModel":
        model = keras.saving.deserialize_keras_object(config["model"])
        return cls(**{**config, "model": model})


@keras.saving.register_keras_serializable(package="tfcaps")
class ReverseChannels(keras.layers.Layer):
    """Returns blue, green, red of colours, as some published weights expect."""

    def call(self, inputs: Tensor) -> Tensor:
        return ops.flip(inputs, axis=-1)

    @property
    def equivalent_layers(self) -> list[keras.layers.Layer]:
        """A layer of equal receptive fields, for `rem.receptive_fields`."""
        return [keras.layers.Identity()]


def on_backbone(
    backbone: keras.Model, input_shape: Shape | None
) -> tuple[Tensor, Tensor]:
    """Returns the input `images`, and the frozen backbone's map of it.

    Raises:
        ValueError: If the backbone is not built or makes no feature map, or the
            images' size is not known or they have other channels.
    """
    check_backbone(backbone)
    own = tuple(backbone.inputs[0].shape[1:])
    shape = own if input_shape is None else tuple(input_shape)
    if len(shape) != 3 or None in shape or shape[2] != own[2]:
        raise ValueError(
            "`input_shape` must be (rows, columns, channels), with the "
            f"backbone's channels. Received: input_shape={input_shape}, and a "
            f"backbone for {own}."
        )
    images = keras.Input(shape, name="images")
    # In float32 whatever the policy: it was not trained in another.
    frozen = FrozenModel(backbone, dtype="float32", name="backbone")
    return images, frozen(images)


def check_backbone(backbone: keras.Model) -> None:
    """Raises `ValueError` unless it is built, from images to a feature map.

    Its layers must have the channels last.
    """
    shapes = []
    if backbone.built:
        tensors = [*backbone.inputs, *backbone.outputs]
        shapes = [tuple(tensor.shape) for tensor in tensors]
    if [len(shape) for shape in shapes] != [4, 4]:
        raise ValueError(
            "`backbone` must be a built model from images [batch, rows, "
            "columns, channels] to one feature map of the same axes. Received: "
            f"{backbone.name!r} with the shapes {shapes}. Build it, and leave "
            "out its top."
        )
    if first := _with_channels_first(backbone):
        raise ValueError(
            f"`backbone` must have the channels last. Received: {first.name!r} "
            "with data_format='channels_first'."
        )


def _with_channels_first(model: keras.Model) -> Any:
    """Returns a layer of a model that has the channels first, if any."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            layer = _with_channels_first(layer)
        if getattr(layer, "data_format", None) == "channels_first":
            return layer
    return None
