"""Finds the strokes that components share, as components are found in classes.

A stroke is a straight run of ink in the mean picture of a component, which is
that of all classes that have it. Strokes of about one angle and one length are
of one type.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.cluster.hierarchy import fcluster, linkage

from examples.kanji.shared import (
    SharedParts,
    class_means,
    ink_of,
    middles_and_sizes,
)
from examples.letters.lines import straight_runs

Array = NDArray[Any]

# Pixels from place to place of a network, and its first place.
STRIDE, OFFSET = 2, 1
_MARGIN = 3  # pixels around a component
_NEAR = 1.6  # steps between places around a stroke that tell nothing
# Lines differ by 1 if they are so many degrees, or e-folds of length, apart.
_SCALES = (18.0, 0.4)
_APART = 1.2  # from which distance on strokes are of different types


class SharedStrokes(NamedTuple):
    """The strokes of types of parts, one in each of `s` slots.

    Attributes:
        parts: The type of the part of each slot, `[s]`.
        types: The type of its stroke, `[s]`, from 0 on.
        places: Row and column of the stroke's middle, in pixels from the middle
            of the part, `[s, 2]`.
        lines: Angle in degrees and length in pixels of each stroke, `[s, 2]`.
    """

    parts: Array
    types: Array
    places: Array
    lines: Array

    @property
    def num_types(self) -> int:
        return int(self.types.max()) + 1

    def cells(self, images: Array, labels: Array, parts: SharedParts) -> Array:
        """Returns which strokes are at each place of images of known classes.

        They are int8 `[n, rows, columns, num_types]`: 1 at the place nearest to
        where the blueprints of part and class say, -1 next to it, and 0
        elsewhere.
        """
        counts = [side // STRIDE for side in images.shape[1:3]]
        grid = OFFSET + STRIDE * np.indices(counts)
        middles, sizes = middles_and_sizes(ink_of(images), labels)
        told = np.zeros((len(images), *counts, self.num_types), np.int8)
        for j in np.unique(labels):
            at, types = self._of_class(parts, j)
            for n in np.flatnonzero(labels == j):
                places = middles[n] + at * sizes[n]
                apart = np.linalg.norm(grid - places[..., None, None], axis=1)
                for each, t in zip(apart, types, strict=True):
                    told[n, each < _NEAR * STRIDE, t] = -1
                for each, t in zip(apart, types, strict=True):
                    told[n, ..., t].flat[each.argmin()] = 1
        return told

    def _of_class(self, parts: SharedParts, j: int) -> tuple[Array, Array]:
        """Returns places in the class, and types, of all its strokes."""
        places, types = [], []
        for k in np.flatnonzero(parts.classes == j):
            own = self.parts == parts.types[k]
            alike = parts.types == parts.types[k]
            larger = parts.sizes[k] / parts.sizes[alike].mean(0)
            places.append(parts.places[k] + self.places[own] * larger)
            types.append(self.types[own])
        return np.concatenate(places), np.concatenate(types)


def find(images: Array, labels: Array, parts: SharedParts) -> SharedStrokes:
    """Finds the strokes of parts in images of all classes."""
    means = class_means(images, labels)
    slots = []
    for part in range(parts.num_types):
        own = np.flatnonzero(parts.types == part)
        size = parts.sizes[own].mean(axis=0)
        side = int(size.max()) + 2 * _MARGIN
        middle = (side - 1) / 2
        picture = np.zeros((side, side))
        for k in own:  # brought to one size
            scale = parts.sizes[k] / size
            centre = parts.places[k] + np.array(means.shape[1:]) // 2
            picture += ndimage.affine_transform(
                means[parts.classes[k]],
                scale,
                centre - scale * middle,
                picture.shape,
                order=1,
            )
        away = np.abs(np.indices(picture.shape) - middle)
        picture[(away > size[:, None, None] / 2 + 1).any(axis=0)] = 0.0
        # Where strokes cross there is more ink.
        strongest = np.quantile(picture[picture > 0], 0.9)
        picture = np.minimum(picture, strongest)
        for row, column, *line in straight_runs(picture, 0.5, 0.15, 8):
            slots.append((part, row - middle, column - middle, *line))
    of_slots, places, lines = np.split(np.array(slots), (1, 3), axis=1)
    turned = np.abs(lines[:, None, 0] - lines[:, 0])
    turned = np.minimum(turned, 180.0 - turned) / _SCALES[0]
    longer = np.subtract.outer(*2 * (np.log(lines[:, 1]),)) / _SCALES[1]
    apart = np.hypot(turned, longer)[np.triu_indices(len(lines), 1)]
    types = fcluster(linkage(apart, "average"), _APART, "distance") - 1
    return SharedStrokes(of_slots[:, 0].astype(int), types, places, lines)
