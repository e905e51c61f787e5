"""Measures whether trees are true of the pixels, by replacing these."""

import collections
import dataclasses
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, special, stats

from tfcaps.graphs import cut, last_routed_layer, split
from tfcaps.ops import Array, check_positive, check_that, parts_of
from tfcaps.rem.batches import predict
from tfcaps.rem.evaluation import words
from tfcaps.rem.evaluation.silencing import (
    Silencer,
    images_and_trees,
    in_batches,
    of_class,
)
from tfcaps.rem.parse.trees import TreeNetwork, Trees
from tfcaps.rem.results import Result

Shares = dict[str, float]
Controls = dict[str, float | None]

# Leaves are made by their windows if so many stay with these alone, and half as
# many at most with another window.
LEAST_LOCAL = 0.8
# Windows of trees tell something if they are above random ones by this much.
MARGIN = 0.05
# A leaf stays if it is at least so strong.
_STRONG = 0.5
# Most leaves of an image that are asked one by one.
_LEAVES = 8
# Deviation of the blur, as a share of the shorter side.
_BLUR = 0.1
# Rows and columns of windows among which the best are sought.
_CANDIDATES = 5
# What takes the place of pixels.
_FILLS = ("blur", "grey", "other")
# Of which the best windows are sought, as that takes longest.
_BEST = "grey"
# Falls that differ less are the same but for rounding.
_DECIMALS = 5
# Least probability of which log odds are taken.
_LEAST = 1e-7
# Of a network of windows: images in a batch are so many times fewer, windows in
# one, and most windows whose features are known.
_IN_A_BATCH, _WINDOWS, _MOST_KNOWN = 8, 128, 40_000
# Whether windows are kept, or replaced.
_KEPT = {"completeness": True, "change": False}


@dataclasses.dataclass(frozen=True)
class PixelFaithfulness(Result):
    """The result of `tfcaps.rem.pixel_faithfulness`: prints, saves as JSON.

    A dict has a share of images or leaves for each of what takes the place of
    pixels: `"blur"`, the image itself, blurred by a tenth of its shorter side;
    `"grey"`, the mean colour of all images; and `"other"`, another image. A
    leaf's window is a square around its place. A measure `..._random` is the
    same of random windows, as many and as large; `..._active` of windows of
    other active children that are not in one of the tree, in images that have
    some, `None` without any; `..._best`, in grey, of as many windows as a
    greedy search finds, if those of the tree or random ones do not do.

    Attributes:
        local_truth: Share of leaves that stay when all outside of their window
            is replaced: within one place of the grid a child of the same type
            is at least half as active.
        local_truth_random: The same when another window is left, one that does
            not overlap it where there is room. It must be low: a leaf that
            stays without its window is not made by it.
        prediction: Rank correlation over leaves of the evidence that is stated
            and that which is lost when their window is replaced. Evidence is
            the length of the predicted class, or its log odds where a layer
            adds up evidence in nats (`stated`); stated is what is lost when the
            leaf, and others of the tree in its window, are silenced after all
            children have been found.
        prediction_answers: Share of images of which the answer without the
            windows of the tree is that of the network with the tree silenced.
        completeness: Share of images that keep their answer when all outside
            the windows of the tree is replaced.
        change: Share of images whose answer changes when the windows of the
            tree are replaced. Its ceiling, `change_best`, is low where images
            are redundant.
        window: Side of a window as a share of the image's sides.
        area: Mean share of the image under the windows of a tree.
        leaves: How many leaves were asked.
        samples: How many images were used.
    """

    properties = ("local", "tell", "verdict")
    words = words.pixels_rows, words.pixels_verdict

    local_truth: Shares
    local_truth_random: Shares
    prediction: Shares
    prediction_answers: Shares
    completeness: Shares
    completeness_random: Shares
    completeness_active: Controls
    change: Shares
    change_random: Shares
    change_active: Controls
    completeness_best: float
    change_best: float
    window: float
    area: float
    leaves: int
    samples: int

    @property
    def local(self) -> bool:
        """Whether leaves are made by their windows.

        At least 80 % stay when all else is replaced, whatever takes its place,
        and at most half as many when another window is left.
        """
        return self.leaves > 0 and self.not_local is None

    @property
    def not_local(self) -> tuple[str, bool] | None:
        """With which pixels leaves do not stay, or stay with another window.

        `None` if there are none. The second tells which of both it is.
        """
        least = min(self.local_truth, key=self.local_truth.__getitem__)
        if not self.leaves:
            return None
        if self.local_truth[least] < LEAST_LOCAL:
            return least, False
        for fill, share in self.local_truth_random.items():
            if share > self.local_truth[fill] / 2:
                return fill, True
        return None

    @property
    def tell(self) -> bool:
        """Whether the windows of trees tell more of the answer than others.

        They keep or change more answers than random ones, in grey, by at least
        5 %.
        """
        gains = (
            self.completeness[_BEST] - self.completeness_random[_BEST],
            self.change[_BEST] - self.change_random[_BEST],
        )
        return max(gains) >= MARGIN


