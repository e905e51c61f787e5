"""A network whose parse trees name parts and say where they are."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import graphs
from tfcaps.layers import (
    ConstellationCaps,
    MapCaps,
    PartCaps,
    TemplateDecoder,
)
from tfcaps.layers.part_caps import (
    SPARE_BIAS,
    compete,
    of_types,
    winners,
)
from tfcaps.models.building_blocks import (
    capsule_network,
    check_input_shape,
    normalized_convolutions,
)
from tfcaps.routing import MeanShiftRouting


def constellation_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    part_types: int = 16,
    *,
    filters: Sequence[int] = (12, 24),
    kernel_size: int = 5,
    strides: Sequence[int] | None = None,
    window: int = 5,
    instances: int = 1,
    parts: int | None = None,
    repulsion: float = 0.1,
    maps: bool = False,
    routing: Any = None,
    decoder: bool = False,
    name: str = "constellation_capsnet",
) -> keras.Model:
    """Builds a small network of parts that stand in constellations.

    Convolutions find parts of a few types, `PartCaps`, whose pose is their
    place alone; `ConstellationCaps` find the class whose blueprint they fit. So
    a leaf of a tree has a type, which says what the part is, and a place.

    Train `tfcaps.models.with_templates(model)`, which also draws the image from
    its parts, with the callback `tfcaps.callbacks.BlueprintEstimation`.

    Arguments, results (here lengths are activations) and errors that are not
    listed are those of `dr_capsnet`.

    Args:
        input_shape: Rows, columns and channels of an image. With the defaults
            a part is about seven pixels large.
        part_types: Int. Most types of parts there may be; those that training
            does not need are left without a kernel. Defaults to `16`.
        filters: Ints. Channels of the convolutions. Defaults to `(12, 24)`.
        kernel_size: Int. Their rows and columns. Defaults to `5`.
        strides: Ints. Their steps. Defaults to `None`, 2 of the last one.
        window: Int. Within so many places there is one part, see `PartCaps`.
            Defaults to `5`.
        instances: Int. How many parts of one type a class may have. Defaults to
            `1`.
        parts: Int or `None`. Most parts of a class, see `ConstellationCaps`.
            Defaults to `None`.
        repulsion: Float. See `ConstellationCaps`. Defaults to `0.1`.
        maps: Bool. A class has maps of where types tell for it, `MapCaps`, and
            each type is at one place of the image at most: for handwriting, of
            which no class has one blueprint. Convolutions take means instead of
            steps. Train it without `widths` of the callback. Defaults to
            `False`.
        routing: A `MeanShiftRouting`, or `None` for one with its defaults.
            Defaults to `None`.
        decoder: Bool. Add the dense decoder of class poses, see `with_decoder`.
            Defaults to `False`.

    Example:

    >>> constellation_capsnet((32, 32, 1), 10, part_types=5).count_params()
    7946

    References:
        - As of `tfcaps.routing.MeanShiftRouting`.
    """
    strides = strides or [1] * (len(filters) - 1) + [2]
    step = math.prod(strides)
    least = max(step * window, kernel_size)
    because = f"for window={window} places of {step} pixels"
    check_input_shape(input_shape, (least, least), because)
    images = keras.Input(input_shape, name="images")
    features = normalized_convolutions(
        images, filters, strides, kernel_size, pooled=maps
    )
    _, rows, columns, _ = features.shape
    if part_types > rows * columns:
        raise ValueError(
            "`part_types` must not exceed the places at which parts can stand, "
            f"here {rows}x{columns}. Received: part_types={part_types}."
        )
    offset = [first_place(n, kernel_size, strides) for n in input_shape[:2]]
    places: Any = {"stride": step, "offset": tuple(offset)}
    if maps:  # of one type, all places of the image compete
        window = 2 * max(rows, columns) - 1
    poses, present = PartCaps(
        part_types,
        window,
        per_type=maps,
        name="part_caps",
        **places,
        data_format="channels_last",
    )(features)
    places |= {"name": "class_caps"}
    if maps:
        routing = routing or MeanShiftRouting(width=3.0, orphan=0.7)
        layer: Any = MapCaps(num_classes, routing, **places)
    else:
        layer = ConstellationCaps(
            num_classes,
            routing,
            repulsion=repulsion,
            instances=instances,
            parts=parts,
            **places,
        )
    # By their place: `Beside` takes no other tensors by name.
    classes = layer(poses, present, return_activations=True)
    return capsule_network(images, classes, [], name, decoder)


def first_place(side: int, kernel_size: int, strides: Sequence[int]) -> int:
    """Returns the pixel of the middle of the first window."""
    place, step = 0, 1
    for stride in strides:
        count = -(-side // stride)
        padding = max((count - 1) * stride + kernel_size - side, 0)
        place += step * (kernel_size // 2 - padding // 2)
        side, step = count, step * stride
    return place


def with_templates(
    model: keras.Model,
    images: Any = None,
    *,
    template_size: int | None = 11,
) -> keras.Model:
    """Returns a network of parts with the outputs that it is trained on.

    It shares the layers, and so the weights, of `model`. Train it on its
    outputs, with labels and images:

        training = tfcaps.models.with_templates(model)
        training.compile("adam", tfcaps.losses.constellation_losses())
        schedule = tfcaps.callbacks.BlueprintEstimation(images, labels, epochs)
        targets = {"evidence": labels, "presence": labels,
                   "reconstruction": images}
        training.fit(images, targets, epochs=epochs, callbacks=[schedule])

    Args:
        model: A functional model with one `PartCaps` and one
            `ConstellationCaps`, such as
            `tfcaps.models.constellation_capsnet`.
        images: Some hundreds of images `[n, h, w, c]`, to train on a network
            that has been trained: its templates become what its types stand
            for. Defaults to `None`, which draws them at random.
        template_size: Int, odd. Rows and columns of the picture of a type, in
            pixels; or `None` for no pictures and no `reconstruction`, as of a
            network on a backbone. Defaults to `11`.

    Returns:
        A functional model from images to a dict: `evidence` `[b, j]`, the
        logits of the classes; `presence` `[b, h, w, t + 1]`, how much each type
        and nothing is at each place; `reconstruction` `[b, h, w, c]`, the image
        drawn from the parts.

    Raises:
        ValueError: If the model has not one of each of these layers.
    """
    model = graphs.encoder(model)
    parts = graphs.only_layer(model, PartCaps)
    classes = graphs.only_layer(model, ConstellationCaps)
    seen: dict[str, Any] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer not in (parts, classes):
            return layer(*args, **kwargs)
        name = "presence" if layer is parts else "evidence"
        more = Beside(layer, f"return_{name}")
        *outputs, seen[name] = more(*args, **kwargs)
        return tuple(outputs) if outputs[1:] else outputs[0]

    copy = graphs.clone_with_call(model, call)
    pixels = copy.input
    if template_size is None:
        return keras.Model(pixels, seen, name=model.name)
    presence = seen["presence"]
    # As places compete in training.
    if parts.per_type:
        soft = winners(presence, of_types(presence)[0], parts.window)
    else:
        soft = compete(presence, parts.window, parts.power)
    decoder = TemplateDecoder(
        pixels.shape[1:], template_size, parts.offset, name="reconstruction"
    )
    seen["reconstruction"] = decoder(soft)
    if images is not None:
        found = keras.Model(pixels, soft).predict(images, verbose=0)
        decoder.adapt(images, found)
    return keras.Model(pixels, seen, name=model.name)


def without_spare_types(model: keras.Model) -> keras.Model:
    """Returns a network of parts without the types that others have taken in.

    It has the same outputs, and fewer children. Types are numbered anew, in
    their order. Its other layers are those of `model`.

    Args:
        model: A functional model with one `PartCaps` and one
            `ConstellationCaps`, trained with
            `tfcaps.callbacks.BlueprintEstimation`.

    Returns:
        `model` itself, if no type is spare.

    Raises:
        ValueError: If the model has not one of each of these layers, or all
            types are spare.
    """
    parts = graphs.only_layer(model, PartCaps)
    classes = graphs.only_layer(model, ConstellationCaps)
    kept = ops.convert_to_numpy(parts.conv.bias) > 0.5 * SPARE_BIAS
    if not kept.any():
        raise ValueError(
            f"All {len(kept)} types of {model.name!r} are spare. Train it anew."
        )
    if kept.all():
        return model

    def smaller(layer: Any) -> Any:
        if layer not in (parts, classes):
            return layer
        config = layer.get_config()
        if layer is parts:
            config["num_types"] = int(kept.sum())
        return type(layer).from_config(config)

    clone = keras.models.clone_model(model, clone_function=smaller)
    rows = np.tile(kept, classes.instances)  # of the blueprints
    for layer in (parts, classes):
        pairs = zip(
            layer.weights, clone.get_layer(layer.name).weights, strict=True
        )
        for old, new in pairs:
            value = ops.convert_to_numpy(old)
            if value.shape != tuple(new.shape):
                value = value[..., kept] if layer is parts else value[rows]
            new.assign(value)
    return clone


@keras.saving.register_keras_serializable(package="tfcaps")
class Beside(keras.layers.Layer):
    """Calls a layer with one more output.

    Keras 3.15 builds no functional model in which a layer that returned fewer
    outputs before returns more, so a layer of its own makes the second call.

    Args:
        layer: The layer.
        flag: Its call argument that asks for the output.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, layer: Any, flag: str, **kwargs: Any):
        kwargs.setdefault("autocast", False)
        super().__init__(**{"dtype": layer.dtype_policy, **kwargs})
        self.layer = layer
        self.flag = flag

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer(*args, **{**kwargs, self.flag: True})

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer.compute_output_spec(
            *args, **{**kwargs, self.flag: True}
        )

    def get_config(self) -> dict[str, Any]:
        layer = keras.saving.serialize_keras_object(self.layer)
        return {**super().get_config(), "layer": layer, "flag": self.flag}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Beside":
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(**{**config, "layer": layer})
