"""Finds the part of an image that each child of the class capsules sees."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.graphs import (
    clone_with_call,
    encoder,
    functional,
    last_routed_layer,
)
from tfcaps.layers import ClassCaps, CompactCaps
from tfcaps.rem.parse.fields import Fields, merged, sees_all
from tfcaps.rem.parse.layer_fields import fields_after

Array = NDArray[Any]


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
            if that lies beyond the image. Rows depend on rows and columns on
            columns, and both increase: where layers do not keep positions, the
            grid is spread evenly over the image.
        size: Rows and columns of the largest field.
        boxes: First row and column, and those after the last, of what each
            child sees of the image, `[i, 4]`, ints. A child that sees nothing
            has a box without pixels.
        child_centres: Row and column of the middle of each child's field,
            `[i, 2]`; those of `centres` where there is a grid.
        unknown: Names of layers between the image and the children whose fields
            are not known. They are taken to see all of their input.
    """

    image_shape: tuple[int, int]
    grid: tuple[int, int, int]
    centres: Array
    size: tuple[int, int]
    boxes: NDArray[np.int64]
    child_centres: Array
    unknown: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether all layers are known."""
        return not self.unknown

    @property
    def coverage(self) -> float:
        """Share of the image that a child sees, the mean over children."""
        sides = self.boxes[:, 2:] - self.boxes[:, :2]
        pixels = np.mean(np.prod(sides, axis=1))
        return float(pixels / math.prod(self.image_shape))

    @property
    def is_local(self) -> bool:
        """Whether children see different parts, and none the whole image."""
        whole = np.all(self.boxes == (0, 0, *self.image_shape), axis=1)
        return bool(len(np.unique(self.boxes, axis=0)) > 1 and not whole.any())

    @property
    def cells(self) -> "ReceptiveFields":
        """The same children, each with the cell of the image at its place.

        The image is cut into as many equal cells as the grid has. They say
        where children stand that all see the whole image, as on deep networks.
        """
        sides = np.array(self.image_shape)
        places = np.indices(self.grid[:2]).reshape(2, -1).T
        edges = [
            np.rint((places + more) * sides / self.grid[:2]) for more in (0, 1)
        ]
        boxes = np.concatenate(edges, axis=1).astype(np.int64)
        boxes = np.repeat(boxes, self.grid[2], axis=0)
        size = (boxes[:, 2:] - boxes[:, :2]).max(axis=0)
        return dataclasses.replace(
            self,
            size=(int(size[0]), int(size[1])),
            boxes=boxes,
            child_centres=(boxes[:, :2] + boxes[:, 2:] - 1) / 2,
        )

    def position(self, child: int) -> tuple[int, int, int]:
        """Returns row, column and type of a child in the grid."""
        row, column, kind = np.unravel_index(child, self.grid)
        return int(row), int(column), int(kind)


def receptive_fields(model: keras.Model) -> ReceptiveFields:
    """Returns the part of an image that each child of the class capsules sees.

    It follows the layers from the image to the children of the last routed
    layer: windows (kernel, stride, dilation, padding) widen a field, branches
    that meet unite theirs, and layers that look at a whole map, such as `Dense`
    on a flattened one, `GroupNormalization` or a hidden `ClassCaps`, see all
    that it has seen. A layer that is not known is taken to see all of its
    input, see `ReceptiveFields.unknown`; a model inside of the model is
    followed. No image is needed, and weights do not matter.

    A field is all that can change a child in prediction. So
    `BatchNormalization` does not widen it. The routing of `ConvCaps` widens it
    only where windows compete, as in `EMRouting`: once for each iteration after
    the first.

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
    model = encoder(model)
    layer = last_routed_layer(model)
    if not isinstance(layer, ClassCaps):
        raise ValueError(
            f"The last routed layer of {model.name!r} is a "
            f"{type(layer).__name__}. Receptive fields are those of the "
            "children of class capsules, such as `tfcaps.layers.ClassCaps`."
        )
    shape = tuple(model.inputs[0].shape[1:])
    if len(shape) != 3 or None in shape:
        raise ValueError(
            f"{model.name!r} must take images [batch, rows, columns, channels] "
            f"of a known size. Received: an input of shape {(None, *shape)}."
        )
    walk = _Walk(model, Fields.of_pixels(*shape), last=layer)
    walk.run()
    fields = _of_children(layer, walk.children)
    return _shown(fields, shape[:2], tuple(dict.fromkeys(walk.unknown)))


def feature_centres(model: keras.Model) -> Array:
    """Returns the centres `[h, w, 2]` of the fields of a model's features.

    Args:
        model: From images `[b, rows, columns, c]` of a known size to features
            `[b, h, w, c]`.
    """
    shape = tuple(model.inputs[0].shape[1:])
    (fields,) = _Walk(model, Fields.of_pixels(*shape)).run()
    return _shown(fields, shape[:2], ()).centres