def pixel_faithfulness(
    model: keras.Model,
    dataset: Any,
    *,
    trees: Trees | None = None,
    window: float = 0.35,
    samples: int = 100,
    ceiling: int = 20,
    batch_size: int = 64,
    verbose: int = 0,
) -> PixelFaithfulness:
    """Measures whether trees are true of the pixels.

    Silenced capsules say what a network does with what it has found, and not
    what it has found it in: each place of a deep map sees the whole image. So
    this function replaces pixels, and looks at the image again. It asks, in
    this order: is a leaf made by its window; is what it states lost with it; do
    the windows of the tree keep the answer, and does it change without them?

    An image with five leaves takes about 75 passes of the network, and where no
    windows are known that change its answer, up to 25 more for each leaf, of
    `ceiling` images. In an image whose tree is empty there is nothing to
    replace, and nothing to keep.

    Args:
        model: As in `trees`, from images of a known size, whose children have
            places.
        dataset: As in `evaluate`; labels are not looked at.
        trees: As in `faithfulness`.
        window: Float in (0, 1). Side of a window as a share of the image's
            sides. Defaults to `0.35`.
        samples: Int. Measure at most this many images, the first ones, so
            shuffle data that are sorted by class. Defaults to `100`.
        ceiling: Int. Look for the best windows of at most this many images.
            Defaults to `20`.
        batch_size: Int. Most images in a batch. Defaults to `64`.
        verbose: 0 or 1. Show progress bars. Defaults to `0`.

    Raises:
        ValueError: As in `faithfulness`, if the children have no places, or an
            argument is out of range.

    References:
        - Petsiuk, Das, Saenko, 2018, https://arxiv.org/abs/1806.07421 (deletion
          and insertion)
        - DeYoung et al., 2020, https://arxiv.org/abs/1911.03429
          (comprehensiveness, sufficiency)
    """
    check_positive(samples=samples, ceiling=ceiling)
    check_that(0 < window < 1, "be in (0, 1)", window=window)
    silencer = Silencer(model)
    images, trees = images_and_trees(
        silencer.model, dataset, trees, samples, batch_size
    )
    if images.ndim != 4 or not trees.has_places or len(trees.grid) != 3:
        raise ValueError(
            "Windows need images [b, h, w, c] and children that have places. "
            f"Received: images of the shape {images.shape} and children of "
            f"the grid {trees.grid}."
        )
    windows = _Windows(trees, images.shape[1:3], window)
    asked = windows.leaves()
    pixels = _Pixels(silencer.model, images, windows, batch_size)
    total = len(_FILLS) * (3 * len(asked) + 6 * len(images))
    pixels.bar = keras.utils.Progbar(total, verbose=verbose, unit_name="image")
    silencer.take(in_batches(images, batch_size))
    image, child = asked.T
    under = trees.in_tree[image] & windows.under(image, child)
    stated = pixels.falls(image, silencer.lengths(image, under))
    silenced = silencer.lengths(np.arange(len(images)), trees.in_tree)
    shares: dict[str, Any] = collections.defaultdict(dict)
    for fill in _FILLS:
        for name, value in _of_leaves(pixels, asked, stated, fill).items():
            shares[name][fill] = value
        suited = _of_sets(pixels, silenced.argmax(axis=-1), fill)
        if fill == _BEST:
            suits_of = suited
        for name, suits in suited.items():
            shares[name][fill] = _share(suits) if len(suits) else None
    pixels.bar = None
    for measure, kept in _KEPT.items():
        known = suits_of[measure] | suits_of[f"{measure}_random"]
        shares[f"{measure}_best"] = pixels.best(known, kept, ceiling)
    areas = [windows.mask(places).mean() for places in windows.of_trees()]
    return PixelFaithfulness(
        **shares,
        window=float(window),
        area=float(np.mean(areas)),
        leaves=len(asked),
        samples=len(images),
    )


