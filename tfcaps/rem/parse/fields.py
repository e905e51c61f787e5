"""Finds the pixels that elements of a tensor depend on, as boxes."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


class Fields:
    """The receptive field of each element of a tensor.

    A field is a box: all pixels from a first to a last row and column. Along an
    axis on which neither box nor centre depends, the arrays have the size 1.

    Args:
        shape: Shape of the tensor, without the batch.
        bounds: First row and column, and the negative of the last ones,
            `[*shape, 2, 2]`; the smaller, the larger the box. Those of an
            element that no pixel reaches are infinite.
        centres: Row and column of the middle of each field, as if there were
            pixels beyond the border of the image too, `[*shape, 2]`.
        steps: By how many rows and columns centres move along each axis,
            `[axes, 2]`, also beyond its ends.
    """

    def __init__(
        self,
        shape: Sequence[int],
        bounds: Array,
        centres: Array,
        steps: Array,
    ):
        self.shape = tuple(shape)
        self.bounds = bounds
        self.centres = centres
        self.steps = steps

    @classmethod
    def of_pixels(cls, rows: int, columns: int, channels: int) -> "Fields":
        """Returns those of an image: each pixel sees itself."""
        places = np.stack(
            np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), -1
        )[:, :, None].astype(np.float64)
        return cls(
            (rows, columns, channels),
            np.stack([places, -places], axis=-2),
            places,
            np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        )

    def gathered(
        self, axis: int, taps: ArrayLike, positions: ArrayLike, step: float
    ) -> "Fields":
        """Returns the fields of elements that each see some along one axis.

        Args:
            axis: Int. Which one.
            taps: What each of the new elements sees, `[new, taps]`; numbers
                beyond the axis are padding, which sees nothing.
            positions: Where each lies on the axis, `[new]`, a fraction between
                two elements.
            step: How far positions lie from each other.
        """
        taps, positions = np.asarray(taps), np.asarray(positions, np.float64)
        count = self.shape[axis]
        shape = (*self.shape[:axis], len(taps), *self.shape[axis + 1 :])
        if self.bounds.shape[axis] == 1 < count:
            return Fields(shape, self.bounds, self.centres, self.steps)
        sizes = self.bounds.shape
        sizes = (*sizes[:axis], len(taps), *sizes[axis + 1 :])
        bounds = np.full(sizes, np.inf)
        for tap in taps.T:
            seen = np.take(self.bounds, np.clip(tap, 0, count - 1), axis)
            beyond = (tap < 0) | (tap >= count)
            np.moveaxis(seen, axis, 0)[beyond] = np.inf
            bounds = np.minimum(bounds, seen)
        steps = self.steps.copy()
        steps[axis] *= step
        return Fields(shape, bounds, self._centres_at(axis, positions), steps)

    def _centres_at(self, axis: int, positions: Array) -> Array:
        """Returns centres between the elements of an axis and beyond them."""
        centres = np.moveaxis(self.centres, axis, 0)
        last = len(centres) - 1
        below = np.clip(np.floor(positions), 0, last).astype(int)
        part = (positions - below).reshape(-1, *[1] * (centres.ndim - 1))
        between = (positions >= 0) & (positions < last)
        across = np.where(
            between.reshape(part.shape),
            centres[np.minimum(below + 1, last)] - centres[below],
            self.steps[axis],
        )
        return np.moveaxis(centres[below] + part * across, 0, axis)

    def united(self, axes: Iterable[int], shape: Sequence[int]) -> "Fields":
        """Returns the union along axes, for a tensor of as many axes.

        Args:
            axes: The axes that are mixed.
            shape: Shape of what sees the whole of these.
        """
        axes = tuple(axes)
        steps = self.steps.copy()
        steps[list(axes)] = 0.0
        return Fields(
            shape,
            self.bounds.min(axis=axes, keepdims=True),
            self.centres.mean(axis=axes, keepdims=True),
            steps,
        )

    def without(self, axes: Iterable[int]) -> "Fields":
        """Returns the fields without axes of the size 1."""
        axes = tuple(axes)
        return Fields(
            [n for axis, n in enumerate(self.shape) if axis not in axes],
            np.squeeze(self.bounds, axes),
            np.squeeze(self.centres, axes),
            np.delete(self.steps, axes, axis=0),
        )

    def extended(self, shape: Sequence[int]) -> "Fields":
        """Returns the fields with further axes that see all the same.

        Args:
            shape: That of the tensor, as before but for its last axes.
        """
        more = len(shape) - len(self.shape)
        ones = (1,) * more
        axes = len(self.shape)
        return Fields(
            shape,
            self.bounds.reshape(*self.bounds.shape[:axes], *ones, 2, 2),
            self.centres.reshape(*self.centres.shape[:axes], *ones, 2),
            np.concatenate([self.steps, np.zeros((more, 2))]),
        )

    def permuted(self, axes: Sequence[int]) -> "Fields":
        """Returns the fields with the axes in another order."""
        count = len(axes)
        return Fields(
            [self.shape[axis] for axis in axes],
            self.bounds.transpose(*axes, count, count + 1),
            self.centres.transpose(*axes, count),
            self.steps[list(axes)],
        )

    def reshaped(self, shape: Sequence[int]) -> "Fields":
        """Returns the fields of the same elements in another shape."""
        wide: list[int] = []
        narrow: list[int] = []
        steps = np.zeros((len(shape), 2))
        for old, new in _groups(self.shape, shape):
            sizes = [self.bounds.shape[axis] for axis in old]
            long_old = [axis for axis in old if self.shape[axis] > 1]
            long_new = [axis for axis in new if shape[axis] > 1]
            varies = max(sizes, default=1) > 1
            wide += [self.shape[axis] if varies else 1 for axis in old]
            narrow += [shape[axis] if varies else 1 for axis in new]
            if len(long_old) == len(long_new) == 1:
                steps[long_new[0]] = self.steps[long_old[0]]
        bounds = np.broadcast_to(self.bounds, (*wide, 2, 2))
        centres = np.broadcast_to(self.centres, (*wide, 2))
        return Fields(
            shape,
            bounds.reshape(*narrow, 2, 2),
            centres.reshape(*narrow, 2),
            steps,
        )

    def everywhere(self) -> tuple[Array, Array]:
        """Returns bounds and centres of every element, none left out."""
        return (
            np.broadcast_to(self.bounds, (*self.shape, 2, 2)),
            np.broadcast_to(self.centres, (*self.shape, 2)),
        )


def merged(parts: Sequence[Fields], shape: Sequence[int]) -> Fields:
    """Returns the union of fields at the same places.

    Centres are the mean of those parts that have places. A gate of the whole
    map, as in squeeze and excitation, has none, and moves none.
    """
    bounds = parts[0].bounds
    for part in parts[1:]:
        bounds = np.minimum(bounds, part.bounds)
    placed = [part for part in parts if part.steps.any()] or parts
    centres = placed[0].centres
    for part in placed[1:]:
        centres = centres + part.centres
    steps = np.mean([part.steps for part in placed], axis=0)
    return Fields(shape, bounds, centres / len(placed), steps)


def concatenated(parts: Sequence[Fields], axis: int) -> Fields:
    """Returns the fields of tensors one after the other along an axis."""
    sizes = np.max([part.bounds.shape[:-2] for part in parts], axis=0)
    shape = [*parts[0].shape]
    shape[axis] = sum(part.shape[axis] for part in parts)
    bounds, centres = [], []
    for part in parts:
        sizes[axis] = part.shape[axis]
        bounds.append(np.broadcast_to(part.bounds, (*sizes, 2, 2)))
        centres.append(np.broadcast_to(part.centres, (*sizes, 2)))
    return Fields(
        shape,
        np.concatenate(bounds, axis),
        np.concatenate(centres, axis),
        parts[0].steps,
    )


def sees_all(
    inputs: list[Fields], shape: Sequence[int], *, places: bool = True
) -> Fields:
    """Returns the fields of a tensor whose elements see all of the inputs.

    Args:
        inputs: Fields of the inputs.
        shape: Shape of the tensor.
        places: Bool. On a map of the same rows and columns elements keep their
            centres. Defaults to `True`.
    """
    whole = [part.united(range(len(part.shape)), ()) for part in inputs]
    least = np.min([part.bounds.reshape(2, 2) for part in whole], axis=0)
    kept = 2 if min(len(shape), len(inputs[0].shape)) > 2 else 1
    first = inputs[0]
    if places and tuple(shape[:kept]) == first.shape[:kept] and shape[kept:]:
        more = range(kept, len(first.shape))
        first = first.united(more, first.shape).without(more).extended(shape)
        bounds = np.broadcast_to(least, first.bounds.shape)
        return Fields(shape, bounds, first.centres, first.steps)
    ones = (1,) * len(shape)
    return Fields(
        shape,
        least.reshape(*ones, 2, 2),
        whole[0].centres.reshape(*ones, 2),
        np.zeros((len(shape), 2)),
    )


def windows(
    fields: Fields,
    axis: int,
    kernel: int,
    stride: int,
    *,
    dilation: int = 1,
    padding: str = "valid",
) -> Fields:
    """Returns the fields of what sees windows of elements along an axis."""
    side, extent = fields.shape[axis], (kernel - 1) * dilation + 1
    count, before = (side - extent) // stride + 1, 0
    if padding == "same":
        count = -(-side // stride)
        before = max((count - 1) * stride + extent - side, 0) // 2
    starts = np.arange(count) * stride - before
    taps = starts[:, None] + dilation * np.arange(kernel)
    return fields.gathered(axis, taps, starts + (extent - 1) / 2, stride)


def _groups(
    old: Sequence[int], new: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """Returns pairs of axes of one shape and those of another they become."""
    groups = []
    left, right = 0, 0
    while left < len(old) or right < len(new):
        start, stop = left, right
        left, right = min(left + 1, len(old)), min(right + 1, len(new))
        while (have := math.prod(old[start:left])) != (
            want := math.prod(new[stop:right])
        ):
            if have < want:
                left += 1
            else:
                right += 1
        groups.append((list(range(start, left)), list(range(stop, right))))
    return groups
