"""Silences children of a data set's images, and measures the effect."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.batches import NO_SAMPLES, labelled_batches
from tfcaps.rem.evaluation.silencing import Above, Silencer, in_steps
from tfcaps.rem.finite import check_finite

Array = NDArray[Any]

# Children are silenced one after another up to this many, else in such steps.
_MOST_STEPS = 16

# Children are active if they exceed this share of the image's most active one.
_ACTIVE = 0.1

# By rows and columns.
_SHIFTS = ((-1, 0), (1, 0), (0, -1), (0, 1))

# Couplings that differ less are the same but for rounding.
_DECIMALS = 6
# The same for their variance: that of couplings which differ by 1e-7.
_NO_VARIANCE = 1e-14


def effect_rows(children: int) -> int:
    """Returns the number of times that `Study.orders` routes each image."""
    steps = len(_counts(children)) - 1
    return children + 6 * (steps - 1) + 1


class Study:
    """The children of all images, and the effects of silencing some.

    Attributes:
        count: Int. How many images, `n`.
        classes: Predicted classes `[n]`.
        lengths: Lengths `[n]` of these classes.
        towards: Couplings `[n, i]` towards them.
        trees: Bool `[n, i]`.
        active: The most active of each capsule, `[m]`, by layer.
    """

    def __init__(
        self,
        silencer: Silencer,
        dataset: Any,
        samples: int,
        batch_size: int,
        seed: int,
        verbose: int,
    ):
        self._silencer = silencer
        self._seed = seed
        self._verbose = verbose
        self.active: dict[str, Array] = {}
        self._images, self._taken = self._below(dataset, samples, batch_size)
        self.count = len(self._images)
        # Means in float64, whose result no batch size changes.
        self._means = [
            np.mean(x, axis=0, dtype="float64").astype("float32")
            for x in self._taken
        ]

    def _below(
        self, dataset: Any, samples: int, batch_size: int
    ) -> tuple[list[Array], list[Array]]:
        """Runs the network below on the images, until there are enough."""
        images: list[Array] = []
        parts: list[list[Array]] = []
        network = self._silencer.model
        batches, number = labelled_batches(
            dataset, batch_size, network, need_labels=False
        )
        if number is not None:
            number = min(number, -(-samples // batch_size))
        bar = keras.utils.Progbar(
            number, verbose=self._verbose, unit_name="batch"
        )
        for batch, _ in batches:
            batch = batch[: samples - len(images)]
            if len(batch):
                taken, active = self._silencer.below(batch)
                check_finite(taken, network)
                self._note_active(active)
                images.extend(batch)
                parts.append(taken)
                bar.add(1)
            if len(images) == samples:
                break
        if not images:
            raise ValueError(NO_SAMPLES)
        return images, [np.concatenate(x) for x in zip(*parts, strict=True)]

    def _note_active(self, active: dict[str, Array]) -> None:
        for name, values in active.items():
            most = values.max(axis=0)
            before = self.active.get(name, most)
            self.active[name] = np.maximum(before, most)

    def plan(self, draws: int, some: int, few: int, shifted: int) -> None:
        """Starts a progress bar of as many rows as will be routed."""
        children = self._silencer.num_children
        rows = 5 * self.count + (6 * draws + 3) * some
        rows += effect_rows(children) * few
        # Where compilers want full steps, these need not be larger.
        largest = max(self.count, draws * some, children * few)
        self._silencer.rows = min(self._silencer.rows, largest)
        rows += len(_SHIFTS) * shifted * self._has_pixels
        self._bar = keras.utils.Progbar(
            rows, verbose=self._verbose, unit_name="routing"
        )
        self._see_all()

    @property
    def _has_pixels(self) -> bool:
        return self._images[0].ndim == 3

    def _see_all(self) -> None:
        """Routes all children."""
        seen = self._above(self._taken, self._silencer.above)
        for part in seen:
            self._note_active(part.active)
        all_lengths = np.concatenate([part.lengths for part in seen])
        check_finite(all_lengths, self._silencer.model)
        self.classes = all_lengths.argmax(axis=-1)
        self.lengths = of_class(all_lengths, self.classes)
        self.towards = np.concatenate([part.towards for part in seen])
        self.trees = np.concatenate([part.trees for part in seen])

    def whole_trees(self) -> dict[str, Any]:
        """Measures the class without its tree, and with the tree alone."""
        every = np.arange(self.count)
        found: dict[str, Any] = {
            "sufficiency": {},
            "necessity": {},
            "same_without_tree": {},
        }
        for name in ("zero", "mean"):
            alone = self._silence(every, lambda r: ~self.trees[r], name)
            without = self._silence(every, lambda r: self.trees[r], name)
            same = kept(without, self.classes)
            found["sufficiency"][name] = self._kept(every, alone)
            found["necessity"][name] = self._lost(every, without)
            found["same_without_tree"][name] = float(np.mean(same))
        return found

    def random_children(self, some: Array, draws: int) -> dict[str, Any]:
        """Returns the same of as many random children of some images."""
        sets = self._random_sets(draws)[some]
        trees = self.trees[some]
        found: dict[str, Any] = {
            "sufficiency_random": {},
            "necessity_random": {},
        }
        images = np.repeat(some, draws)
        flat = sets.reshape(-1, sets.shape[-1])
        for name in ("zero", "mean"):
            alone = self._silence(images, lambda r: ~flat[r], name)
            without = self._silence(images, lambda r: flat[r], name)
            found["sufficiency_random"][name] = self._kept(images, alone)
            found["necessity_random"][name] = self._lost(images, without)
        found["randomisation_random"] = float(
            np.mean([jaccard(trees, sets[:, k]) for k in range(draws)])
        )
        return found

    def active_children(self, some: Array, draws: int) -> dict[str, Any]:
        """Measures other active children, and the most active ones.

        Returns:
            `necessity_active`, that of as many active children that are not in
            the tree, drawn at random, and `sufficiency_longest`, that of as
            many children as the tree has, the most active ones.
        """
        activations = self._silencer.activations(self._taken)[some]
        trees = self.trees[some]
        sizes = np.sum(trees, axis=-1)
        largest = activations.max(axis=-1, keepdims=True)
        others = (activations > _ACTIVE * largest) & ~trees
        draw = np.random.default_rng(self._seed)
        scores = draw.random((len(some), draws, others.shape[-1]))
        places = (scores + ~others[:, None]).argsort(axis=-1).argsort(axis=-1)
        sets = (places < sizes[:, None, None]) & others[:, None]
        flat = sets.reshape(-1, sets.shape[-1])
        longest = positions(activations) < sizes[:, None]
        images = np.repeat(some, draws)
        found: dict[str, Any] = {
            "necessity_active": {},
            "sufficiency_longest": {},
        }
        for name in ("zero", "mean"):
            without = self._silence(images, lambda r: flat[r], name)
            alone = self._silence(some, lambda r: ~longest[r], name)
            found["necessity_active"][name] = self._lost(images, without)
            found["sufficiency_longest"][name] = self._kept(some, alone)
        return found

    def _random_sets(self, draws: int) -> Array:
        """Returns as many random children as trees have, bool `[n, r, i]`.

        They are drawn among those that pruning has left an influence. To
        silence others changes nothing, and any tree would look necessary.
        """
        draw = np.random.default_rng(self._seed)
        shape = (self.count, draws, self._silencer.num_children)
        scores = draw.random(shape) + ~self._silencer.left(self._taken)
        places = scores.argsort(axis=-1).argsort(axis=-1)
        sets: Array = places < np.sum(self.trees, axis=-1)[:, None, None]
        return sets

    def orders(self, few: Array) -> dict[str, Any]:
        """Silences children of a few images alone, and one after another."""
        children = self._silencer.num_children
        images = np.repeat(few, children)
        alone = self._silence(
            images, lambda r: np.arange(children) == (r % children)[:, None]
        )
        left = of_class(alone, self.classes[images])
        effects = self.lengths[few][:, None] - left.reshape(-1, children)
        towards = self.towards[few]
        draw = np.random.default_rng(self._seed)
        scores = {
            "coupling": towards,
            "random": draw.random((self.count, children))[few],
            "effect": effects,
        }
        nothing = self._relative(
            few, self._silence(few, lambda r: np.ones((len(r), children), bool))
        )
        deletion = {}
        insertion = {}
        for name, score in scores.items():
            places = positions(score)
            deletion[name] = self._area(few, places, None, nothing)
            insertion[name] = self._area(few, places, nothing, None)
        return {
            "child_deletion": deletion,
            "child_insertion": insertion,
            "rank_agreement": rank_agreement(towards, effects),
        }

    def _area(
        self,
        few: Array,
        places: Array,
        first: Array | None,
        last: Array | None,
    ) -> float:
        """Returns the area from `first` to `last`; `None` is all children."""
        counts = _counts(self._silencer.num_children)
        inner = counts[1:-1]
        images = np.repeat(few, len(inner))
        heights = [np.ones(len(few)) if first is None else first]

        def silenced(rows: Array) -> Array:
            image, step = np.divmod(rows, len(inner))
            among: Array = places[image] < inner[step][:, None]
            return among if first is None else ~among

        if len(inner):
            lengths = self._silence(images, silenced)
            between = self._relative(images, lengths)
            heights += list(between.reshape(len(few), -1).T)
        heights.append(np.ones(len(few)) if last is None else last)
        return area(counts, np.stack(heights, axis=-1))

    def stability(self, chosen: Array) -> float | None:
        """Compares trees with those of images shifted by one pixel."""
        if not self._has_pixels:
            return None
        found = []
        images = np.stack([self._images[n] for n in chosen])
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "edge")
        rows, columns = images.shape[1:3]
        for down, right in _SHIFTS:
            top, left = 1 - down, 1 - right
            shifted = padded[:, top : top + rows, left : left + columns]
            taken = self._taken_of(shifted)
            seen = self._above(taken, self._silencer.above)
            trees = np.concatenate([part.trees for part in seen])
            found.append(jaccard(self.trees[chosen], trees))
        return float(np.mean(found))

    def _taken_of(self, images: Array) -> list[Array]:
        rows = self._silencer.rows
        parts = [
            self._silencer.below(images[start : start + rows])[0]
            for start in range(0, len(images), rows)
        ]
        return [np.concatenate(x) for x in zip(*parts, strict=True)]

    def randomisation(self, some: Array, draws: int) -> float:
        """Compares trees with those after redrawn weights, part by part."""
        redrawn = self._silencer.redrawn()
        found = 0.0
        for k in range(min(draws, len(some))):
            part = some[k::draws]
            taken = [x[part] for x in self._taken]
            above = partial(redrawn, seed=self._seed + 1000 * k)
            seen = self._above(taken, above)
            trees = np.concatenate([each.trees for each in seen])
            found += len(part) * jaccard(self.trees[part], trees)
        return found / len(some)

    def _above(
        self, taken: list[Array], above: Callable[[list[Array]], Above]
    ) -> list[Above]:
        steps = in_steps(len(taken[0]), self._silencer.rows, self._bar)
        return [above([x[part] for x in taken]) for part in steps]

    def _silence(
        self,
        images: Array,
        silenced: Callable[[Array], Array],
        name: str = "zero",
    ) -> Array:
        """Returns lengths `[r, j]` with some children silenced.

        Args:
            images: Which images, `[r]`.
            silenced: From row numbers to the children, bool `[..., i]`.
            name: `"zero"` or `"mean"`.
        """
        values = {"zero": None, "mean": self._means}[name]
        rows = np.arange(len(images))
        return np.concatenate(
            [
                self._silencer.silence(
                    [x[images[part]] for x in self._taken],
                    silenced(rows[part]),
                    values,
                )
                for part in in_steps(
                    len(images), self._silencer.rows, self._bar
                )
            ]
        )

    def _kept(self, images: Array, lengths: Array) -> float:
        return float(np.mean(kept(lengths, self.classes[images])))

    def _lost(self, images: Array, lengths: Array) -> float:
        gone = lost(lengths, self.classes[images], self.lengths[images])
        return float(np.mean(gone))

    def _relative(self, images: Array, lengths: Array) -> Array:
        """Returns the lengths of the classes over those with all children."""
        now = of_class(lengths, self.classes[images])
        return now / np.maximum(self.lengths[images], 1e-7)


def _counts(children: int) -> Array:
    """Returns the number of silenced children after each step, from 0 on."""
    steps = min(children, _MOST_STEPS)
    return np.arange(steps + 1) * children // steps


def kept(lengths: Array, classes: Array) -> Array:
    """Tells whether a class is the longest, bool `[b]`."""
    same: Array = lengths.argmax(axis=-1) == classes
    return same


def lost(lengths: Array, classes: Array, before: Array) -> Array:
    """Tells whether a class is lost, bool `[b]`.

    It is no longer the longest, or less than half as long as `before` `[b]`.
    """
    now = of_class(lengths, classes)
    gone: Array = ~(kept(lengths, classes) & (now >= 0.5 * before))
    return gone


def of_class(lengths: Array, classes: Array) -> Array:
    """Returns the length `[b]` of one class of each sample."""
    column = np.take_along_axis(lengths, classes[:, None], axis=-1)
    return column[:, 0]


def jaccard(first: Array, second: Array) -> float:
    """Returns the mean Jaccard index of sets, bool `[b, i]`; 1 if empty."""
    both = np.sum(first & second, axis=-1)
    either = np.sum(first | second, axis=-1)
    return float(np.mean(np.where(either, both / np.maximum(either, 1), 1.0)))


def positions(scores: Array) -> Array:
    """Returns the place of each child from the highest score on, `[b, i]`.

    Of equal scores the first comes first.
    """
    order = np.argsort(-np.round(scores, _DECIMALS), axis=-1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(order.shape[1])[None], axis=-1)
    return places


def rank_agreement(first: Array, second: Array) -> float:
    """Returns the mean over samples of Spearman's correlation, 0 if none.

    Args:
        first: Scores `[b, i]`.
        second: Scores `[b, i]`.
    """
    ranks = [_ranks(np.round(x, _DECIMALS)) for x in (first, second)]
    ranks = [x - np.mean(x, axis=-1, keepdims=True) for x in ranks]
    deviations = [np.sqrt(np.sum(x**2, axis=-1)) for x in ranks]
    product = deviations[0] * deviations[1]
    covariance = np.sum(ranks[0] * ranks[1], axis=-1)
    defined = product > 0
    return float(
        np.mean(
            np.where(defined, covariance / np.where(defined, product, 1), 0)
        )
    )


def _ranks(scores: Array) -> Array:
    """Returns ranks `[b, i]`, equal scores sharing their mean."""
    below = np.empty(scores.shape)
    upto = np.empty(scores.shape)
    for row, values in enumerate(scores):
        ordered = np.sort(values)
        below[row] = np.searchsorted(ordered, values, side="left")
        upto[row] = np.searchsorted(ordered, values, side="right")
    return 0.5 * (below + upto)


def class_share(values: Array, classes: Array) -> float:
    """Returns the share of the variance over samples that classes explain.

    Args:
        values: `[b, i]`; sums of squares are those over all children.
        classes: `[b]`.

    Returns:
        In [0, 1]; 1 if nothing varies.
    """
    centred = values.astype("float64") - np.mean(
        values, axis=0, dtype="float64"
    )
    total = float(np.sum(centred**2))
    if total <= _NO_VARIANCE * values.size:
        return 1.0
    between = 0.0
    for j in np.unique(classes):
        of_class_j = centred[classes == j]
        mean = np.mean(of_class_j, axis=0)
        between += len(of_class_j) * float(np.sum(mean**2))
    return min(between / total, 1.0)


def area(counts: Array, heights: Array) -> float:
    """Returns the mean area under curves, by trapezoids.

    Args:
        counts: Numbers of children `[n]`, from 0 to all.
        heights: `[b, n]`.
    """
    widths = np.diff(counts) / counts[-1]
    middles = 0.5 * (heights[:, 1:] + heights[:, :-1])
    return float(np.mean(np.sum(widths * middles, axis=-1)))


def evenly(count: int, most: int) -> Array:
    """Returns at most so many of `count` indices, evenly spaced."""
    if count <= most:
        return np.arange(count)
    return np.arange(most) * count // most