def _of_leaves(
    pixels: "_Pixels", asked: Array, stated: Array, fill: str
) -> Shares:
    """Returns what is measured of leaves, one by one."""
    image, child = asked.T
    own = pixels.trees.places[image, child]
    others = pixels.windows.elsewhere(asked)
    truth, random = (
        pixels.stays(_queries(image, places[:, None], True), child, fill)
        for places in (own, others)
    )
    lengths = pixels.lengths(_queries(image, own[:, None], False), fill)
    return {
        "local_truth": _share(truth),
        "local_truth_random": _share(random),
        "prediction": _rank_correlation(stated, pixels.falls(image, lengths)),
    }


def _of_sets(pixels: "_Pixels", silenced: Array, fill: str) -> dict[str, Array]:
    """Returns which windows keep an answer alone, or change it if replaced.

    And which answers without those of the tree are those of the network with
    the tree `silenced`.
    """
    found: dict[str, Array] = {}
    for which, places in (
        ("", pixels.windows.of_trees()),
        ("_random", pixels.windows.random()),
        ("_active", pixels.windows.of_active()),
    ):
        rows = [k for k, at in enumerate(places) if at is not None]
        for measure, kept in _KEPT.items():
            queries = _queries(rows, [places[k] for k in rows], kept)
            answers = pixels.lengths(queries, fill).argmax(axis=-1)
            same = answers == pixels.trees.predicted[rows]
            found[f"{measure}{which}"] = same if kept else ~same
            if not which and not kept:
                found["prediction_answers"] = answers == silenced
    return found


def _share(values: Array) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def _rank_correlation(first: Array, second: Array) -> float:
    """Returns Spearman's correlation, 0 where one of them does not vary."""
    ranks = [
        stats.rankdata(np.round(values, _DECIMALS))
        for values in (first, second)
    ]
    if any(len(np.unique(rank)) < 2 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks)[0, 1])


class _Query(NamedTuple):
    """An image of which some windows are kept, or replaced."""

    image: int
    places: Array  # of the windows, `[m, 2]`
    kept: bool


def _queries(images: Any, places: Any, kept: bool) -> list[_Query]:
    """Returns a query for each image and its places."""
    pairs = zip(images, places, strict=True)
    return [_Query(int(image), at, kept) for image, at in pairs]


