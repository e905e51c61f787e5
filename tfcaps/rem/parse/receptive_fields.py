"""Finds the part of an image that each child of the class capsules sees."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps import graphs
from tfcaps.ops import Array

Shape = Sequence[int]


@dataclasses.dataclass(frozen=True)
class ReceptiveFields:
    """The receptive fields of the children of a model's class capsules.

    A field is a box of pixels, given by rows and columns; the centre of the
    first pixel is at 0. Children are counted as in couplings: row, column,
    type.

    Attributes:
        image_shape: Rows and columns of an image.
        grid: How children are arranged, rows, columns and types `(h, w, t)`;
            `(1, 1, i)`, with the middle of the image as the centre, where they
            have no positions.
        centres: Row and column of the middle of each field, `[h, w, 2]`,
            floats. Near a padded border it is that of the whole window, also
            if that lies beyond the image. Where layers do not keep positions,
            or are not known, the grid is spread evenly over the image.
        boxes: First row and column, and those after the last, of what each
            child sees of the image, `[i, 4]`, ints. A child that sees nothing
            has a box without pixels.
        unknown: Names of layers whose fields are not known. They are taken to
            see all of their input, and then no child has a place.
    """

    image_shape: tuple[int, int]
    grid: tuple[int, int, int]
    centres: Array
    boxes: NDArray[np.int64]
    unknown: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the largest field."""
        rows, columns = (self.boxes[:, 2:] - self.boxes[:, :2]).max(axis=0)
        return int(rows), int(columns)

    @property
    def child_centres(self) -> Array:
        """The middle of each child's field, `[i, 2]`, NaN if not known."""
        if self.unknown:
            return np.full((len(self.boxes), 2), np.nan)
        if self.grid[:2] == (1, 1):
            return (self.boxes[:, :2] + self.boxes[:, 2:] - 1) / 2
        return np.repeat(self.centres.reshape(-1, 2), self.grid[2], axis=0)

    @property
    def is_local(self) -> bool:
        """Whether children see different parts, and none the whole image."""
        whole = np.all(self.boxes == (0, 0, *self.image_shape), axis=1)
        return bool(len(np.unique(self.boxes, axis=0)) > 1 and not whole.any())

    @property
    def regions(self) -> "ReceptiveFields":
        """What stands for the children in a picture: fields, or `cells`.

        Cells do where there is a grid, and fields are not local.
        """
        if self.is_local or self.unknown or min(self.grid[:2]) == 1:
            return self
        return self.cells

    @property
    def cells(self) -> "ReceptiveFields":
        """The same children, each with the cell of the image at its place.

        The image is cut into as many equal cells as the grid has.
        """
        places = np.moveaxis(np.indices(self.grid[:2]), 0, -1)
        edges = np.concatenate([places, places + 1], axis=-1)
        edges = np.rint(edges * (2 * self.image_shape) / (2 * self.grid[:2]))
        boxes = edges.reshape(-1, 4).repeat(self.grid[2], axis=0)
        return dataclasses.replace(
            self,
            boxes=boxes.astype(np.int64),
            centres=(edges[..., :2] + edges[..., 2:] - 1) / 2,
        )


def receptive_fields(model: keras.Model) -> ReceptiveFields:
    """Returns the part of an image that each child of the class capsules sees.

    It follows the layers from the image to the children of the last routed
    layer: windows (kernel, stride, dilation, padding) widen a field, branches
    that meet unite theirs, and layers that look at a whole map, such as `Dense`
    on a flattened one, `GroupNormalization` or a hidden `ClassCaps`, see all
    that it has seen. Weights do not matter: a field is all that can change a
    child in prediction. Routing widens it where windows compete, as in
    `EMRouting`, once for each iteration after the first.

    Args:
        model: As in `capsule_outputs`, with images of a known size.

    Raises:
        ValueError: If the model has no routed layer, the last one does not make
            classes, or its input is no image.

    Example:

    >>> from tfcaps.models import dr_capsnet
    >>> fields = receptive_fields(dr_capsnet((28, 28, 1), 10))
    >>> fields.size, fields.centres[0, :3].tolist()
    ((17, 17), [[8.0, 8.0], [8.0, 10.0], [8.0, 12.0]])

    References:
        - Araujo, Norris, Sim, 2019, "Computing receptive fields of
          convolutional neural networks", Distill
    """
    model = graphs.classifier(model)
    arranged = graphs.children_grid(model)
    shape = tuple(model.inputs[0].shape[1:])
    if len(shape) != 3 or None in shape:
        raise ValueError(
            f"{model.name!r} must take images [batch, rows, columns, channels] "
            f"of a known size. Received: an input of shape {(None, *shape)}."
        )
    places = np.moveaxis(np.indices(shape[:2], float), 0, -1)
    bounds = np.concatenate([places, -places], axis=-1)
    pixels = Fields(shape, bounds, step=np.ones(2))
    unknown: list[str] = []
    fields = _follow(
        model, pixels, unknown, until=graphs.last_routed_layer(model)
    )
    grid = arranged if len(arranged) == 3 else (1, 1, arranged[0])
    _, bounds, start, step = fields
    bounds = bounds.reshape(-1, 4)
    if len(arranged) == 3:
        bounds = bounds.repeat(grid[2], axis=0)
    boxes = np.concatenate([bounds[:, :2], 1 - bounds[:, 2:]], axis=1)
    boxes[~np.isfinite(boxes).all(axis=1)] = 0
    if np.any(step == 0):
        # Nothing is known of places: the middles of equal parts of the image.
        step = np.array(shape[:2]) / grid[:2]
        start = (step - 1) / 2
    return ReceptiveFields(
        image_shape=shape[:2],
        grid=grid,
        centres=start + step * np.moveaxis(np.indices(grid[:2]), 0, -1),
        boxes=boxes.astype(np.int64),
        unknown=tuple(dict.fromkeys(unknown)),
    )


