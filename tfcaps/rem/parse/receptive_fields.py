"""Finds the part of an image that each child of the class capsules sees."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.graphs import encoder, last_routed_layer
from tfcaps.layers import ClassCaps, CompactCaps
from tfcaps.rem.parse.fields import Fields, follow, merged, sees_all

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
    _, inputs, unknown = follow(model, layer=layer)
    fields = merged(inputs, inputs[0].shape)
    arranged = layer.children_shape((None, *fields.shape))
    grid = arranged if len(arranged) == 3 else (1, 1, arranged[0])
    bounds = _of_children(layer, fields, fields.bounds, arranged)
    middles = _of_children(layer, fields, fields.centres, arranged)
    boxes = np.concatenate([bounds[:, :2], 1 - bounds[:, 2:]], axis=1)
    boxes[~np.isfinite(boxes).all(axis=1)] = 0
    centres = middles.reshape(*grid, 2).mean(axis=2)
    many = np.array(grid[:2]) > 1
    if len(arranged) == 1 or np.any(many & (fields.steps == 0)):
        centres = _spread(grid, shape[:2])
    if len(arranged) == 3:
        middles = np.repeat(centres.reshape(-1, 2), grid[2], axis=0)
    sides = (boxes[:, 2:] - boxes[:, :2]).max(axis=0)
    return ReceptiveFields(
        image_shape=shape[:2],
        grid=grid,
        centres=centres,
        size=(int(sides[0]), int(sides[1])),
        boxes=boxes.astype(np.int64),
        child_centres=middles,
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _of_children(
    layer: ClassCaps, fields: Fields, values: Array, grid: tuple[int, ...]
) -> Array:
    """Returns values of the places of a layer's input for each of its children.

    Args:
        layer: The layer.
        fields: The fields of its input.
        values: Their bounds or centres, `[*places, k]`.
        grid: How the children are arranged, `(i,)` or `(h, w, t)`.
    """
    last = values.shape[-1]
    if len(grid) == 3:
        values = np.broadcast_to(values, (*grid[:2], last)).reshape(-1, last)
        return np.repeat(values, grid[2], axis=0)
    values = np.broadcast_to(values, (fields.shape[0], last))
    if not isinstance(layer, CompactCaps):
        return values
    whole = sees_all([fields], grid, places=False)
    every = whole.bounds if last == 4 else whole.centres
    every = np.tile(every, (*grid, 1))
    every[list(layer.origins)] = values[list(layer.sources)]
    return every


def _spread(grid: tuple[int, ...], image_shape: tuple[int, int]) -> Array:
    """Returns the middles of equal parts of an image, `[h, w, 2]`."""
    places = [
        (np.arange(count) + 0.5) * side / count - 0.5
        for count, side in zip(grid[:2], image_shape, strict=True)
    ]
    return np.stack(np.meshgrid(*places, indexing="ij"), axis=-1)
