"""Capsules on the features of a trained network."""

from typing import Any

import keras
from keras import ops

from tfcaps.layers import ClassCaps, PrimaryCaps
from tfcaps.models.building_blocks import Shape, batch_norm, capsule_network
from tfcaps.models.parts_capsnet import sharp_class_caps
from tfcaps.ops import Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class FrozenModel(keras.layers.Layer):
    """Runs a trained model in inference mode and keeps its weights fixed.

    Images of another size are resized. Its weights are neither trained nor
    pruned, also in copies and after loading, where Keras makes all layers of a
    trainable model trainable.

    Args:
        model: A built `keras.Model` with one input and one output. It is frozen
            in place.
        **kwargs: Arguments of `keras.layers.Layer`.
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

    def get_config(self) -> dict[str, Any]:
        model = keras.saving.serialize_keras_object(self.model)
        return {**super().get_config(), "model": model}

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


def backbone_capsnet(
    backbone: keras.Model,
    num_classes: int,
    *,
    input_shape: tuple[int, int, int] | None = None,
    padding: int = 6,
    primary_types: int = 1,
    primary_dim: int = 8,
    primary_kernel_size: int = 9,
    class_dim: int = 16,
    routing: Any = 3,
    name: str = "backbone_capsnet",
) -> keras.Model:
    """Builds DR-CapsNet's capsules on a frozen backbone.

    The feature map of the backbone goes through a ReLU and a border of zeros
    into PrimaryCaps and ClassCaps, which alone are trained. The defaults are
    those of the REM paper on Tiny ImageNet: on the 7x7x512 map of a ResNet-18
    they make 36 primary capsules and, for 200 classes, 1,256,584 trainable
    parameters.

    What is not listed is that of `dr_capsnet`.

    Args:
        backbone: Trained model from images `[b, h, w, c]` to a feature map
            `[b, rows, columns, channels]`, such as one of `keras.applications`
            with `include_top=False`. It is frozen in place, and works as in
            prediction: batch normalisation keeps its statistics.
        input_shape: Rows, columns and channels of an image, in the backbone's
            scale. Images of another size than the backbone's are resized in the
            network. Defaults to the backbone's own.
        padding: Int. Zeros on each side of the feature map. Defaults to `6`.
        primary_types: Int. Primary capsule types. Defaults to `1`.

    Raises:
        ValueError: If the backbone is not built or makes no feature map, the
            images' size is not known or they have other channels, or the map
            is too small for the window.

    Example:

    >>> import math
    >>> conv = keras.layers.Conv2D(512, 32, 32)  # stands for a trained model
    >>> backbone = keras.Sequential([keras.Input((224, 224, 3)), conv])
    >>> model = backbone_capsnet(backbone, 200, input_shape=(64, 64, 3))
    >>> sum(math.prod(v.shape) for v in model.trainable_variables)
    1256584

    References:
        - "Capsule Networks Do Not Need to Model Everything", table 10
    """
    images, features = on_backbone(backbone, input_shape)
    features = keras.layers.ReLU(name="relu")(features)
    features = keras.layers.ZeroPadding2D(
        padding, data_format="channels_last", name="padding"
    )(features)
    sides, least = features.shape[1:3], primary_kernel_size
    if any(side is not None and side < least for side in sides):
        raise ValueError(
            f"A feature map of {sides[0]} rows and {sides[1]} columns, with "
            f"padding={padding}, is too small for primary_kernel_size={least}."
        )
    children = PrimaryCaps(
        primary_types,
        primary_dim,
        primary_kernel_size,
        2,
        name="primary_caps",
        data_format="channels_last",
    )(features)
    layer = ClassCaps(num_classes, class_dim, routing, name="class_caps")
    return capsule_network(images, children, [layer], name)


def backbone_parts_capsnet(
    backbone: keras.Model,
    num_classes: int,
    *,
    input_shape: tuple[int, int, int] | None = None,
    primary_types: int = 16,
    primary_dim: int = 8,
    class_dim: int = 8,
    routing: Any = None,
    name: str = "backbone_parts_capsnet",
) -> keras.Model:
    """Builds the capsules of `parts_capsnet` on a frozen backbone.

    The feature map is normalised, whatever the scale of the backbone, and each
    of its positions has primary capsules of its own. Routing is as sharp as in
    `parts_capsnet`, so that trees show places of the image; a deep backbone
    sees more around each of them, often the whole image.

    Arguments are those of `backbone_capsnet` and `parts_capsnet`.

    Example:

    >>> conv = keras.layers.Conv2D(32, 8, 8)  # stands for a trained model
    >>> backbone = keras.Sequential([keras.Input((64, 64, 3)), conv])
    >>> model = backbone_parts_capsnet(backbone, 10)
    >>> model.get_layer("primary_caps").output.shape
    (None, 8, 8, 16, 8)
    """
    images, features = on_backbone(backbone, input_shape)
    children = PrimaryCaps(
        primary_types,
        primary_dim,
        1,
        name="primary_caps",
        data_format="channels_last",
    )(batch_norm("norm")(features))
    layer = sharp_class_caps(num_classes, class_dim, routing, "type")
    return capsule_network(images, children, [layer], name)


def on_backbone(
    backbone: keras.Model, input_shape: Shape | None
) -> tuple[Tensor, Tensor]:
    """Returns the input `images`, and the frozen backbone's map of it.

    Raises:
        ValueError: As `backbone_capsnet`.
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


def _with_channels_first(model: keras.Model) -> Any:
    """Returns a layer of a model that has the channels first, if any."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            layer = _with_channels_first(layer)
        if getattr(layer, "data_format", None) == "channels_first":
            return layer
    return None