class _Walk:
    """Follows fields through a model, call by call."""

    def __init__(self, model: keras.Model, images: Fields, last: Any = None):
        self.children: list[Fields] = []
        self.unknown: list[str] = []
        self._model = model
        self._last = last
        self._tensors: list[Any] = [*model.inputs]  # so that ids stay theirs
        self._known = {id(self._tensors[0]): images}

    def run(self) -> list[Fields]:
        """Returns the fields of the model's outputs."""
        copy = clone_with_call(self._model, self._call)
        return [self._known[id(tensor)] for tensor in copy.outputs]

    def _call(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = layer(*args, **kwargs)
        inputs = [
            self._known[id(tensor)]
            for tensor in keras.tree.flatten((args, kwargs))
            if id(tensor) in self._known
        ]
        if layer is self._last:
            self.children = inputs
        for tensor in keras.tree.flatten(outputs):
            shape = tuple(tensor.shape[1:])
            self._tensors.append(tensor)
            self._known[id(tensor)] = self._after(layer, inputs, shape)
        return outputs

    def _after(
        self, layer: Any, inputs: list[Fields], shape: tuple[int, ...]
    ) -> Fields:
        fields = None
        if None not in (*shape, *(n for part in inputs for n in part.shape)):
            fields = self._inside(layer, inputs)
            fields = fields or fields_after(layer, inputs, shape)
        if fields is None or fields.shape != shape:
            self.unknown.append(layer.name)
            fields = sees_all(inputs, shape)
        return fields

    def _inside(self, layer: Any, inputs: list[Fields]) -> Fields | None:
        """Returns the fields after a model that is a layer of this one."""
        parts = getattr(layer, "equivalent_layers", None)
        if parts is None and _is_graph(layer):
            parts = [layer]
        if parts is None or len(inputs) != 1:
            return None
        fields = inputs[0]
        for part in parts:
            if _is_graph(part):
                walk = _Walk(functional(part), fields)
                (fields,) = walk.run()
                self.unknown += walk.unknown
            else:
                shape = part.compute_output_shape((None, *fields.shape))[1:]
                after = fields_after(part, [fields], shape)
                fields = after or sees_all([fields], shape)
        return fields


def _is_graph(layer: Any) -> bool:
    """Tells whether a layer is a model whose layers can be followed."""
    known = isinstance(layer, keras.Model) and getattr(layer, "inputs", None)
    return bool(known) and len(layer.outputs) == 1


def _of_children(layer: ClassCaps, inputs: list[Fields]) -> Fields:
    """Returns the fields of the children, arranged as the layer says."""
    poses, *activations = inputs
    last = len(poses.shape) - 1
    fields = poses.united([last], (*poses.shape[:last], 1)).without([last])
    fields = merged([fields, *activations], fields.shape)
    if not isinstance(layer, CompactCaps):
        return fields
    if len(layer.grid) == 3:  # types are gone, positions are not
        return fields.united([2], layer.grid)
    bounds, centres = (
        np.array(values)
        for values in sees_all([fields], layer.grid).everywhere()
    )
    voting = fields.everywhere()
    origins, sources = list(layer.origins), list(layer.sources)
    bounds[origins], centres[origins] = (v[sources] for v in voting)
    return Fields(layer.grid, bounds, centres, fields.steps)


def _shown(
    fields: Fields, image_shape: tuple[int, int], unknown: tuple[str, ...]
) -> ReceptiveFields:
    bounds, middles = (
        values.reshape(math.prod(fields.shape), -1)
        for values in fields.everywhere()
    )
    boxes = np.concatenate([bounds[:, :2], 1 - bounds[:, 2:]], axis=1)
    boxes[~np.isfinite(boxes).all(axis=1)] = 0
    has_places = len(fields.shape) == 3
    rows, columns, types = fields.shape if has_places else (1, 1, len(boxes))
    grid = (rows, columns, types)
    centres = middles.reshape(*grid, 2).mean(axis=2)
    if not (has_places and _in_rows_and_columns(centres)):
        centres = _spread(grid, image_shape)
    if has_places:
        middles = np.repeat(centres.reshape(-1, 2), grid[2], axis=0)
    sides = (boxes[:, 2:] - boxes[:, :2]).max(axis=0)
    return ReceptiveFields(
        image_shape=image_shape,
        grid=grid,
        centres=centres,
        size=(int(sides[0]), int(sides[1])),
        boxes=boxes.astype(np.int64),
        child_centres=middles,
        unknown=unknown,
    )


def _in_rows_and_columns(centres: Array) -> bool:
    """Tells whether centres are a grid that runs down and to the right."""
    rows, columns = centres[:, :1, 0], centres[:1, :, 1]
    return bool(
        np.allclose(centres[..., 0], rows, rtol=0, atol=1e-9)
        and np.allclose(centres[..., 1], columns, rtol=0, atol=1e-9)
        and np.all(np.diff(rows[:, 0]) > 0)
        and np.all(np.diff(columns[0]) > 0)
    )


def _spread(grid: tuple[int, ...], image_shape: tuple[int, int]) -> Array:
    """Returns the middles of equal parts of an image, `[h, w, 2]`."""
    places = [
        (np.arange(count) + 0.5) * side / count - 0.5
        for count, side in zip(grid[:2], image_shape, strict=True)
    ]
    return np.stack(np.meshgrid(*places, indexing="ij"), axis=-1)
