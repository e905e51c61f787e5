"""Measures whether a network uses its parse trees, by silencing them."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.ops import Array, check_positive
from tfcaps.rem.evaluation import words
from tfcaps.rem.evaluation.pixels import PixelFaithfulness, pixel_faithfulness
from tfcaps.rem.evaluation.saliency_checks import (
    SaliencyChecks,
    saliency_checks,
)
from tfcaps.rem.evaluation.silencing import (
    Silencer,
    first,
    images_and_trees,
    in_batches,
    of_class,
)
from tfcaps.rem.parse.trees import Trees
from tfcaps.rem.parse.trees import trees as trees_of
from tfcaps.rem.results import Result

Shares = dict[str, float]

# Images for which random and active children are silenced; whose saliency maps
# are compared; and whose pixels are replaced.
_CONTROLS, _MAPS, _PIXELS = 400, 100, 100
# Activations that differ less are the same but for rounding.
_DECIMALS = 6
# The same for the variance of couplings: that of those which differ by 1e-7.
_NO_VARIANCE = 1e-14
# Trees are used if at least this share of the answers that chance would change
# do. A network that without them always names the class that it names most, as
# a silent one does, is above it: of shares q it changes 1 - max(q), and chance
# 1 - sum(q^2), which is less than twice that.
LEAST_OF_CHANCE = 0.5
# Children at their mean poses still vote a little for their class, which may be
# the longest for want of others. So there so many answers must change, or
# their classes be shorter than `HALF` of their length.
LEAST_NECESSITY = 0.5
HALF = 0.5
# Both must be above what is without other children, by this much.
MARGIN = 0.05
# Below it nearly all images have one answer, and hardly any could change.
LEAST_CHANCE = 0.1


@dataclasses.dataclass(frozen=True)
class Faithfulness(Result):
    """The result of `tfcaps.rem.faithfulness`: prints, and saves as JSON.

    Measures are shares in [0, 1]. A dict has one for each replacement of
    silenced children: `"zero"`, pose and activation 0, or `"mean"`, their means
    over the images. A measure `..._random` is the same without as many random
    children, out of those that pruning has left an influence; `..._active`
    without as many active children that are not in the tree, or all of them
    where there are fewer, see `Trees.active`.

    Attributes:
        answer_changes: Share of images for which another class is the longest
            when the tree is silenced.
        answer_changes_chance: The same by chance, if each image got the answer
            of a random one: 1 - sum(q_j^2), with the share q_j of the images
            that are named j.
        shorter: Share of images whose class is less than half as long when the
            tree is silenced, whether the answer changes or not.
        necessity: Share of images of either kind, mostly of the latter.
        sufficiency: Share of images that keep their answer when all but the
            tree is silenced.
        sufficiency_random, sufficiency_longest: The same with as many random
            children, and with as many of the most active ones.
        size: Mean share of the children that are in the tree.
        empty_trees: Share of images whose tree has no child.
        class_share: Share of the variance over images of the couplings with the
            predicted class that this class explains; 1 is a lookup of it.
        stability: Mean Jaccard index of the tree and that of the image shifted
            by one pixel. `None` without shifts, or if the model's input is no
            image.
        samples: How many images were used.
        pixels: What `pixel_faithfulness` returned, if that was measured.
        saliency: What `saliency_checks` returned, `None` of a network without
            saliency maps.
    """

    properties = ("same_without_tree", "empty", "verdict")
    words = words.faithfulness_rows, words.faithfulness_verdict

    answer_changes: Shares
    answer_changes_random: Shares
    answer_changes_active: Shares
    answer_changes_chance: float
    shorter: Shares
    shorter_random: Shares
    shorter_active: Shares
    necessity: Shares
    necessity_random: Shares
    necessity_active: Shares
    sufficiency: Shares
    sufficiency_random: Shares
    sufficiency_longest: Shares
    size: float
    empty_trees: float
    class_share: float
    stability: float | None
    samples: int
    pixels: PixelFaithfulness | None = None
    saliency: SaliencyChecks | None = None

    @property
    def same_without_tree(self) -> Shares:
        """Share of images with the same answer when the tree is silenced."""
        return {name: 1.0 - x for name, x in self.answer_changes.items()}

    @property
    def empty(self) -> bool | None:
        """Whether the network does without its trees, see `doubt`.

        `None` where nearly all images have the same answer, so that it hardly
        could change.
        """
        if self.answer_changes_chance < LEAST_CHANCE:
            return None
        return self.doubt is not None

    @property
    def doubt(self) -> tuple[str, str] | None:
        """Why the trees are not used: a replacement, and what counts as much.

        The latter is `""` where less than half as many answers change as by
        chance, or at mean poses the necessity is below a half; else the other
        children without which it is hardly less. `None` if they are used.
        """
        for name, (_, share, least) in self.judged.items():
            if share < least:
                return name, ""
        for name, (measure, share, _) in self.judged.items():
            for control, others in self.controls(measure).items():
                if share - others[name] < MARGIN:
                    return name, control
        return None

    @property
    def judged(self) -> dict[str, tuple[str, float, float]]:
        """The measure of each replacement, its value, and the least."""
        least = LEAST_OF_CHANCE * self.answer_changes_chance
        changes, needed = self.answer_changes["zero"], self.necessity["mean"]
        return {
            "zero": ("answer_changes", changes, least),
            "mean": ("necessity", needed, LEAST_NECESSITY),
        }

    @property
    def is_redundant(self) -> bool:
        """Whether most classes get shorter without trees, and answers stay."""
        return self.doubt == ("zero", "") and self.shorter["zero"] >= HALF

    def controls(self, measure: str) -> dict[str, Shares]:
        """Returns a measure of as many other children, by what they are."""
        return {
            "random children": getattr(self, f"{measure}_random"),
            "other active children": getattr(self, f"{measure}_active"),
        }

    @property
    def further(self) -> list[Result]:
        """What was measured of pixels and saliency maps, if anything."""
        parts = self.pixels, self.saliency
        return [part for part in parts if part is not None]

    def __str__(self) -> str:
        sentences = (one.verdict for one in self.further)
        return " ".join([super().__str__(), *sentences])


def faithfulness(
    model: keras.Model,
    dataset: Any,
    *,
    trees: Trees | None = None,
    samples: int = 2000,
    draws: int = 5,
    shifts: int = 256,
    pixels: bool = False,
    batch_size: int = 256,
    verbose: int = 0,
) -> Faithfulness:
    """Measures whether a network uses its parse trees.

    Trees are those of `tfcaps.rem.trees`, with couplings as they are. Silenced
    children get pose and activation 0 (`"zero"`), or their means over
    the images (`"mean"`), and the routed layers above run again. In an image
    whose tree is empty there is nothing to silence: its answer stays. Of
    several longest classes, as of a silent network, the first is the answer.

    Images are shifted in four ways, their border pixels repeated; random and
    active children are silenced in at most 400. The inputs of the last routed
    layer stay in memory, and without `trees` the images. All that is random is
    drawn the same in each call.

    Args:
        model: As in `trees`.
        dataset: As in `evaluate`; labels are not looked at.
        trees: What `tfcaps.rem.trees` returns for these images, if that is
            known. Defaults to `None`.
        samples: Int. Measure at most this many images, the first ones, so
            shuffle data that are sorted by class. Defaults to `2000`.
        draws: Int. How many sets of random children, and of active ones, are
            drawn for each image. Defaults to `5`.
        shifts: Int. Shift at most this many images, evenly spaced; 0 if they
            are feature maps, and `stability` means nothing. Defaults to `256`.
        pixels: Bool. Also replace pixels, by `pixel_faithfulness` with its
            defaults. Defaults to `False`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        verbose: 0 or 1. Show progress bars. Defaults to `0`.

    Raises:
        ValueError: As in `trees`, or if an argument does not fit.

    References:
        - DeYoung et al., 2020, https://arxiv.org/abs/1911.03429 (sufficiency,
          and necessity as comprehensiveness)
    """
    check_positive(samples=samples, draws=draws)
    silencer = Silencer(model)
    network = silencer.model
    if trees is None:
        dataset, trees = images_and_trees(
            network, dataset, None, samples, batch_size
        )
    trees = trees[:samples]
    every, some, few, shown = (
        _evenly(len(trees), most)
        for most in (samples, _CONTROLS, shifts, _MAPS)
    )
    asked = every[: _PIXELS if pixels else 0]
    images = _Kept(np.concatenate([few, shown, asked]))
    batches = first(network, dataset, samples, batch_size)
    trees.match(range(silencer.take(map(images.of, batches))))
    inside = trees.in_tree
    before = of_class(trees.lengths, trees.predicted)
    drawn = np.repeat(some, draws)
    random, other, longest = _other_children(trees, some, draws)
    total = 4 * len(every) + (6 * draws + 2) * len(some)
    bar = keras.utils.Progbar(total, verbose=verbose, unit_name="routing")
    shares: dict[str, Shares] = collections.defaultdict(dict)

    def without(name: str, rows: Array, silenced: Array, which: str) -> None:
        """Adds what becomes of the answers to some images."""
        at_mean, classes = name == "mean", trees.predicted[rows]
        lengths = silencer.lengths(rows, silenced, at_mean=at_mean, bar=bar)
        changes = lengths.argmax(axis=-1) != classes
        if which.startswith("sufficiency"):
            shares[which][name] = float(np.mean(~changes))
            return
        short = of_class(lengths, classes) < HALF * before[rows]
        shares[f"answer_changes{which}"][name] = float(np.mean(changes))
        shares[f"shorter{which}"][name] = float(np.mean(short))
        shares[f"necessity{which}"][name] = float(np.mean(changes | short))

    for name in ("zero", "mean"):
        without(name, every, inside, "")
        without(name, drawn, random, "_random")
        without(name, drawn, other, "_active")
        without(name, every, ~inside, "sufficiency")
        without(name, drawn, ~random, "sufficiency_random")
        without(name, some, ~longest, "sufficiency_longest")
    stability = of_pixels = None
    if shifts and len(network.inputs[0].shape) == 4:
        moved = shifted(images[few], batch_size)
        stability = tree_stability(network, moved, inside[few])
    if pixels:
        of_pixels = pixel_faithfulness(
            network, images[asked], trees=trees[asked], verbose=verbose
        )
    return Faithfulness(
        **shares,
        answer_changes_chance=chance(trees.predicted),
        size=float(np.mean(inside)),
        empty_trees=float(np.mean(~np.any(inside, axis=-1))),
        class_share=class_share(trees.towards, trees.predicted),
        stability=stability,
        samples=len(trees),
        pixels=of_pixels,
        saliency=saliency_checks(network, images[shown]),
    )


class _Kept:
    """Some of the images that pass by in batches, by their rows."""

    def __init__(self, rows: Array):
        self._rows, self._count = np.unique(rows), 0
        self._images: list[Array] = []

    def of(self, batch: Array) -> Array:
        """Keeps the images of a batch that are wanted, and returns it."""
        rows = self._rows - self._count
        self._images.append(batch[rows[(rows >= 0) & (rows < len(batch))]])
        self._count += len(batch)
        return batch

    def __getitem__(self, rows: Array) -> Array:
        self._images = [np.concatenate(self._images)]
        return self._images[0][np.searchsorted(self._rows, rows)]


def shifted(images: Array, batch_size: int = 256) -> Iterator[Array]:
    """Yields all images shifted by a pixel, in each of four ways."""
    rows, columns = (np.arange(side) for side in images.shape[1:3])
    for down, across in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        y = (rows + down).clip(0, rows[-1])
        x = (columns + across).clip(0, columns[-1])
        for part in in_batches(images, batch_size):
            yield part[:, y[:, None], x]


def tree_stability(
    model: keras.Model, batches: Iterable[Array], inside: Array
) -> float:
    """Returns the mean Jaccard index of trees and those of shifted images.

    The batches are those of `shifted`, and the children `inside` the trees of
    the images bool `[n, i]`.
    """
    trees = trees_of(model, batches, couplings=False)
    return jaccard(np.tile(inside, (4, 1)), trees.in_tree)


def tree_lengths(
    model: keras.Model, images: ArrayLike, trees: Trees
) -> NDArray[np.float32]:
    """Returns the lengths of all classes, `[n, 3, j]`.

    They are those as they are, with the tree silenced, and with all else
    silenced, at pose and activation 0.
    """
    images, every = trees.match(images), np.arange(len(trees))
    silencer = Silencer(model)
    silencer.take(in_batches(images, 256))
    alone = (
        silencer.lengths(every, x) for x in (trees.in_tree, ~trees.in_tree)
    )
    return np.stack([trees.lengths, *alone], axis=1)


def _evenly(count: int, most: int) -> Array:
    """Returns at most so many of `count` indices, evenly spaced."""
    return np.arange(min(count, most)) * count // max(1, min(count, most))


def _other_children(
    trees: Trees, some: Array, draws: int
) -> tuple[Array, Array, Array]:
    """Returns as many other children of some images as are in the tree.

    Random ones, `[some * draws, i]`, random ones of the active children outside
    of the tree, or all where there are fewer, and the most active, `[some, i]`.
    """
    count, children = trees.in_tree.shape
    inside, active = trees.in_tree[some], trees.activations[some]
    sizes = np.sum(inside, axis=-1)[:, None]
    # They are drawn among those that pruning has left an influence. To
    # silence others changes nothing, and any tree would look necessary.
    scores = np.random.default_rng(0).random((count, draws, children))
    scores += ~trees.activations.any(axis=0)
    random = _places(scores[some]) < sizes[:, None]
    others = trees.outside[some][:, None]
    scores = np.random.default_rng(0).random(random.shape)
    other = (_places(scores + ~others) < sizes[:, None]) & others
    longest = _places(-np.round(active, _DECIMALS)) < sizes
    random, other = (x.reshape(-1, children) for x in (random, other))
    return random, other, longest


def _places(scores: Array) -> Array:
    """Returns the place of each child from the lowest score on, `[..., i]`."""
    return scores.argsort(axis=-1, kind="stable").argsort(axis=-1)


def chance(answers: Array) -> float:
    """Returns how many answers change if each becomes that of a random one."""
    shares = np.unique(answers, return_counts=True)[1] / len(answers)
    return float(1.0 - np.sum(shares**2))


def jaccard(first: Array, second: Array) -> float:
    """Returns the mean Jaccard index of sets, bool `[b, i]`; 1 if empty."""
    both = np.sum(first & second, axis=-1)
    either = np.sum(first | second, axis=-1)
    return float(np.mean(np.where(either, both / np.maximum(either, 1), 1.0)))


def class_share(values: Array, classes: Array) -> float:
    """Returns the share of the variance over samples that classes explain.

    It is that of all `values` `[b, i]` together; 1 if nothing varies.
    """
    centred = values - np.mean(values, axis=0, dtype="float64")
    total = float(np.sum(centred**2))
    if total <= _NO_VARIANCE * values.size:
        return 1.0
    between = 0.0
    for j in np.unique(classes):
        own = centred[classes == j]
        between += len(own) * float(np.sum(np.mean(own, axis=0) ** 2))
    return min(between / total, 1.0)
