"""A trained network as the first layer of another one."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from tfcaps.models.building_blocks import Shape
from tfcaps.ops import Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class FrozenModel(keras.layers.Layer):
    """Runs a trained model in inference mode and keeps its weights fixed.

    Images that do not have the model's input size are resized. Its weights are
    neither trained nor pruned, also in copies and after loading, where Keras
    makes all layers of a trainable model trainable.

    Args:
        model: A built `keras.Model` with one input and one output. It is frozen
            in place.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, model: keras.Model, **kwargs: Any):
        super().__init__(**kwargs)
        self.model = model
        # Numbers of the weights that may be trained, known once it is built.
        self._learnt: tuple[int, ...] | None = None

    def build(self, input_shape: Any) -> None:
        self._freeze()

    def call(self, inputs: Tensor) -> Tensor:
        size = self.model.inputs[0].shape[1:3]
        if None not in size and inputs.shape[1:3] != size:
            inputs = ops.image.resize(inputs, size, data_format="channels_last")
        return self.model(inputs, training=False)

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
        if self._learnt is None:
            weights = enumerate(self.model.weights)
            self._learnt = tuple(k for k, w in weights if w.trainable)
        # Keras does not reach layers in layers that are frozen already.
        for weight in self.model.weights:
            weight.trainable = weight.prunable = False

    @contextlib.contextmanager
    def thawed(self) -> Iterator[None]:
        """Lets the weights be trained in a block; none is pruned.

        The model still runs in inference mode: batch normalisation keeps its
        statistics. Train a model within the block in which it is compiled.

        Raises:
            ValueError: If the model was given with all of its weights frozen.
        """
        if not self._learnt:
            raise ValueError(
                f"The backbone {self.model.name!r} has no trainable weights. "
                "Save it with `trainable=True`."
            )
        for number in self._learnt:
            self.model.weights[number].trainable = True
        try:
            yield
        finally:
            self._freeze()

    def get_config(self) -> dict[str, Any]:
        model = keras.saving.serialize_keras_object(self.model)
        return {**super().get_config(), "model": model}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FrozenModel":
        model = keras.saving.deserialize_keras_object(config["model"])
        return cls(**{**config, "model": model})


@keras.saving.register_keras_serializable(package="tfcaps")
class ReverseChannels(keras.layers.Layer):
    """Returns the channels last first: blue, green, red of colours.

    Some published weights expect this order.

    Args:
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def call(self, inputs: Tensor) -> Tensor:
        return ops.flip(inputs, axis=-1)

    @property
    def equivalent_layers(self) -> list[keras.layers.Layer]:
        """A layer of equal receptive fields, for `rem.receptive_fields`."""
        return [keras.layers.Identity()]


def on_backbone(
    backbone: keras.Model, input_shape: Shape | None
) -> tuple[Tensor, Tensor]:
    """Returns the input `images`, and the frozen backbone's feature map of it.

    Args:
        backbone: A built model from images to a feature map.
        input_shape: Rows, columns and channels of an image, or `None` for the
            backbone's own.

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
    return images, FrozenModel(backbone, dtype="float32", name="backbone")(
        images
    )


def check_backbone(backbone: keras.Model) -> None:
    """Raises `ValueError` unless it makes one feature map of one image."""
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