class _Windows:
    """The windows of the leaves of trees, and others."""

    def __init__(self, trees: Trees, sides: tuple[int, int], window: float):
        self.trees = trees
        self.sides = np.array(sides)
        self.half = window * self.sides / 2

    def mask(self, places: Array) -> NDArray[np.bool_]:
        """Returns the pixels in windows around places, `[rows, columns]`."""
        near: Any = [
            np.abs(np.arange(side) - places[:, axis, None]) < self.half[axis]
            for axis, side in enumerate(self.sides)
        ]
        return np.asarray(np.any(near[0][..., None] & near[1][:, None], axis=0))

    def under(self, image: Array, child: Array) -> NDArray[np.bool_]:
        """Tells which children are in the windows of some, `[l, i]`."""
        places = self.trees.places[image]
        apart = np.abs(places - self.trees.places[image, child][:, None])
        return np.asarray(np.all(apart < self.half, axis=-1))

    def leaves(self) -> NDArray[np.int64]:
        """Returns image and child of some leaves of each tree, `[l, 2]`."""
        draw = np.random.default_rng(0)
        each = [np.zeros((0, 2), np.int64)]
        for image, inside in enumerate(self.trees.in_tree):
            children = draw.permutation(np.flatnonzero(inside))[:_LEAVES]
            each.append(np.stack([0 * children + image, children], axis=-1))
        return np.concatenate(each)

    def elsewhere(self, asked: Array) -> Array:
        """Returns for each leaf a place whose window does not overlap it."""
        draw = np.random.default_rng(0)
        chosen = []
        for image, child in asked:
            every = self._places(image)
            apart = np.abs(every - self.trees.places[image, child])
            apart = (apart / (2 * self.half)).max(axis=-1)
            far = np.flatnonzero(apart >= min(1.0, apart.max()))
            chosen.append(every[draw.choice(far)])
        return np.array(chosen).reshape(-1, 2)

    def of_trees(self) -> list[Array]:
        """Returns for each image the places of its leaves, each once."""
        places = zip(self.trees.places, self.trees.in_tree, strict=True)
        return [np.unique(at[inside], axis=0) for at, inside in places]

    def random(self) -> list[Array]:
        """Returns for each image as many random places."""
        draw = np.random.default_rng(0)
        return [
            draw.permutation(self._places(image))[: len(at)]
            for image, at in enumerate(self.of_trees())
        ]

    def of_active(self) -> list[Array | None]:
        """Returns as many places of other active children, `None` of none.

        They are in no window of the tree.
        """
        draw, trees = np.random.default_rng(0), self.trees
        found: list[Array | None] = []
        for image, own in enumerate(self.of_trees()):
            others = trees.places[image][trees.outside[image]]
            apart = np.abs(others[:, None] - own) >= self.half
            others = others[apart.any(axis=-1).all(axis=-1)]
            others = draw.permutation(np.unique(others, axis=0))
            found.append(others[: len(own)] if len(others) else None)
        return found

    def candidates(self) -> Array:
        """Returns places of windows that together cover an image."""
        along = [
            np.linspace(half, side - half, _CANDIDATES) - 0.5
            for half, side in zip(self.half, self.sides, strict=True)
        ]
        return np.stack(np.meshgrid(*along, indexing="ij"), -1).reshape(-1, 2)

    def _places(self, image: int) -> Array:
        return np.unique(self.trees.places[image], axis=0)


