"""Keys of types: parse trees that stay the same when an object is shifted."""

import math

import keras
import numpy as np
from keras import ops

from tfcaps.graphs import (
    encoder,
    last_routed_layer,
    same_layers,
)
from tfcaps.layers import ClassCaps
from tfcaps.ops import Tensor
from tfcaps.rem.parse.couplings import show_last
from tfcaps.rem.parse.dictionary import CouplingDictionary

# Rows, columns and types of children that have positions.
Grid = tuple[int, int, int]


def pool_types(couplings: Tensor, grid: Grid) -> Tensor:
    """Returns how strongly each type of children is coupled at its best place.

    `c_t = max_mn c_mnt`. The paper's key has a code for each child, that is for
    each type at each place, and changes as soon as an object moves. The pooled
    key only tells whether a type is in the tree, wherever that is. If the
    object moves by whole cells of the grid, its maxima move with it and keep
    their values.

    It is the maximum because most places show nothing: in a mean over all
    places, the few that belong to the object would hardly count, even less in
    larger images. Rounding keeps order, so codes can be pooled like couplings:
    the code of the maximum is the maximum of the codes.

    Args:
        couplings: Couplings towards one class, or their codes, `[..., i]`, of
            children in the order row, column, type.
        grid: Rows, columns and types of the children.

    Returns:
        Tensor `[..., t]` of the same type.

    Raises:
        ValueError: If there are more or fewer children than in the grid.

    Example:

    >>> import numpy as np
    >>> codes = np.array([[1, 1, 9, 1], [1, 1, 1, 8]])  # 2 places, 2 types
    >>> np.asarray(pool_types(codes, (1, 2, 2))).tolist()
    [[9, 1], [1, 8]]
    """
    *batch, children = couplings.shape
    if children != math.prod(grid):
        raise ValueError(
            "`couplings` must have a value for each child of the grid, "
            f"{math.prod(grid)}. Received: shape={tuple(couplings.shape)}, "
            f"grid={tuple(grid)}. Take the grid from `Report.grid`."
        )
    *places, types = grid
    lead = (-1, *batch[1:]) if batch else ()
    shape = (*lead, math.prod(places), types)
    return ops.max(ops.reshape(couplings, shape), axis=-2)


def type_dictionary(
    trees: CouplingDictionary, grid: Grid
) -> CouplingDictionary:
    """Returns the dictionary of types for a dictionary of places.

    Samples count under the class they have, with the maximum over places of
    each type's codes as the key, see `pool_types`. Keys that differ only in the
    place of things become one.

    Args:
        trees: A dictionary of keys with a code for each child.
        grid: Rows, columns and types of the children.

    Raises:
        ValueError: If keys are not as long as the grid has children.

    Example:

    >>> trees = CouplingDictionary(num_classes=1)
    >>> trees.update([[9, 1, 1, 1], [1, 1, 9, 1]], predicted=[0, 0])
    >>> trees.num_keys.tolist()
    [2]
    >>> type_dictionary(trees, (1, 2, 2)).num_keys.tolist()
    [1]
    """
    pooled = CouplingDictionary(trees.num_classes)
    if not np.any(trees.num_samples):
        return pooled
    classes = range(trees.num_classes)
    keys = np.concatenate([trees.keys(j) for j in classes])
    counts = np.concatenate(
        [np.array(trees.counts(j), np.int64) for j in classes]
    )
    codes = ops.convert_to_numpy(pool_types(keys, grid))
    pooled.update(
        np.repeat(codes, counts, axis=0),
        np.repeat(np.repeat(classes, trees.num_keys), counts),
    )
    return pooled


def children_grid(model: keras.Model) -> Grid | None:
    """Returns rows, columns and types of the last routed layer's children.

    Args:
        model: As in `capsule_outputs`.

    Returns:
        Three ints, or `None` where the children have no positions: those of a
        layer that is no `ClassCaps`, those in a row, and those of a single
        place.

    Raises:
        ValueError: If the model has no routed layer.
    """
    model = encoder(model)
    layer = last_routed_layer(model)
    if not isinstance(layer, ClassCaps):
        return None
    shown: dict[str, Tensor] = {}
    same_layers(model, show_last(model, shown, couplings=False))
    grid = layer.children_shape(shown["children"].shape)
    if len(grid) != 3 or math.prod(grid[:-1]) == 1:
        return None
    rows, columns, types = grid
    return rows, columns, types
