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
from tfcaps.layers.part_caps import SPARE_BIAS, compete, winners
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

    Arguments that are not listed are those of `dr_capsnet`.

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
            which no class has one blueprint. Train it without `widths` of the
            callback. Defaults to `False`.
        routing: A `MeanShiftRouting`, or `None` for one with its defaults.
            Defaults to `None`.
        decoder: Bool. Add the dense decoder of class poses, see `with_decoder`.
            Defaults to `False`.

    Returns:
        As `dr_capsnet`, with activations as its lengths.

    Raises:
        ValueError: If an argument is out of range, the images are too small for
            a part and its neighbours, or there are more types than places.

    Example:

    >>> constellation_capsnet((32, 32, 1), 10, part_types=5).count_params()
    7946

    References:
        - As of `tfcaps.routing.MeanShiftRouting`.
    """
    if not filters:
        raise ValueError("`filters` must not be empty. Received: filters=().")
    strides = strides or [1] * (len(filters) - 1) + [2]
    if len(strides) != len(filters):
        raise ValueError(
            "`strides` must be as many as `filters`. Received: "
            f"strides={tuple(strides)}, filters={tuple(filters)}."
        )
    step = math.prod(strides)
    least = max(step * window, kernel_size)
    check_input_shape(
        input_shape,
        (least, least),
        f"for window={window} places of {step} pixels",
    )
    images = keras.Input(input_shape, name="images")
    features = normalized_convolutions(images, filters, strides, kernel_size)
    _, rows, columns, _ = features.shape
    if part_types > rows * columns:
        raise ValueError(
            "`part_types` must not exceed the places at which parts can stand, "
            f"here {rows}x{columns}. Received: part_types={part_types}."
        )
    places: Any = {
        "stride": step,
        "offset": tuple(
            first_place(side, kernel_size, strides) for side in input_shape[:2]
        ),
    }
    # Of one type, all places of the image compete.
    everywhere = 2 * max(rows, columns) - 1
    poses, present = PartCaps(
        part_types,
        everywhere if maps else window,
        per_type=maps,
        name="part_caps",
        **places,
    )(features)
    settings: dict[str, Any] = {}
    if maps:
        settings = {"width": 3.0, "orphan": 0.5}
    routing = routing or MeanShiftRouting(**settings)
    places |= {"name": "class_caps"}
    if maps:
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
    parts = only_layer(model, PartCaps)
    classes = only_layer(model, ConstellationCaps)
    seen: dict[str, Any] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer is parts:
            *outputs, presence = Beside(layer, "return_presence")(
                *args, **kwargs
            )
            seen["presence"] = presence
            return tuple(outputs)
        if layer is classes:
            *outputs, evidence = Beside(layer, "return_evidence")(
                *args, **kwargs
            )
            seen["evidence"] = evidence
            return tuple(outputs) if outputs[1:] else outputs[0]
        return layer(*args, **kwargs)

    copy = graphs.clone_with_call(model, call)
    pixels = copy.input
    if template_size is None:
        return keras.Model(pixels, seen, name=model.name)
    soft = SoftParts(parts.window, parts.power, parts.per_type)(
        seen["presence"]
    )
    decoder = TemplateDecoder(
        pixels.shape[1:],
        template_size,
        parts.offset,
        name="reconstruction",
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
    parts, classes = (
        only_layer(model, kind) for kind in (PartCaps, ConstellationCaps)
    )
    kept = ops.convert_to_numpy(parts.conv.bias) > 0.5 * SPARE_BIAS
    if not kept.any():
        raise ValueError(
            f"All {len(kept)} types of {model.name!r} are spare. Train it anew."
        )
    if kept.all():
        return model
    wanted = {"num_types": int(kept.sum())}
    smaller = {
        layer.name: layer.__class__.from_config({**layer.get_config(), **more})
        for layer, more in ((parts, wanted), (classes, {}))
    }
    clone = keras.models.clone_model(
        model, clone_function=lambda layer: smaller.get(layer.name, layer)
    )
    in_blueprint = np.tile(kept, classes.instances)
    for old, new in (
        (parts, smaller[parts.name]),
        (classes, smaller[classes.name]),
    ):
        values = []
        for before, after in zip(old.weights, new.weights, strict=True):
            value = ops.convert_to_numpy(before)
            if value.shape != tuple(after.shape):
                of_types = old is parts
                value = value[..., kept] if of_types else value[in_blueprint]
            values.append(value)
        new.set_weights(values)
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


@keras.saving.register_keras_serializable(package="tfcaps")
class SoftParts(keras.layers.Layer):
    """Lets places compete softly, as `PartCaps` does in training.

    Args:
        window: Int. As in `PartCaps`.
        power: Float. As in `PartCaps`.
        per_type: Bool. As in `PartCaps`.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(
        self, window: int, power: float, per_type: bool = False, **kwargs: Any
    ):
        kwargs.setdefault("autocast", False)
        super().__init__(**{"dtype": "float32", **kwargs})
        self.window = window
        self.power = power
        self.per_type = per_type

    def call(self, inputs: Any) -> Any:
        if self.per_type:
            return winners(inputs, inputs[..., :-1], self.window)
        return compete(inputs, self.window, self.power)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], input_shape[-1] - 1)

    def get_config(self) -> dict[str, Any]:
        config = {
            "window": self.window,
            "power": self.power,
            "per_type": self.per_type,
        }
        return {**super().get_config(), **config}


def only_layer(model: keras.Model, kind: type) -> Any:
    found = [layer for layer in model.layers if isinstance(layer, kind)]
    if len(found) != 1:
        raise ValueError(
            f"The model {model.name!r} must have one `{kind.__name__}`, as "
            "`tfcaps.models.constellation_capsnet` has. Received: one with "
            f"{len(found)}."
        )
    return found[0]
