"""What a network looked at: couplings of the predicted class, saliency."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.layers import ClassCaps
from tfcaps.ops import Tensor
from tfcaps.rem.couplings import (
    encoder,
    last_routed_layer,
    same_layers,
    show_last,
    shown_outputs,
)


def saliency_map(
    activations: Tensor, couplings: Tensor, image_shape: tuple[int, int]
) -> Tensor:
    """Returns where in the image the children of a class are.

    `E_mn = mean_t a_mnt c_mnt`, enlarged to the image bilinearly.

    Args:
        activations: Activations `[b, h, w, t]` of the children, the lengths of
            vector capsules.
        couplings: Their couplings `[b, h, w, t]` towards one class.
        image_shape: Rows and columns of an image.

    Returns:
        Tensor `[b, rows, columns]`.

    References:
        - "Capsule Networks Do Not Need to Model Everything", eq. 16
    """
    grid = ops.mean(activations * couplings, axis=-1, keepdims=True)
    enlarged = ops.image.resize(
        grid,
        image_shape,
        interpolation="bilinear",
        data_format="channels_last",
    )
    return ops.squeeze(enlarged, axis=-1)


def explanation(
    model: keras.Model, *, weight_by_activation: bool = True
) -> keras.Model:
    """Returns a model that shows why a class was predicted.

    It shares the layers, and so the weights, of `model`. In the saliency map
    children that cast no vote, because their transformation is zero, count
    nothing: they have no influence on any class. (Their couplings are not zero
    for that; dynamic routing gives them all classes in equal shares.)

    Args:
        model: As in `capsule_outputs`.
        weight_by_activation: Bool. Multiply couplings by activations in the
            saliency map; otherwise it is that of the couplings alone, which say
            where a class looks, whether something is there or not. Defaults to
            `True`.

    Returns:
        A functional model from images to a dict: `lengths` `[b, j]`, `classes`
        `[b]` (int32, the longest), `couplings` `[b, i]` towards that class, and
        `saliency` `[b, rows, columns]`, see `saliency_map`, if the children of
        the last routed layer, a `ClassCaps`, have more than one position.

    Raises:
        ValueError: If the model has no routed layer, or the last one does not
            make classes.
    """
    model = encoder(model)
    layer = last_routed_layer(model)
    shown: dict[str, Tensor] = {}
    copy = same_layers(model, show_last(model, shown))
    outputs = shown_outputs(copy, shown)
    if len(outputs["couplings"].shape) != 3:
        raise ValueError(
            f"The last routed layer of {model.name!r} is a "
            f"{type(layer).__name__}, whose children differ from window to "
            "window. An explanation needs class capsules, such as "
            "`tfcaps.layers.ClassCaps`, at the end."
        )
    towards = TowardsPredicted(name="towards_predicted", dtype="float32")
    lengths = outputs["lengths"]
    classes, couplings = towards(lengths, outputs["couplings"])
    outputs = {"lengths": lengths, "classes": classes, "couplings": couplings}
    children = shown["children"]
    grid: tuple[int, ...] = ()
    if isinstance(layer, ClassCaps):
        grid = layer.children_shape(children.shape)
    if math.prod(grid[:-1]) > 1:
        saliency = Saliency(layer, copy.inputs[0].shape[1:3], name="saliency")
        activations = shown.get("activations")
        if not weight_by_activation:
            activations = ops.ones_like(children[..., 0])
        outputs["saliency"] = saliency(couplings, children, activations)
    return keras.Model(copy.input, outputs, name=model.name)


class TowardsPredicted(keras.layers.Layer):
    """Picks the couplings towards the longest class of each sample."""

    def call(self, lengths: Tensor, couplings: Tensor) -> tuple[Tensor, Tensor]:
        classes = ops.cast(ops.argmax(lengths, axis=-1), "int32")
        where = ops.expand_dims(ops.expand_dims(classes, -1), -1)
        towards = ops.take_along_axis(couplings, where, axis=-1)
        return classes, ops.squeeze(towards, axis=-1)


class Saliency(keras.layers.Layer):
    """Draws the saliency map of the children of a `ClassCaps`."""

    def __init__(self, layer: Any, image_shape: tuple[int, int], name: str):
        super().__init__(name=name, dtype="float32")
        self.layer = layer
        self.image_shape = image_shape

    def call(
        self,
        couplings: Tensor,
        children: Tensor,
        activations: Tensor | None = None,
    ) -> Tensor:
        voting = self.layer.voting_activations(children, activations)
        grid = (-1, *self.layer.children_shape(children.shape))
        return saliency_map(
            ops.reshape(voting, grid),
            ops.reshape(couplings, grid),
            self.image_shape,
        )