class _Pixels:
    """Asks a network about images some of whose pixels are replaced."""

    def __init__(
        self,
        model: keras.Model,
        images: Array,
        windows: _Windows,
        batch_size: int,
    ):
        layers = (x for x in model.layers if hasattr(x, "features_of"))
        layer = next(layers, None)
        self._known = None
        if layer is not None:
            self._known = _KnownWindows(cut(model, layer)[0], layer)
            model = split(model, layer)[1]
            batch_size = max(1, batch_size // _IN_A_BATCH)
        outputs = TreeNetwork(model).model
        wanted = {k: outputs.output[k] for k in ("lengths", "activations")}
        self._model = keras.Model(outputs.input, wanted)
        self._model.compile(jit_compile=keras.backend.backend() == "jax")
        self.trees, self.windows = windows.trees, windows
        self._images, self._size = images, batch_size
        # Lengths that are probabilities say little where they are near 1.
        self._odds = hasattr(last_routed_layer(model), "stated")
        self._fills = _fills(images)
        self.bar: Any = None

    def _ask(
        self, queries: Sequence[_Query], fill: str
    ) -> Iterator[tuple[slice, dict[str, Array]]]:
        for part in parts_of(len(queries), self._size):
            pixels = []
            for image, places, kept in queries[part]:
                mask = self.windows.mask(places)[..., None] == kept
                other = self._fills[fill][image]
                pixels.append(np.where(mask, self._images[image], other))
            seen = np.stack(pixels)
            if self._known is not None:
                seen = self._known(seen)
            yield part, predict(self._model, seen)
            if self.bar is not None:
                self.bar.add(len(pixels))

    def lengths(self, queries: Sequence[_Query], fill: str) -> Array:
        """Returns the lengths of all classes, `[queries, j]`."""
        found = [outputs["lengths"] for _, outputs in self._ask(queries, fill)]
        classes = self.trees.lengths.shape[1]
        return np.concatenate([np.zeros((0, classes)), *found])

    def stays(
        self, queries: Sequence[_Query], children: Array, fill: str
    ) -> NDArray[np.bool_]:
        """Tells which children stay, each in one of the queries."""
        grid, stays = self.trees.grid, np.zeros(len(queries), bool)
        for part, outputs in self._ask(queries, fill):
            active = outputs["activations"].reshape(-1, *grid)
            wide = ndimage.maximum_filter(active, (1, 3, 3, 1), mode="nearest")
            wide = wide.reshape(len(active), -1)
            images = [query.image for query in queries[part]]
            before = self.trees.activations[images, children[part]]
            now = wide[np.arange(len(wide)), children[part]]
            stays[part] = now >= _STRONG * before
        return stays

    def falls(self, rows: Array, lengths: Array) -> Array:
        """Returns how much evidence the predicted class has lost."""
        classes = self.trees.predicted[rows]
        before, after = (
            of_class(each, classes).astype("float64")
            for each in (self.trees.lengths[rows], lengths)
        )
        if self._odds:
            before, after = (
                special.logit(each.clip(_LEAST, 1 - _LEAST))
                for each in (before, after)
            )
        return np.asarray(before - after)

    def best(self, known: Array, kept: bool, most: int) -> float:
        """Returns for what share of images windows are found that suit.

        `known` tells for which they are known. A greedy search looks for them
        in some of the others: windows are added one by one, each the best of
        those that cover the image and those of the tree.
        """
        own, unknown = self.windows.of_trees(), np.flatnonzero(~known)
        rows = unknown[:most]
        chosen: dict[int, Array] = {k: np.zeros((0, 2)) for k in rows}
        suited = 0
        while chosen:
            chosen = {
                k: at for k, at in chosen.items() if len(at) < len(own[k])
            }
            queries = [
                _Query(k, np.concatenate([at, new[None]]), kept)
                for k, at in chosen.items()
                for new in np.concatenate([self.windows.candidates(), own[k]])
            ]
            margins = _margins(
                self.lengths(queries, _BEST), self.trees, queries
            )
            margins = margins if kept else -margins
            of_image = np.array([query.image for query in queries])
            for k in [*chosen]:
                mine = np.flatnonzero(of_image == k)
                best = mine[margins[mine].argmax()]
                chosen[k] = queries[best].places
                if margins[best] > 0:
                    suited += 1
                    del chosen[k]
        share = suited / max(len(rows), 1)
        return float(np.mean(known) + np.mean(~known) * share)


class _KnownWindows:
    """Features of images, whose windows are looked at once.

    Where only a part of an image is replaced, a network of windows sees few
    that it has not seen before.
    """

    def __init__(self, below: keras.Model, layer: Any):
        self._below, self._layer = below, layer
        window = keras.Input(layer.model.inputs[0].shape[1:])
        self._model = keras.Model(window, layer.features_of(window))
        self._model.compile(jit_compile=keras.backend.backend() == "jax")
        self._known: dict[bytes, Array] = {}

    def __call__(self, images: Array) -> Array:
        (seen,) = keras.tree.flatten(predict(self._below, images))
        windows = keras.ops.convert_to_numpy(self._layer.windows(seen))
        keys = [hashlib.sha1(each.tobytes()).digest() for each in windows]
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        new = {key: k for k, key in enumerate(keys) if key not in self._known}
        names, rows = [*new], np.array([*new.values()], int)
        for part in parts_of(len(rows), _WINDOWS):
            made = predict(self._model, windows[rows[part]])
            self._known |= zip(names[part], made, strict=True)
        features = np.stack([self._known[key] for key in keys])
        return features.reshape(len(images), *self._layer.grid, -1)


def _margins(lengths: Array, trees: Trees, queries: list[_Query]) -> Array:
    """Returns by how much the predicted class is longer than all others."""
    classes = trees.predicted[[query.image for query in queries]]
    own = of_class(lengths, classes)
    others = np.array(lengths)
    others[np.arange(len(classes)), classes] = -math.inf
    return np.asarray(own - others.max(axis=-1, initial=-math.inf))


def _fills(images: Array) -> dict[str, Array]:
    """Returns what takes the place of pixels, arrays like the images."""
    width = 2 * _BLUR * min(images.shape[1:3]) + 1  # thrice: like a Gaussian
    blurred = images.astype("float32")
    for _ in range(3):
        for axis in (1, 2):
            blurred = ndimage.uniform_filter1d(
                blurred, round(width), axis, mode="nearest"
            )
    mean = images.mean(axis=(0, 1, 2), dtype="float64")
    order = np.random.default_rng(0).permutation(len(images))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)  # no image is its own
    return {
        "blur": blurred,
        "grey": np.broadcast_to(mean.astype("float32"), images.shape),
        "other": images[other],
    }
