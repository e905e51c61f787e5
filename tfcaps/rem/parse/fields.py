"""Follows the boxes of pixels that tensors depend on through a model."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import clone_with_call, functional
from tfcaps.routing import EMRouting

Array = NDArray[Any]
Shape = Sequence[int]


class Fields(NamedTuple):
    """The box of pixels that each place of a tensor depends on.

    Places are the first axes of the tensor: rows and columns of a map, the
    capsules of a list, or none, where all elements depend on the same. What is
    at one place counts as one.

    Attributes:
        shape: Shape of the tensor, without the batch.
        bounds: First row and column, and the negative of the last ones,
            `[*places, 4]`; the smaller, the larger the box. Those of a place
            that no pixel reaches are infinite.
        centres: Row and column of the middle of each box, as if there were
            pixels beyond the border of the image too, `[*places, 2]`.
        steps: How far centres of a map are from each other, `[2]`; 0 elsewhere.
    """

    shape: tuple[int, ...]
    bounds: Array
    centres: Array
    steps: Array

    @property
    def places(self) -> tuple[int, ...]:
        """The sizes of the axes that are places."""
        return self.bounds.shape[:-1]

    def gathered(
        self, axis: int, taps: ArrayLike, positions: ArrayLike, step: float
    ) -> "Fields":
        """Returns the fields of what sees some rows or columns of a map each.

        Args:
            axis: Int. 0 for rows, 1 for columns.
            taps: What each of the new rows sees, `[new, taps]`; numbers beyond
                the map are padding, which sees nothing.
            positions: Where each lies on the axis, `[new]`, a fraction between
                two rows.
            step: How far positions lie from each other.
        """
        if not self.places:
            return self
        taps, last = np.asarray(taps), self.places[axis] - 1
        beyond = (taps < 0) | (taps > last)
        beyond = beyond.reshape(*taps.shape, *[1] * (2 - axis))
        seen = self.bounds.take(taps.clip(0, last), axis)
        bounds = np.where(beyond, np.inf, seen).min(axis + 1)
        ways = np.reshape(positions, (-1, *[1] * (2 - axis)))
        way = np.eye(2)[axis] * self.steps
        centres = self.centres.take([0], axis) + ways * way
        steps = self.steps * np.where(np.arange(2) == axis, step, 1.0)
        return self._replace(bounds=bounds, centres=centres, steps=steps)

    def windows(
        self,
        kernel: Any,
        strides: Any = 1,
        padding: str = "same",
        dilation: Any = 1,
    ) -> "Fields":
        """Returns the fields of what sees windows of a map."""
        fields = self
        for axis in range(len(self.places)):
            size, stride, rate = (
                n if isinstance(n, int) else n[axis]
                for n in (kernel, strides, dilation)
            )
            side, extent = self.places[axis], (size - 1) * rate + 1
            count, before = (side - extent) // stride + 1, 0
            if padding == "same":
                count = -(-side // stride)
                before = max((count - 1) * stride + extent - side, 0) // 2
            starts = np.arange(count) * stride - before
            taps = starts[:, np.newaxis] + rate * np.arange(size)
            middles = starts + (extent - 1) / 2
            fields = fields.gathered(axis, taps, middles, stride)
        return fields


# From a layer, the fields of its inputs, and the shape of its output without
# the batch, to the fields of that; `None` if it is a case that is not known.
Rule = Callable[[Any, list[Fields], Shape], Fields | None]


def follow(
    model: keras.Model, images: Fields | None = None, layer: Any = None
) -> tuple[Fields, list[Fields], list[str]]:
    """Follows fields through a model, call by call.

    Args:
        model: A functional model.
        images: The fields of its first input. Defaults to those of an image,
            each pixel of which sees itself.
        layer: One of its layers.

    Returns:
        The fields of the model's first output, those of the inputs of `layer`,
        and the names of layers that are not known.
    """
    tensors: list[Any] = [*model.inputs]  # so that ids stay theirs
    known = {id(tensors[0]): images or _of_pixels(*tensors[0].shape[1:])}
    children: list[Fields] = []
    unknown: list[str] = []

    def call(called: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = called(*args, **kwargs)
        given = keras.tree.flatten((args, kwargs))
        inputs = [known[id(x)] for x in given if id(x) in known]
        if called is layer:
            children[:] = inputs
        for tensor in keras.tree.flatten(outputs):
            tensors.append(tensor)
            shape = tuple(tensor.shape[1:])
            known[id(tensor)] = _after(called, inputs, shape, unknown)
        return outputs

    copy = clone_with_call(model, call)
    return known[id(copy.outputs[0])], children, unknown


def sees_all(
    inputs: Sequence[Fields], shape: Shape, *, places: bool = True
) -> Fields:
    """Returns the fields of a tensor whose elements see all of the inputs.

    Args:
        inputs: Fields of the inputs.
        shape: Shape of the tensor.
        places: Bool. Where the first input has the same places, these keep
            their centres. Defaults to `True`.
    """
    first, axes = inputs[0], len(inputs[0].places)
    ends = [fields.bounds.reshape(-1, 4).min(axis=0) for fields in inputs]
    bounds = np.min(ends, axis=0)
    if places and len(shape) > axes and tuple(shape[:axes]) == first.places:
        bounds = np.broadcast_to(bounds, first.bounds.shape)
        return first._replace(shape=tuple(shape), bounds=bounds)
    centres = first.centres.reshape(-1, 2).mean(axis=0)
    return Fields(tuple(shape), bounds, centres, np.zeros(2))


def merged(inputs: Sequence[Fields], shape: Shape) -> Fields:
    """Returns the union of fields at the same places.

    Centres are the mean of those that have places. A gate of the whole map, as
    in squeeze and excitation, has none, and moves none.
    """
    bounds = functools.reduce(np.minimum, [part.bounds for part in inputs])
    placed = [part for part in inputs if part.steps.any()] or inputs
    centres = sum(part.centres for part in placed) / len(placed)
    centres = np.broadcast_to(centres, (*bounds.shape[:-1], 2))
    steps = np.mean([part.steps for part in placed], axis=0)
    return Fields(tuple(shape), bounds, centres, steps)


def _of_pixels(rows: int, columns: int, channels: int) -> Fields:
    places = np.moveaxis(np.indices((rows, columns), float), 0, -1)
    bounds = np.concatenate([places, -places], axis=-1)
    return Fields((rows, columns, channels), bounds, places, np.ones(2))


def _after(
    layer: Any, inputs: list[Fields], shape: tuple[int, ...], unknown: list[str]
) -> Fields:
    """Returns the fields of a layer's output; notes a name if not known."""
    fields = None
    if None not in (*shape, *(n for part in inputs for n in part.shape)):
        parts = getattr(layer, "equivalent_layers", [layer])
        if len(inputs) == 1 and (parts != [layer] or _is_graph(layer)):
            fields = _inside(parts, inputs[0], unknown)
        else:
            fields = _by_rule(layer, inputs, shape)
    if fields is None or fields.places != shape[: len(fields.places)]:
        unknown.append(layer.name)
        return sees_all(inputs, shape)
    return fields._replace(shape=shape)


