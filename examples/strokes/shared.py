"""Finds the strokes that components share, as components are found in classes.

A stroke is a straight run of ink. Lines of several angles and lengths explain
an image one by one, each time that which explains most. Of the lines in a
component those are its strokes that recur in images of it, at one place.
Strokes of about one angle and one length are of one type.

References:
    - Mallat, Zhang, 1993, "Matching pursuits with time-frequency dictionaries"
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.cluster.hierarchy import fcluster, linkage

from examples.kanji.shared import SharedParts, ink_of, middles_and_sizes

Array = NDArray[Any]

# Pixels from place to place of a network, and its first place.
STRIDE, OFFSET = 2, 1

_ANGLES = 16
_LENGTHS = (4, 6, 9, 12, 16, 21, 27)  # pixels
_SIDE = 31  # of the picture of a line, in pixels
_WIDTH = 0.8  # standard deviation across a line, in pixels
_GAP = 0.25  # of an image's ink; what is below speaks against a line
_LEAST = 0.01  # of the ink that a further line must explain
_MOST = 24  # lines of an image
# Lines differ by 1 if they are so many pixels, radians or e-folds apart.
_SCALES = (2.0, np.deg2rad(18.0), 0.4)
_REACH = 3  # pixels from where a stroke is expected to where it may be
_NEAR = 1.6  # steps between places around a stroke that tell nothing
_RECURS = 0.4  # of the images of a component
_APART = 1.2  # from which distance on strokes are of different types


class SharedStrokes(NamedTuple):
    """The strokes of types of parts, one in each of `s` slots.

    Attributes:
        parts: The type of the part of each slot, `[s]`.
        types: The type of its stroke, `[s]`, from 0 on.
        places: Row and column of the stroke's middle, in pixels from the middle
            of the part, `[s, 2]`.
        lines: Angle in radians, from the right anticlockwise, and length in
            pixels of each stroke, `[s, 2]`.
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

        A stroke is where its line fits best near the place that the blueprints
        of its part and class say.

        Args:
            images: Array `[n, h, w, c]`.
            labels: Their classes `[n]`.
            parts: As in `find`.

        Returns:
            Int8 `[n, rows, columns, num_types]` of places: 1 at the place that
            is nearest to a stroke, -1 next to it, and 0 elsewhere.
        """
        counts = [side // STRIDE for side in images.shape[1:3]]
        rows, columns = (OFFSET + STRIDE * np.arange(x) for x in counts)
        pictures, kinds = _pictures()
        ink = ink_of(images)
        middles, sizes = middles_and_sizes(ink, labels)
        told = np.zeros((len(images), *counts, self.num_types), np.int8)
        for j in np.unique(labels):
            at, types, line = self._of_class(parts, j)
            nearest = np.argsort(_apart(line[:, None], kinds), axis=1)[:, :5]
            for n in np.flatnonzero(labels == j):
                expected = middles[n] + at * sizes[n]
                places = _best(ink[n], pictures[nearest], expected)
                apart = np.hypot(
                    rows[:, None] - places[:, 0, None, None],
                    columns - places[:, 1, None, None],
                )
                for each, t in zip(apart, types, strict=True):
                    told[n, each < _NEAR * STRIDE, t] = -1
                for each, t in zip(apart, types, strict=True):
                    told[n, ..., t].flat[each.argmin()] = 1
        return told

    def _of_class(
        self, parts: SharedParts, j: int
    ) -> tuple[Array, Array, Array]:
        """Returns places in the class, types, and lines of all its strokes."""
        each = []
        for k in np.flatnonzero(parts.classes == j):
            own = self.parts == parts.types[k]
            alike = parts.types == parts.types[k]
            larger = parts.sizes[k] / parts.sizes[alike].mean(0)
            places = parts.places[k] + self.places[own] * larger
            each.append((places, self.types[own], self.lines[own]))
        at, types, line = map(np.concatenate, zip(*each, strict=True))
        return at, types, line


def find(images: Array, labels: Array, parts: SharedParts) -> SharedStrokes:
    """Finds the strokes that parts share.

    Args:
        images: Training images `[n, h, w, c]`, about ten of each class.
        labels: Their class indices `[n]`.
        parts: What `tfcaps.shared_parts.find` returns of such images.
    """
    labels = np.asarray(labels)
    ink = ink_of(images)
    middles, sizes = middles_and_sizes(ink, labels)
    found = lines(ink)
    image, line = found[:, 0].astype(int), found[:, 1:]
    at = (line[:, :2] - middles[image]) / sizes[image]
    line = np.concatenate([at, line[:, 2:]], axis=1)
    slots: list[Array] = []
    for part in range(parts.num_types):
        own, count = [], 0
        for k in np.flatnonzero(parts.types == part):
            of_class = labels[image] == parts.classes[k]
            apart = (line[:, :2] - parts.places[k]) / parts.sizes[k]
            inside = of_class & (np.abs(apart) < 0.55).all(axis=1)
            scaled = apart[inside] * parts.sizes[parts.types == part].mean(0)
            own.append(np.c_[image[inside], scaled, line[inside, 2:]])
            count += int(np.sum(labels == parts.classes[k]))
        for slot in _recurring(np.concatenate(own), count):
            slots.append(np.array([part, *slot]))
    every = np.array(slots)
    apart = _apart(every[:, None, 3:], every[:, 3:])
    above = np.triu_indices(len(apart), 1)
    types = fcluster(linkage(apart[above], "average"), _APART, "distance") - 1
    return SharedStrokes(
        every[:, 0].astype(int), types, every[:, 1:3], every[:, 3:]
    )


def _best(ink: Array, pictures: Array, expected: Array) -> Array:
    """Returns where pictures fit best near expected places `[s, 2]`.

    There are some `[s, k, side, side]` for each place.
    """
    strongest = max(np.quantile(ink, 0.97), 1e-6)
    half = _SIDE // 2 + 2 * _REACH
    signal = np.pad(
        np.minimum(ink / strongest, 1.0) - _GAP, half, constant_values=-_GAP
    )
    best = np.empty(expected.shape)
    shifts = np.indices((2 * _REACH + 1,) * 2).reshape(2, -1).T - _REACH
    far = np.exp(-0.5 * (shifts**2).sum(axis=1) / (_REACH / 1.5) ** 2)
    for k, place in enumerate(expected):
        centre = np.clip(np.rint(place).astype(int), 0, np.array(ink.shape) - 1)
        top, left = centre + half - _SIDE // 2 - _REACH
        side = _SIDE + 2 * _REACH
        windows = np.lib.stride_tricks.sliding_window_view(
            signal[top : top + side, left : left + side], (_SIDE, _SIDE)
        ).reshape(len(shifts), -1)
        fits = windows @ pictures[k].reshape(len(pictures[k]), -1).T
        best[k] = centre + shifts[np.argmax(fits.max(axis=1) * far)]
    return best


def _turn(angles: Array) -> Array:
    """Returns angles between lines, at most a quarter, in radians."""
    return (angles + np.pi / 2) % np.pi - np.pi / 2


def _apart(lines: Array, others: Array) -> Array:
    """Returns how far angles and lengths, `[..., 2]`, differ."""
    turned = _turn(lines[..., 0] - others[..., 0]) / _SCALES[1]
    longer = np.log(lines[..., 1] / others[..., 1]) / _SCALES[2]
    return np.hypot(turned, longer)


def _recurring(line: Array, count: int) -> list[Array]:
    """Returns the lines that recur in many of `count` images.

    Each is an image, row, column, angle and length, `[m, 5]`.
    """
    image, at, angle, extent = line[:, 0], line[:, 1:3], line[:, 3], line[:, 4]
    away = np.linalg.norm(at[:, None] - at, axis=-1) / _SCALES[0]
    apart = np.hypot(away, _apart(line[:, None, 3:], line[:, 3:]))
    near, left = apart < 1.5, np.ones(len(line), bool)
    found = []
    while left.any():
        support = (near & left).sum(axis=1) * left
        best = int(support.argmax())
        own = near[best] & left
        if len(np.unique(image[own])) < _RECURS * count:
            break
        left &= ~near[best]
        turned = angle[best] + _turn(angle[own] - angle[best]).mean()
        length = np.exp(np.log(extent[own]).mean())
        found.append(np.array([*at[own].mean(axis=0), turned, length]))
    return found


def lines(ink: Array) -> Array:
    """Explains images by lines, of ink `[n, h, w]` that is 0 where none is.

    Each is an image, row and column of the middle, angle and length, `[m, 5]`.
    """
    pictures, kinds = _pictures()
    products = _products(pictures)
    _, height, width = ink.shape
    half, reach = _SIDE // 2, _SIDE - 1
    size = fft.next_fast_len(max(height, width) + _SIDE)
    spectra = np.conj(fft.rfft2(pictures, (size, size)))
    strongest = np.maximum(
        np.quantile(ink, 0.97, axis=(1, 2), keepdims=True), 1e-6
    )
    signal = np.minimum(ink / strongest, 1.0) - _GAP
    found = []
    for number, each in enumerate(signal):
        padded = fft.rfft2(np.pad(each, half), (size, size))
        fit = fft.irfft2(padded * spectra, (size, size))[:, :height, :width]
        fit = np.pad(fit, ((0, 0), (reach, reach), (reach, reach)))
        inner = fit[:, reach:-reach, reach:-reach]
        least = _LEAST * np.sum(np.maximum(each, 0.0) ** 2)
        for _ in range(_MOST):
            kind, row, column = np.unravel_index(inner.argmax(), inner.shape)
            best = inner[kind, row, column]
            if best <= 0 or best**2 < least:
                break
            found.append((number, row, column, *kinds[kind]))
            around = fit[
                :, row : row + 2 * reach + 1, column : column + 2 * reach + 1
            ]
            around -= best * products[kind]
    return np.array(found, float).reshape(-1, 5)


def _pictures() -> tuple[Array, Array]:
    """Returns pictures `[k, side, side]` of lines, their angles and lengths."""
    down, right = np.indices((_SIDE, _SIDE)) - _SIDE // 2
    pictures, kinds = [], []
    for angle in np.pi * np.arange(_ANGLES) / _ANGLES:
        along = right * np.cos(angle) - down * np.sin(angle)
        across = right * np.sin(angle) + down * np.cos(angle)
        for extent in _LENGTHS:
            beyond = np.maximum(np.abs(along) - extent / 2.0, 0.0)
            picture = np.exp(-0.5 * (across**2 + beyond**2) / _WIDTH**2)
            pictures.append(picture / np.linalg.norm(picture))
            kinds.append((angle, extent))
    return np.array(pictures, np.float32), np.array(kinds)


def _products(pictures: Array) -> Array:
    """Returns the products of moved pictures, `[k, k, shifts, shifts]`."""
    size, reach = fft.next_fast_len(2 * _SIDE), _SIDE - 1
    spectra = fft.rfft2(pictures, (size, size))
    products = fft.irfft2(spectra[:, None] * np.conj(spectra), (size, size))
    products = np.roll(products, (reach, reach), (2, 3))
    return products[..., : 2 * reach + 1, : 2 * reach + 1].astype(np.float32)