class Fields(NamedTuple):
    """The box of pixels that each unit of a tensor depends on.

    The units of a map are its places `[h, w]`, whatever axes follow; those of
    other tensors are along their first axis, `[i]`.
    """

    shape: Shape  # of the tensor, without the batch
    # First row and column, and the negative of the last ones, `[h, w, 4]` or
    # `[i, 4]`; infinite of a unit that no pixel reaches.
    bounds: Array
    # The middle of the first box of a map, and how far the next ones are, as if
    # there were pixels beyond the border too; 0 where there is no map.
    start: Array = np.zeros(2)
    step: Array = np.zeros(2)

    def gathered(
        self, axis: int, taps: Array, first: float, step: float
    ) -> "Fields":
        """Returns the fields of what sees the rows or columns `taps` each.

        The `first` lies between two old ones, the next a `step` further.
        """
        last, along = self.bounds.shape[axis] - 1, np.arange(2) == axis
        beyond = (taps < 0) | (taps > last)
        beyond = beyond.reshape(*taps.shape, *[1] * (2 - axis))
        seen = self.bounds.take(taps.clip(0, last), axis)
        return self._replace(
            bounds=np.where(beyond, np.inf, seen).min(axis + 1),
            start=self.start + along * first * self.step,
            step=self.step * np.where(along, step, 1.0),
        )

    def windows(
        self, kernel: Any, strides: Any, padding: str, dilation: Any = 1
    ) -> "Fields":
        """Returns the fields of what sees windows of a map."""
        fields = self
        for axis in (0, 1):
            size, stride, rate = (
                n if isinstance(n, int) else n[axis]
                for n in (kernel, strides, dilation)
            )
            side, extent = self.bounds.shape[axis], (size - 1) * rate + 1
            count, before = (side - extent) // stride + 1, 0
            if padding == "same":
                count = -(-side // stride)
                before = max((count - 1) * stride + extent - side, 0) // 2
            starts = np.arange(count) * stride - before
            taps = starts[:, np.newaxis] + rate * np.arange(size)
            first = (extent - 1) / 2 - before
            fields = fields.gathered(axis, taps, first, stride)
        return fields


def _follow(
    model: keras.Model, images: Fields, unknown: list[str], until: Any = None
) -> Fields:
    """Returns the fields of a model's output, or of what `until` takes."""
    copy, calls = graphs.calls_of(model)
    known = {id(copy.inputs[0]): images}
    for call in calls:
        inputs = [known[id(x)] for x in call.inputs if id(x) in known]
        if call.layer is until:
            return _united(inputs)
        for tensor in call.outputs:
            shape = tuple(tensor.shape[1:])
            known[id(tensor)] = _after(call.layer, inputs, shape, unknown)
    return known[id(copy.outputs[0])]


def _after(
    layer: Any, inputs: list[Fields], shape: Shape, unknown: list[str]
) -> Fields:
    """Returns the fields of a layer's output; notes a name if not known."""
    fields = None
    if None not in shape:
        if len(inputs) == 1 and hasattr(layer, "equivalent_layers"):
            fields = inputs[0]
            for part in layer.equivalent_layers:
                of_part = part.compute_output_shape((None, *fields.shape))
                fields = _after(part, [fields], of_part[1:], unknown)
        elif hasattr(layer, "receptive_windows"):
            fields = _united(inputs)
            for window in layer.receptive_windows:
                if window is None:
                    fields = _whole([fields], shape)
                else:
                    fields = fields.windows(*window)
        elif isinstance(layer, keras.Model):
            if len(getattr(layer, "outputs", ())) == 1:
                fields = _follow(graphs.functional(layer), inputs[0], unknown)
        elif getattr(layer, "data_format", "") != "channels_first":
            fields = _of_keras(layer, inputs, shape)
    sizes = tuple(size or 1 for size in shape)
    if fields is None or fields.bounds.shape[:-1] != _units(sizes):
        unknown.append(layer.name)
        fields = _whole(inputs, sizes)
    return fields._replace(shape=sizes)


def _units(shape: Shape) -> Shape:
    """Returns how the units of a tensor are arranged, see `Fields`."""
    return tuple(shape[: 2 if len(shape) > 2 else 1])


def _united(inputs: Sequence[Fields]) -> Fields:
    """Returns the fields of what sees the same unit of each of the inputs.

    Places are the mean of those of inputs that have some. A gate of the whole
    map, as in squeeze and excitation, has none, and moves none.
    """
    bounds = np.broadcast_arrays(*(fields.bounds for fields in inputs))
    placed = [x for x in inputs if x.step.any()] or inputs
    start, step = np.mean([(x.start, x.step) for x in placed], axis=0)
    return Fields(inputs[0].shape, np.min(bounds, axis=0), start, step)


def _whole(inputs: list[Fields], shape: Shape) -> Fields:
    """Returns the fields of what sees all of the inputs at each place."""
    ends = [fields.bounds.reshape(-1, 4).min(axis=0) for fields in inputs]
    bounds = np.tile(np.min(ends, axis=0), (*_units(shape), 1))
    if bounds.shape != inputs[0].bounds.shape:
        return Fields(shape, bounds)
    return inputs[0]._replace(bounds=bounds)


# Layers and operations of Keras by what they do. Layers of our own say it
# themselves, see `tfcaps.layers.units`.
_KINDS = {
    "each": "Activation BatchNormalization Dropout ELU Identity LeakyReLU "
    "Normalization PReLU ReLU Rescaling SpatialDropout2D Abs Cast "
    "Negative Relu Sigmoid Sqrt Square",
    "axis": "Dense LayerNormalization RMSNormalization Softmax "
    "UnitNormalization",
    "merge": "Add Average Concatenate Divide Maximum Minimum Multiply Subtract",
    "windows": "AveragePooling2D Conv2D DepthwiseConv2D MaxPooling2D "
    "SeparableConv2D",
    "whole": "GlobalAveragePooling2D GlobalMaxPooling2D GroupNormalization",
    "padding": "ZeroPadding2D ZeroPadding3D",
    "resizing": "Resizing UpSampling2D",
    "reshape": "Flatten Reshape",
}
_KIND = {name: kind for kind, all in _KINDS.items() for name in all.split()}


def _of_keras(layer: Any, inputs: list[Fields], shape: Shape) -> Fields | None:
    """Returns the fields of a layer of Keras, `None` if it is not known."""
    names = [
        kind.__name__
        for kind in type(layer).__mro__
        if kind.__module__.startswith("keras.")
    ]
    fields, maps = inputs[0], len(_units(shape))
    match next((_KIND[n] for n in names if n in _KIND), None):
        case "each":
            return fields
        case "whole":
            return _whole(inputs, shape)
        case "axis":  # along which numbers depend on each other
            axes = np.ravel(getattr(layer, "axis", -1)) % (len(shape) + 1)
            return fields if min(axes) > maps else _whole(inputs, shape)
        case "merge" if all(len(x.shape) == len(shape) for x in inputs):
            axis = getattr(layer, "axis", -1) % (len(shape) + 1) - 1
            if axis >= maps or not hasattr(layer, "axis"):
                return _united(inputs)
            each = [x.bounds for x in inputs]
            return Fields(shape, np.concatenate(each, axis))
        case "windows" if maps > 1 and layer.padding in ("valid", "same"):
            return fields.windows(
                getattr(layer, "kernel_size", None) or layer.pool_size,
                layer.strides,
                layer.padding,
                getattr(layer, "dilation_rate", 1),
            )
        case "padding":
            for axis in (0, 1):
                before = layer.padding[axis][0]
                taps = np.arange(shape[axis])[:, np.newaxis] - before
                fields = fields.gathered(axis, taps, -before, 1.0)
            return fields
        case "resizing":
            return _resized(layer, fields, shape)
        case "reshape" if fields.bounds.shape[:-1] == _units(shape):
            return fields
        case "reshape":
            bounds, units = fields.bounds.reshape(-1, 4), _units(shape)
            count = math.prod(units)
            if count % len(bounds) == 0:
                bounds = bounds.repeat(count // len(bounds), axis=0)
            elif len(bounds) % count == 0:
                bounds = bounds.reshape(count, -1, 4).min(axis=1)
            else:
                return None
            return Fields(shape, bounds.reshape(*units, 4))
    return None


def _resized(layer: Any, fields: Fields, shape: Shape) -> Fields | None:
    how = layer.interpolation
    more = "antialias crop_to_aspect_ratio pad_to_aspect_ratio".split()
    if how not in ("nearest", "bilinear") or any(
        getattr(layer, name, False) for name in more
    ):
        return None
    for axis in (0, 1):
        old, new = fields.bounds.shape[axis], shape[axis]
        positions = (np.arange(new) + 0.5) * old / new - 0.5
        below = np.floor(positions + (0.5 if how == "nearest" else 0.0))
        above = np.ceil(positions) if how == "bilinear" else below
        taps = np.stack([below, above], axis=-1).clip(0, old - 1).astype(int)
        fields = fields.gathered(axis, taps, positions[0], old / new)
    return fields