def _inside(parts: list[Any], fields: Fields, unknown: list[str]) -> Fields:
    """Returns the fields after layers, one of which may be a whole model."""
    for part in parts:
        if _is_graph(part):
            fields, _, names = follow(functional(part), fields)
            unknown += names
        else:
            shape = part.compute_output_shape((None, *fields.shape))[1:]
            after = _by_rule(part, [fields], shape)
            fields = after or sees_all([fields], shape)
            fields = fields._replace(shape=shape)
    return fields


def _is_graph(layer: Any) -> bool:
    """Tells whether a layer is a model whose layers can be followed."""
    known = isinstance(layer, keras.Model) and getattr(layer, "inputs", None)
    return bool(known) and len(layer.outputs) == 1


def _by_rule(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    """Returns the fields of a layer's output, `None` of unknown layers.

    Args:
        layer: A layer, or an operation of `keras.ops`.
        inputs: Fields of its inputs.
        shape: Shape of its output without the batch.
    """
    if getattr(layer, "data_format", None) == "channels_first":
        return None
    for kind in type(layer).__mro__:
        if kind.__module__.startswith(("keras.", "tfcaps.")):
            if kind.__name__ in _RULES:
                return _RULES[kind.__name__](layer, inputs, shape)
    return None


def _same(layer: Any, inputs: list[Fields], shape: Shape) -> Fields:
    return inputs[0]


def _merge(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    same = all(len(fields.shape) == len(shape) for fields in inputs)
    return merged(inputs, shape) if same else None


def _slid(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    """Layers of windows; those of capsules may take poses and activations."""
    fields = merged(inputs, shape)
    if len(fields.places) == 1 or layer.padding not in ("valid", "same"):
        return None
    kernel = getattr(layer, "kernel_size", None) or layer.pool_size
    strides = getattr(layer, "strides", 1)
    dilation = getattr(layer, "dilation_rate", 1)
    return fields.windows(kernel, strides, layer.padding, dilation)


def _part_caps(layer: Any, inputs: list[Fields], shape: Shape) -> Fields:
    return inputs[0].windows(layer.window)  # of all only one part stays


def _conv_caps(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    fields = _slid(layer, inputs, shape)
    if fields is None or not isinstance(layer.routing, EMRouting):
        return fields
    # The parents of all windows that hold a child compete for it, so that each
    # further iteration looks at the windows that share a child with this one.
    reach = [
        2 * ((size - 1) // stride) + 1
        for size, stride in zip(layer.kernel_size, layer.strides, strict=True)
    ]
    for _ in range(layer.routing.iterations - 1):
        fields = fields.windows(reach)
    return fields


def _conv_caps_3d(layer: Any, inputs: list[Fields], shape: Shape) -> Fields:
    # Parents at all positions compete for a child.
    slid = _slid(layer, inputs, shape)
    return sees_all(inputs if slid is None else [slid], shape)


def _whole(layer: Any, inputs: list[Fields], shape: Shape) -> Fields:
    return sees_all(inputs, shape)


def _placeless(layer: Any, inputs: list[Fields], shape: Shape) -> Fields:
    return sees_all(inputs, shape, places=False)


def _mixed(layer: Any, inputs: list[Fields], shape: Shape) -> Fields:
    """Layers whose elements along one or more axes depend on each other."""
    axes, (fields,) = np.ravel(getattr(layer, "axis", -1)), inputs
    first = min(axes % (len(fields.shape) + 1)) - 1
    is_place = first < len(fields.places)
    return sees_all(inputs, shape, places=False) if is_place else fields


def _concatenate(
    layer: Any, inputs: list[Fields], shape: Shape
) -> Fields | None:
    axis = layer.axis % (len(shape) + 1) - 1
    places = [len(fields.places) for fields in inputs]
    if axis >= max(places):
        return merged(inputs, shape)
    if axis or max(places) > 1:
        return None
    lists = [
        [np.broadcast_to(x, (part.shape[0], x.shape[-1])) for x in part[1:3]]
        for part in inputs
    ]
    bounds, centres = map(np.concatenate, zip(*lists, strict=True))
    return Fields(tuple(shape), bounds, centres, np.zeros(2))


def _reshape(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    (fields,) = inputs
    axes = len(fields.places)
    if fields.places == tuple(shape[:axes]):
        return fields
    # A list, if each of its rows is at one place.
    each = math.prod(fields.shape[axes:])
    if each % math.prod(shape[1:]):
        return None
    rows = np.arange(shape[0]) * math.prod(shape[1:]) // each
    bounds = fields.bounds.reshape(-1, 4)[rows]
    centres = fields.centres.reshape(-1, 2)[rows]
    return Fields(tuple(shape), bounds, centres, np.zeros(2))


def _shifted(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    """Padding and cropping."""
    (fields,) = inputs
    if len(fields.places) == 1:
        return None
    cropped = getattr(layer, "cropping", None)
    for axis in (0, 1):
        before = cropped[axis][0] if cropped else -layer.padding[axis][0]
        places = np.arange(shape[axis]) + before
        fields = fields.gathered(axis, places[:, np.newaxis], places, 1.0)
    return fields


def _resized(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    """Up-sampling and resizing."""
    (fields,) = inputs
    how = layer.interpolation
    if how not in ("nearest", "bilinear") or len(fields.places) == 1:
        return None
    more = "antialias crop_to_aspect_ratio pad_to_aspect_ratio".split()
    if any(getattr(layer, name, False) for name in more):
        return None
    for axis, old in enumerate(fields.places):
        new = shape[axis]
        positions = (np.arange(new) + 0.5) * old / new - 0.5
        below = np.floor(positions + (0.5 if how == "nearest" else 0.0))
        above = np.ceil(positions) if how == "bilinear" else below
        taps = np.stack([below, above], axis=-1).clip(0, old - 1).astype(int)
        fields = fields.gathered(axis, taps, positions, old / new)
    return fields


# Rules by the names of layers and of operations.
_RULES: dict[str, Rule] = {
    name: rule
    for rule, names in {
        _same: "Activation ActivityRegularization AlphaDropout "
        "BatchNormalization Dropout ELU GaussianDropout GaussianNoise Identity "
        "LeakyReLU Normalization PReLU RandomBrightness RandomContrast "
        "RandomFlip RandomRotation RandomTranslation RandomZoom ReLU Rescaling "
        "SpatialDropout2D Abs Cast Negative Relu Sigmoid Sqrt Square",
        _mixed: "Dense LayerNormalization Length RMSNormalization Softmax "
        "Squash UnitNormalization",
        _merge: "Add Average Divide Maximum Minimum Multiply Subtract",
        _slid: "AveragePooling2D AveragePooling3D Conv2D Conv3D "
        "DepthwiseConv2D MaxPooling2D MaxPooling3D PrimaryCaps "
        "PrimaryMatrixCaps SeparableConv2D",
        _whole: "GroupNormalization",
        _placeless: "ClassCaps GlobalAveragePooling2D GlobalMaxPooling2D",
        _shifted: "Cropping2D Cropping3D ZeroPadding2D ZeroPadding3D",
        _resized: "Resizing UpSampling2D",
        _reshape: "Flatten Reshape",
        _concatenate: "Concatenate",
        _conv_caps: "ConvCaps",
        _conv_caps_3d: "ConvCaps3D",
        _part_caps: "PartCaps",
    }.items()
    for name in names.split()
}
