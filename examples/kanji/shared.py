"""Finds the parts that classes share, from images and class labels alone.

The mean image of a class is cut by straight lines into two or three pieces. Of
all ways to cut it the one is taken whose pieces are most like pieces of other
classes: a part is what recurs. Pieces that look alike, whatever their sizes,
are of one type, unless two classes would then be the same.

References:
    - de Marcken, 1996, "Unsupervised language acquisition" (words are what
      makes texts short)
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.cluster.hierarchy import fcluster, linkage

from tfcaps.graphs import only_layer
from tfcaps.models import constellation_capsnet
from tfcaps.parts import ConstellationCaps, PartCaps

Array = NDArray[Any]
# Row and column of the first and of the one after the last pixel.
_Box = tuple[int, int, int, int]

_INK = 0.2  # of an image's strongest pixel
_MEAN_INK = 0.1  # in the mean of a class, where strokes are blurred
_LEAST_SIDE = 5  # pixels of a piece
_MOST_CUTS = 6  # along rows, and along columns, of one piece
_SIDE = 16  # of the pictures that are compared, in pixels
_FORM = 0.1  # what a piece e times as wide is less alike
_ROUNDS = 8
_NEAR = 1.6  # steps between places around a part that tell nothing
_SAME_PLACE = 5.0  # pixels between parts that stand alike in two classes
_OTHERS = 2  # classes in which a part recurs at least
_PRICE = 0.05  # what a further piece must gain
# What a part adds to the evidence must outweigh a hundred classes.
_EPSILON = 1e-4


class SharedParts(NamedTuple):
    """The parts of classes, one in each of `s` slots.

    Attributes:
        classes: The class of each slot, `[s]`.
        types: The type of its part, `[s]`, from 0 on.
        places: Row and column of its middle, in pixels from the centre of the
            class, `[s, 2]`.
        sizes: Rows and columns of the box around it, in pixels, `[s, 2]`, which
            only strokes need.
    """

    classes: Array
    types: Array
    places: Array
    sizes: Array = np.zeros((0, 2))

    @property
    def num_types(self) -> int:
        return int(self.types.max()) + 1

    @property
    def most(self) -> int:
        """The number of parts of the class that has most."""
        return int(np.bincount(self.classes).max())

    def network(
        self, input_shape: tuple[int, int, int], num_classes: int
    ) -> keras.Model:
        """Builds a network that begins with these blueprints.

        A part may be about 27 pixels large. Train it by `cells`.
        """
        model = constellation_capsnet(
            input_shape,
            num_classes,
            self.num_types,
            filters=(16, 32, 48, 48, 64),
            kernel_size=3,
            strides=(2, 1, 2, 1, 1),
            max_parts=self.most,
            width=3.0,
            epsilon=_EPSILON,
        )
        self.begin(model)
        return model

    def begin(self, model: keras.Model) -> None:
        """Sets the blueprints of a network of parts, or of its class capsules.

        Of a part that a class has more often than `max_of_type` of the network
        it takes the first ones.
        """
        layer: Any = model
        if isinstance(model, keras.Model):
            layer = only_layer(model, ConstellationCaps)
        places = np.zeros(layer.blueprint.shape)
        slots = np.zeros(places.shape[:2])
        types = len(slots) // layer.max_of_type
        for j, t, place in zip(*self[:3], strict=True):
            slot = t + types * int(slots[t::types, j].sum())
            if slot < len(slots):
                slots[slot, j], places[slot, j] = 1.0, place
        layer.blueprint.assign(places / layer.side)
        layer.slots.assign(slots)

    def cells(self, model: keras.Model, images: Array, labels: Array) -> Array:
        """Returns which type is at each place of images whose class is known.

        They are ints `[n, rows, columns]`: a type at the place that is nearest
        to the middle of a part, `num_types` where no part is near, and -1 next
        to parts, for `tfcaps.parts.CellLoss`.
        """
        layer = only_layer(model, PartCaps)
        step, (_, *counts, _) = layer.stride, layer.output[1].shape
        grid = step * np.indices(counts) + np.array(layer.offset)[:, None, None]
        middles, _ = _moments(ink_of(images))
        told = np.full((len(images), *counts), self.num_types, np.int32)
        for number, label in enumerate(labels):
            own = self.classes == label
            there = middles[number] + self.places[own]
            apart = np.linalg.norm(grid - there[..., None, None], axis=1)
            told[number][(apart < _NEAR * step).any(axis=0)] = -1
            for each, t in zip(apart, self.types[own], strict=True):
                told[number].flat[each.argmin()] = t
        return told


def find(images: Array, labels: Array, apart: float = 0.35) -> SharedParts:
    """Finds the parts that classes share.

    An image shows one object on an even ground. A class is cut so that

        0.05 * (its pieces) + sum of (share of its ink) * (1 - likeness)

    is least, where the likeness of a piece is its correlation with the most
    similar pieces of two other classes, all brought to one size.

    Args:
        images: Training images `[n, h, w, c]`, some thousands.
        labels: Their class indices `[n]`.
        apart: Float. From which distance on, 1 less the mean correlation,
            pieces are of different types. Defaults to `0.35`.

    Raises:
        ValueError: If no class can be cut.
    """
    labels = np.asarray(labels)
    means = class_means(images, labels)
    ways = [_ways(mean) for mean in means]
    pieces = sorted(
        {(j, b) for j, w in enumerate(ways) for way in w for b in way}
    )
    if not pieces:
        raise ValueError(
            "Some class must have two parts with little ink between them. "
            f"Received: {len(means)} classes that have one part each."
        )
    number = {piece: k for k, piece in enumerate(pieces)}
    cuts = [
        [[number[j, b] for b in way] for way in w] for j, w in enumerate(ways)
    ]
    alike = _likeness(means, pieces)
    classes = np.array([j for j, _ in pieces])
    ink = np.array(
        [_cut(means[j], b).sum() / means[j].sum() for j, b in pieces]
    )
    chosen = _recurring(cuts, alike, classes, ink)
    distances = 1.0 - alike[np.ix_(chosen, chosen)]
    above = np.triu_indices(len(chosen), 1)
    types = fcluster(linkage(distances[above], "average"), apart, "distance")
    boxes = np.array([pieces[k][1] for k in chosen], float)
    middles = (boxes[:, ::2] + boxes[:, 1::2] - 1.0) / 2.0
    places = middles - np.array(means.shape[1:]) // 2
    of_chosen = classes[chosen]
    _tell_apart(types, of_chosen, places, distances)
    sizes = boxes[:, 1::2] - boxes[:, ::2]
    return SharedParts(of_chosen, types - 1, places, sizes)


def _tell_apart(
    types: Array, classes: Array, places: Array, distances: Array
) -> None:
    """Splits types where two classes have the same ones at the same places.

    One of their parts must differ: that pair of pieces which are least alike.
    Each piece of the type goes to the nearer of these.
    """
    for j, k in itertools.combinations(np.unique(classes), 2):
        ours, theirs = (np.flatnonzero(classes == each) for each in (j, k))
        same = types[ours][:, None] == types[theirs]
        apart = np.linalg.norm(places[ours][:, None] - places[theirs], axis=-1)
        same &= apart < _SAME_PLACE
        if len(ours) != len(theirs) or not np.all(same.sum(axis=1) == 1):
            continue
        first, second = max(
            zip(ours, theirs[same.argmax(axis=1)], strict=True),
            key=lambda pair: distances[pair],
        )
        of_type = types == types[first]
        nearer = distances[:, second] < distances[:, first]
        types[of_type & nearer] = types.max() + 1


def ink_of(images: Array) -> Array:
    """Returns how far pixels are from the ground, `[n, h, w]`, in [0, 1]."""
    grey = np.mean(images, axis=-1, dtype=np.float32)
    away = np.abs(grey - np.median(grey, axis=(1, 2), keepdims=True))
    away /= np.maximum(away.max(axis=(1, 2), keepdims=True), 1e-6)
    return np.maximum(away - _INK, 0.0)


def _moments(ink: Array) -> tuple[Array, Array]:
    """Returns centres and standard deviations of ink, `[n, 2]` in pixels."""
    total = np.maximum(ink.sum(axis=(1, 2)), 1e-6)[:, None]
    found = []
    for axis in (2, 1):
        share, along = ink.sum(axis) / total, np.arange(ink.shape[3 - axis])
        mean = share @ along
        found.append((mean, np.sqrt(np.maximum(share @ along**2 - mean**2, 0))))
    means, deviations = zip(*found, strict=True)
    return np.stack(means, axis=1), np.stack(deviations, axis=1)


def middles_and_sizes(ink: Array, labels: Array) -> tuple[Array, Array]:
    """Returns where ink is, `[n, 2]`, and its size to the mean of its class."""
    centres, sizes = _moments(ink)
    for j in np.unique(labels):
        sizes[labels == j] /= sizes[labels == j].mean(axis=0)
    return centres, sizes


def class_means(images: Array, labels: Array) -> Array:
    """Returns the mean ink `[j, 2h, 2w]` of classes, centred, of one size."""
    ink = ink_of(images)
    centres, sizes = middles_and_sizes(ink, labels)
    shape = tuple(2 * side for side in ink.shape[1:])
    means = np.zeros((int(labels.max()) + 1, *shape))
    for j in np.unique(labels):
        own = labels == j
        for each, centre, size in zip(
            ink[own], centres[own], sizes[own], strict=True
        ):
            corner = centre - size * np.array(ink.shape[1:])
            means[j] += ndimage.affine_transform(
                each, size, corner, shape, order=1
            )
        means[j] /= own.sum()
    return means


def _ways(mean: Array) -> list[tuple[_Box, ...]]:
    """Returns the ways to cut a class into two or three boxes."""
    ways: list[tuple[_Box, ...]] = []
    every = _bounds(mean, (0, mean.shape[0], 0, mean.shape[1]))
    for pair in _halves(mean, every):
        ways.append(pair)
        for whole, other in (pair, pair[::-1]):
            ways += [(*half, other) for half in _halves(mean, whole)]
    return sorted({tuple(sorted(way)) for way in ways})


def _halves(mean: Array, box: _Box) -> list[tuple[_Box, _Box]]:
    """Returns the pairs of boxes that lines of little ink part."""
    pairs = []
    for axis in (0, 1):
        ink = ndimage.gaussian_filter1d(_cut(mean, box).sum(axis=1 - axis), 1.0)
        lowest = ink <= ndimage.minimum_filter1d(ink, 5) + 1e-12
        inner = np.arange(_LEAST_SIDE, len(ink) - _LEAST_SIDE)
        best = sorted(inner[lowest[inner]], key=ink.__getitem__)
        for at in best[:_MOST_CUTS]:
            first, second = list(box), list(box)
            first[2 * axis + 1] = second[2 * axis] = box[2 * axis] + int(at)
            pairs.append((_bounds(mean, first), _bounds(mean, second)))
    return pairs


def _bounds(mean: Array, box: Sequence[int]) -> _Box:
    """Returns the box around all but a little of the ink in a box."""
    ink = _cut(mean, box)
    ink = ink * (ink > _MEAN_INK)
    found: list[int] = []
    for axis, first in ((1, box[0]), (0, box[2])):
        share = np.cumsum(ink.sum(axis=axis))
        share /= max(share[-1], 1e-9)
        low, high = map(int, np.searchsorted(share, (0.01, 0.99)))
        found += [first + low, first + max(high, low + 3) + 1]
    return found[0], found[1], found[2], found[3]


def _cut(mean: Array, box: Sequence[int]) -> Array:
    top, bottom, left, right = box
    return mean[top:bottom, left:right]


def _likeness(means: Array, pieces: list[tuple[int, _Box]]) -> Array:
    """Returns the correlations of all pieces, less what their forms differ."""
    pictures, forms = [], []
    blurred = ndimage.gaussian_filter(means, (0, 0.7, 0.7))
    for j, box in pieces:
        piece = _cut(blurred[j], box)
        forms.append(np.log(piece.shape[0] / piece.shape[1]))
        scale = np.array(piece.shape) / _SIDE
        given = (scale, (scale - 1) / 2, (_SIDE, _SIDE))
        pictures.append(
            ndimage.affine_transform(piece, *given, order=1, mode="nearest")
        )
    every = np.array(pictures, np.float32)
    alike = np.full((len(every), len(every)), -1.0, np.float32)
    flat = _normalized(every)
    for shift in np.ndindex(3, 3):
        moved = np.roll(every, np.array(shift) - 1, (1, 2))
        np.maximum(alike, flat @ _normalized(moved).T, out=alike)
    form = np.array(forms, np.float32)
    return np.maximum(alike, alike.T) - _FORM * np.abs(form[:, None] - form)


def _normalized(pictures: Array) -> Array:
    flat = pictures.reshape(len(pictures), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    return flat / (np.linalg.norm(flat, axis=1, keepdims=True) + 1e-9)


def _recurring(
    cuts: list[list[list[int]]],
    alike: Array,
    classes: Array,
    ink: Array,
) -> list[int]:
    """Returns the pieces of the best way to cut each class.

    Likeness is to the pieces of the ways that are still in question, which
    become fewer from round to round.
    """
    _, first, own = np.unique(classes, return_index=True, return_inverse=True)
    in_question = np.ones(len(classes), bool)
    for number in range(_ROUNDS):
        likely = np.where(in_question, alike, -1.0)
        of_classes = np.maximum.reduceat(likely, first, axis=1)
        of_classes[np.arange(len(own)), own] = -1.0
        likeness = np.sort(of_classes, axis=1)[:, -_OTHERS:].mean(axis=1)
        costs = _PRICE + ink * (1.0 - likeness)
        ranked = [sorted(ways, key=lambda w: costs[w].sum()) for ways in cuts]
        in_question[:] = False
        kept = max(1, int(12 * 0.6**number))
        for ways in ranked:
            for way in ways[:kept]:
                in_question[way] = True
    return [k for ways in ranked for way in ways[:1] for k in way]
