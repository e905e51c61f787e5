"""Measures maps of types where the true parts of objects are known."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from tfcaps.ops import Array
from tfcaps.rem.evaluation import named_parts, words
from tfcaps.rem.parse.trees import Trees
from tfcaps.rem.results import Result

# Half of the side of the window around a type, as a share of a box: 36 of 224.
_HALF = 36 / 224
# A type is consistent if it stands on a part in so many images that show it.
_CONSISTENT = 0.8
# Types that stand in fewer images are not asked.
_USED_SHARE = 0.01


@dataclasses.dataclass(frozen=True)
class Keypoints(Result):
    """The result of `tfcaps.rem.keypoints`: prints, and saves as JSON.

    What "nothing" covers counts as one more type.

    Attributes:
        information: Normalised mutual information (NMI) of the type at a
            keypoint and the number of the part, in [0, 1].
        rand_index: Adjusted Rand index (ARI) of the same; 0 by chance, 1 at
            best.
        covered: Share of the keypoints at which there is a type.
        points: How many keypoints there were; pixels, of masks.
        table: How often each type, and last nothing, is at each part, `[types +
            1, parts]`.
        consistency: Share of the types of which some part is in the window
            around their place in at least 80 % of the images that show both;
            `None` without boxes.
        stability: Mean over types of the share of images whose parts in this
            window stay the same under noise; `None` without `noisy`.
        regression_error: Mean distance of keypoints from where a linear
            regression from the centres of types sees them (Kp), as a share of
            the box; `None` without `training`.
        in_box: Share of the leaves that stand in the box; `None` without boxes
            or leaves.
        in_box_random: The same of all places, that is by chance.
    """

    words = (words.keypoints_rows,)

    information: float
    rand_index: float
    covered: float
    points: int
    table: tuple[tuple[int, ...], ...]
    consistency: float | None = None
    stability: float | None = None
    regression_error: float | None = None
    in_box: float | None = None
    in_box_random: float | None = None


def keypoints(
    trees: Trees,
    points: ArrayLike,
    boxes: ArrayLike | None = None,
    *,
    training: Sequence[Any] | None = None,
    noisy: Trees | None = None,
) -> Keypoints:
    """Measures how well a map of types tells the true parts of objects.

    `tfcaps.rem.named_parts` asks what leaves lie on, this function what
    `Trees.type_map` says at each keypoint, that is at the place nearest to it.
    A type stands at its most active child, and its centre is the mean place of
    its active children, weighted by their activations.

    Args:
        trees: What `tfcaps.rem.trees` returns of `n` images.
        points: Row and column of each part in pixels, `[n, parts, 2]`, the
            centre of the first pixel at 0, NaN of a part that is not seen; or
            masks, bool `[n, parts, rows, columns]`, each pixel of which counts.
        boxes: First row, first column, height and width of each object in
            pixels, `[n, 4]`, or of the whole images. Windows and errors are
            shares of them. Defaults to `None`, not known.
        training: The same three of other images, `(trees, points, boxes)`, on
            which the regression is fitted. Defaults to `None`, no regression.
        noisy: Trees of the same images under noise, for the stability; the
            authors add normal noise of 0.2, cut off at 0.25, to normalised
            pixels. Defaults to `None`, none.

    Raises:
        ValueError: If shapes do not fit, or no part of no image is seen.

    References:
        - van der Klis et al., 2023, "PDiscoNet" (NMI, ARI, Kp)
        - Choudhury et al., 2021, https://arxiv.org/abs/2111.06349 (NMI, ARI)
        - Huang et al., 2022, https://arxiv.org/abs/2212.05946 (consistency,
          stability: windows of 72 pixels in boxes of 224)
    """
    seen = _Seen(trees, points, boxes)
    table = seen.table()
    measures: dict[str, Any] = {}
    if boxes is not None:
        hits, stands = seen.hits(trees), seen.stands(trees)
        both = stands[..., None] & seen.visible[:, None]
        shares = _mean(hits, both).max(axis=-1)  # [t, parts] before
        measures["consistency"] = _of_used(shares >= _CONSISTENT, stands)
        inside = seen.inside()
        if trees.in_tree.any():
            measures["in_box"] = float(inside[trees.in_tree].mean())
        measures["in_box_random"] = float(inside.mean())
        if noisy is not None:
            either = stands | seen.stands(noisy)
            same = np.all(hits == seen.hits(noisy), axis=-1)
            of_types = _mean(same & either, either)
            measures["stability"] = _of_used(of_types, either)
        if training is not None:
            fitted = _Seen(*training)
            measures["regression_error"] = _regression_error(fitted, seen)
    elif training is not None or noisy is not None:
        raise ValueError(
            "`training` and `noisy` need `boxes`. Received: boxes=None."
        )
    total = int(table.sum())
    return Keypoints(
        information=named_parts.mutual_information(table),
        rand_index=named_parts.rand_index(table),
        covered=float(table[:-1].sum() / total),
        points=total,
        table=tuple(tuple(row) for row in table.tolist()),
        **measures,
    )


class _Seen:
    """Trees, with `centres` `[n, parts, 2]` of `visible` parts, and boxes."""

    def __init__(self, trees: Trees, points: Any, boxes: Any):
        self.trees = trees
        self._points = named_parts.check_parts(
            trees, named_parts.PartMasks(points)
        )
        self.centres = named_parts.centres_of(self._points)
        self.visible = np.isfinite(self.centres[..., 0])
        if not self.visible.any():
            raise ValueError("`points` must show a part. Received: none.")
        shape = (len(trees), 4)
        self._boxes = np.zeros(shape) if boxes is None else np.asarray(boxes)
        if self._boxes.shape != shape:
            raise ValueError(
                "`boxes` must be first row, first column, height and width of "
                f"each object, {shape}. Received: {self._boxes.shape}."
            )

    def table(self) -> NDArray[np.int64]:
        """Counts the types at each part, `[types + 1, parts]`."""
        trees, masks = self.trees, self._points
        table = np.zeros((trees.num_types + 1, masks.shape[1]), np.int64)
        types = trees.type_map.reshape(len(trees), -1)
        tree: Any = None
        for image, seen in enumerate(self.visible):
            if tree is None or trees.places.strides[0]:  # else shared by all
                places = trees.places[image].reshape(-1, trees.num_types, 2)
                tree = KDTree(places.mean(axis=1))
            if masks.ndim == 4:
                parts, *where = np.nonzero(masks[image])
                at = np.stack(where, axis=-1)
            else:
                parts, at = np.nonzero(seen)[0], masks[image, seen]
            np.add.at(table, (types[image, tree.query(at)[1]], parts), 1)
        return table

    def of_types(self, trees: Trees, values: Array) -> Array:
        """Returns values of children, `[n, places, types]`, 0 if inactive."""
        values = np.where(trees.active, values, 0.0)
        return values.reshape(len(trees), -1, trees.num_types)

    def stands(self, trees: Trees) -> Array:
        """Returns whether a type stands anywhere, `[n, types]`."""
        active = self.of_types(trees, trees.activations)
        return np.asarray(active.any(axis=1))

    def hits(self, trees: Trees) -> Array:
        """Returns which parts are in the window of a type, `[n, t, parts]`."""
        active = self.of_types(trees, trees.activations)
        first = active.argmax(axis=1) * trees.num_types
        child = first + np.arange(trees.num_types)
        at = np.take_along_axis(trees.places, child[..., None], axis=1)
        apart = np.abs(at[:, :, None] - self.centres[:, None])
        half = _HALF * self._boxes[:, None, None, 2:]
        near = np.all(apart <= half, axis=-1)  # False of NaN
        return np.asarray(near & self.stands(trees)[..., None])

    def inside(self) -> Array:
        """Returns which children stand in the box, `[n, i]`."""
        shares = self.in_box(self.trees.places)
        return np.all((shares >= 0) & (shares <= 1), axis=-1)

    def type_centres(self) -> Array:
        """Returns the centre of each type in its box, `[n, t, 2]`, or NaN."""
        trees = self.trees
        weights = self.of_types(trees, trees.activations)
        places = trees.places.reshape(*weights.shape, 2)
        sums = np.einsum("npt,nptd->ntd", weights, places)
        with np.errstate(invalid="ignore"):
            return self.in_box(sums / weights.sum(axis=1)[..., None])

    def in_box(self, at: Array) -> Array:
        """Returns places `[n, m, 2]` as shares of the boxes."""
        first, size = self._boxes[:, None, :2], self._boxes[:, None, 2:]
        return np.asarray((at - first) / size)


def _mean(values: Array, among: Array) -> Array:
    """Returns the mean over images among some of them, 0 of none."""
    return np.asarray(values.sum(axis=0) / np.maximum(among.sum(axis=0), 1))


def _of_used(values: Array, stands: Array) -> float:
    """Returns the mean over the types that stand in enough images."""
    used = stands.mean(axis=0) >= _USED_SHARE
    return float(values[used].mean()) if used.any() else 0.0


def _regression_error(fitted: _Seen, asked: _Seen) -> float:
    """Returns the mean distance of keypoints from where they are predicted.

    As the authors do: standardised on the images to fit, an absent type at its
    mean, without an intercept.
    """
    fit, ask = fitted.type_centres(), asked.type_centres()
    targets, truth = (s.in_box(s.centres) for s in (fitted, asked))
    distances = []
    for part in range(truth.shape[1]):
        rows, others = fitted.visible[:, part], asked.visible[:, part]
        if not rows.any():
            continue
        inputs = fit[rows].reshape(rows.sum(), -1)
        mean, deviation = _standard(inputs)
        middle, spread = _standard(targets[rows, part])
        known, new = (
            np.nan_to_num((x.reshape(len(x), -1) - mean) / deviation)
            for x in (inputs, ask[others])
        )
        aim = (targets[rows, part] - middle) / spread
        weights, *_ = np.linalg.lstsq(known, aim)
        error = new @ weights * spread + middle - truth[others, part]
        distances.append(np.linalg.norm(error, axis=-1))
    return float(np.concatenate(distances).mean())


def _standard(values: Array) -> tuple[Array, Array]:
    """Returns means and deviations of columns, without what is NaN."""
    known = np.ma.masked_invalid(values)
    deviation = known.std(axis=0).filled(1.0)
    return known.mean(axis=0).filled(0.0), np.where(deviation, deviation, 1.0)
