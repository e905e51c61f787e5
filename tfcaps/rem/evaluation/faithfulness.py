"""Measures whether a network uses its parse trees, by silencing them."""

import collections
import dataclasses
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import clone_with_call, is_routed
from tfcaps.layers import PartCaps, PrimaryCaps, PrimaryMatrixCaps
from tfcaps.ops import Tensor, check_positive, length
from tfcaps.rem.batches import predict
from tfcaps.rem.evaluation.pixels import PixelFaithfulness, pixel_faithfulness
from tfcaps.rem.evaluation.saliency_checks import (
    SaliencyChecks,
    saliency_checks,
)
from tfcaps.rem.evaluation.silencing import (
    Silencer,
    first_images,
    of_class,
    parts_of,
)
from tfcaps.rem.parse.trees import Trees
from tfcaps.rem.parse.trees import trees as trees_of
from tfcaps.rem.results import Result, lines_of, percent

Array = NDArray[Any]

# Capsules below this length for every image are silent.
_SILENT = 0.01
# Images for which random and active children are silenced, and shifted images.
_CONTROLS, SHIFTED = 400, 256
# Images whose saliency maps are compared.
_MAPS = 100
# Activations that differ less are the same but for rounding.
_DECIMALS = 6
# The same for the variance of couplings: that of those which differ by 1e-7.
_NO_VARIANCE = 1e-14
# Below it, most images keep their class without their tree.
EMPTY_NECESSITY = 0.5
# Necessity must be above that of other children by this much.
EMPTY_MARGIN = 0.05
# Layers that make capsules, besides those that route.
_CAPSULES = (PartCaps, PrimaryCaps, PrimaryMatrixCaps)
# How a sentence about silenced children says what took their place.
_IN_PLACE = {"zero": "", "mean": " (its children at their mean poses)"}


@dataclasses.dataclass(frozen=True)
class Faithfulness(Result):
    """The result of `tfcaps.rem.faithfulness`: prints, and saves as JSON.

    Measures are shares in [0, 1] if nothing else is said. A dict with the keys
    `"zero"` and `"mean"` has a measure for each replacement of silenced
    children: pose and activation 0, or their means over the images.

    Attributes:
        sufficiency: Share of images that keep their class when all but the tree
            is silenced.
        necessity: Share of images whose class is lost when the tree is
            silenced: it is no longer the longest, or less than half as long.
        sufficiency_random: Sufficiency of as many random children, out of those
            that pruning has left an influence.
        necessity_random: Necessity of as many of them.
        same_without_tree: Share of images that are still taken for the same
            class when the tree is silenced, however short it is.
        size: Mean share of the children that are in the tree.
        empty_trees: Share of images whose tree has no child.
        class_share: Share of the variance over images of the couplings with the
            predicted class that this class explains. 1 is a lookup of the
            class, also where couplings never vary.
        stability: Mean Jaccard index of the tree and that of the image shifted
            by one pixel. `None` if the model's input is no image.
        silent_capsules: For each capsule layer, the share of capsules that are
            shorter than 0.01 for every image.
        samples: How many images were used.
        necessity_active: Necessity of as many active children that are not in
            the tree, drawn at random; of all of them where there are fewer, see
            `Trees.active`.
        sufficiency_longest: Sufficiency of as many children as the tree has,
            the most active ones, whatever they are coupled with.
        pixels: What `pixel_faithfulness` returned, if that was measured.
        saliency: What `saliency_checks` returned, `None` of a network without
            saliency maps.
    """

    told = ("empty", "verdict")

    sufficiency: dict[str, float]
    necessity: dict[str, float]
    sufficiency_random: dict[str, float]
    necessity_random: dict[str, float]
    same_without_tree: dict[str, float]
    size: float
    empty_trees: float
    class_share: float
    stability: float | None
    silent_capsules: dict[str, float]
    samples: int
    necessity_active: dict[str, float]
    sufficiency_longest: dict[str, float]
    pixels: PixelFaithfulness | None = None
    saliency: SaliencyChecks | None = None

    @property
    def empty(self) -> bool:
        """Whether the network does not use its trees.

        With either replacement, less than half of the images lose their class
        without their tree, or hardly more than without random children or
        without other active ones.
        """
        return bool(self._why_empty)

    @property
    def _why_empty(self) -> str:
        for name, share in self.necessity.items():
            if share < EMPTY_NECESSITY:
                same = percent(self.same_without_tree[name])
                return (
                    f"without its tree{_IN_PLACE[name]}, {same} of the images "
                    "are still taken for the same class"
                )
        for name, share in self.necessity.items():
            for control, others in self._controls.items():
                if share - others[name] < EMPTY_MARGIN:
                    return (
                        f"without its tree{_IN_PLACE[name]}, {percent(share)} "
                        "of the images lose their class, and without as many "
                        f"{control} {percent(others[name])}, so that it hardly "
                        "matters which children are in a tree"
                    )
        return ""

    @property
    def _controls(self) -> dict[str, dict[str, float]]:
        """Necessity of as many children of other kinds, by what they are."""
        return {
            "random children": self.necessity_random,
            "other active children": self.necessity_active,
        }

    @property
    def verdict(self) -> str:
        """One sentence on whether the network uses its trees."""
        if self._why_empty:
            return f"The trees are empty: {self._why_empty}."
        others = ", ".join(
            f"without as many {control} {percent(of_others['zero'])}"
            for control, of_others in self._controls.items()
        )
        return (
            f"The trees are used: without its tree, "
            f"{percent(self.necessity['zero'])} of the images lose their "
            f"class, {others}."
        )

    def rows(self) -> list[tuple[str, str | None]]:
        """Returns the names of measures, and what they are as text."""
        rows = [("images measured", f"{self.samples:,}")]
        kept = {
            "random children": self.sufficiency_random,
            "the most active ones": self.sufficiency_longest,
        }
        for measure, shares, controls in (
            ("sufficiency", self.sufficiency, kept),
            ("necessity", self.necessity, self._controls),
        ):
            for name, share in shares.items():
                told = [percent(share)]
                told += [
                    f"of {control} {percent(of_others[name])}"
                    for control, of_others in controls.items()
                ]
                rows.append((f"{measure}, {name}", ", ".join(map(str, told))))
        same = [f"{percent(s)} {n}" for n, s in self.same_without_tree.items()]
        silent = [
            f"{percent(s)} of {n}" for n, s in self.silent_capsules.items()
        ]
        stability = "–" if self.stability is None else f"{self.stability:.3f}"
        return [
            *rows,
            ("same class without the tree", ", ".join(same)),
            ("size of a tree", f"{percent(self.size)} of the children"),
            ("images without a tree", percent(self.empty_trees)),
            ("class share", f"{self.class_share:.3f}"),
            ("stability", stability),
            ("silent capsules", ", ".join(silent)),
            *(row for part in self._parts for row in part.rows()),
        ]

    @property
    def _parts(self) -> list[PixelFaithfulness | SaliencyChecks]:
        parts = self.pixels, self.saliency
        return [part for part in parts if part is not None]

    @property
    def verdicts(self) -> str:
        """The verdict, and those on pixels and on saliency maps."""
        return " ".join([self.verdict, *(part.verdict for part in self._parts)])

    def __str__(self) -> str:
        return "\n".join([*lines_of(self.rows()), "", self.verdicts])


def faithfulness(
    model: keras.Model,
    dataset: Any,
    *,
    layer: str | None = None,
    samples: int = 2000,
    draws: int = 5,
    pixels: bool = False,
    seed: int = 0,
    batch_size: int = 256,
    verbose: int = 0,
) -> Faithfulness:
    """Measures whether a network uses its parse trees.

    Trees are those of `tfcaps.rem.trees`, with couplings as they are. Silenced
    children get pose and activation 0 (`"zero"`), or their means over
    the images (`"mean"`), and the routed layers above run again. In an image
    whose tree is empty there is nothing to silence: its class is not lost.

    The four shifts, whose border pixels are repeated, are those of at most 256
    images; random and active children are silenced in at most 400. The images
    stay in memory, and so do the inputs of the routed layers, `4 * i * k` bytes
    for each image.

    Args:
        model: As in `trees`.
        dataset: As in `evaluate`; labels are not looked at.
        layer: As in `trees`. Defaults to `None`, the last routed layer.
        samples: Int. Measure at most this many images, the first ones, so
            shuffle data that are sorted by class. Defaults to `2000`.
        draws: Int. How many sets of random children, and of active ones, are
            drawn for each image. Defaults to `5`.
        pixels: Bool. Also replace pixels, by `pixel_faithfulness` with its
            defaults. Defaults to `False`.
        seed: Int. Seed of all that is random. Defaults to `0`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        verbose: 0 or 1. Show progress bars. Defaults to `0`.

    Raises:
        ValueError: As in `trees`, or if a number is below 1.

    References:
        - DeYoung et al., 2020, https://arxiv.org/abs/1911.03429 (sufficiency,
          and necessity as comprehensiveness)
        - Mitterreiter, Koch, Giesen, Laue, 2023,
          https://arxiv.org/abs/2301.01583 (silent capsules)
    """
    check_positive(samples=samples, draws=draws)
    silencer = Silencer(model, layer)
    images = first_images(dataset, silencer.model, samples, batch_size)
    parts = (images[part] for part in parts_of(len(images), batch_size))
    trees = trees_of(silencer.model, parts, couplings=False, layer=layer)
    inside = trees.in_tree
    before = of_class(trees.lengths, trees.predicted)
    every, some = np.arange(len(images)), _evenly(len(images), _CONTROLS)
    drawn = np.repeat(some, draws)
    random, other, longest = _other_children(trees, some, draws, seed)
    taken = silencer.taken(images, batch_size)
    # Means in float64, whose result no batch size changes.
    means = [x.mean(axis=0, dtype="float64").astype("float32") for x in taken]
    total = 4 * len(every) + (6 * draws + 2) * len(some)
    bar = keras.utils.Progbar(total, verbose=verbose, unit_name="routing")
    step = max(batch_size, silencer.most_rows)

    def without(name: str, rows: Array, silenced: Array) -> tuple[float, float]:
        """Returns the shares of images of the same class, and of a lost one."""
        values = means if name == "mean" else None
        parts = []
        for part in parts_of(len(rows), step):
            children = [x[rows[part]] for x in taken]
            parts.append(silencer.silence(children, silenced[part], values))
            bar.add(len(parts[-1]))
        lengths, classes = np.concatenate(parts), trees.predicted[rows]
        same = lengths.argmax(axis=-1) == classes
        gone = lost(lengths, classes, before[rows])
        return float(np.mean(same)), float(np.mean(gone))

    shares: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for name in ("zero", "mean"):
        same, gone = without(name, every, inside)
        shares["same_without_tree"][name] = same
        shares["necessity"][name] = gone
        shares["sufficiency"][name], _ = without(name, every, ~inside)
        shares["sufficiency_random"][name], _ = without(name, drawn, ~random)
        _, shares["necessity_random"][name] = without(name, drawn, random)
        _, shares["necessity_active"][name] = without(name, drawn, other)
        shares["sufficiency_longest"][name], _ = without(name, some, ~longest)
    stability = None
    if images.ndim == 4:
        few = _evenly(len(images), SHIFTED)
        stability = tree_stability(
            silencer.model, images[few], inside[few], layer, batch_size
        )
    of_pixels = None
    if pixels:
        of_pixels = pixel_faithfulness(
            silencer.model, images, seed=seed, verbose=verbose
        )
    few = images[_evenly(len(images), _MAPS)]
    return Faithfulness(
        **shares,
        size=float(np.mean(inside)),
        empty_trees=float(np.mean(~np.any(inside, axis=-1))),
        class_share=class_share(trees.towards, trees.predicted),
        stability=stability,
        silent_capsules=_silent_capsules(silencer.model, images, batch_size),
        samples=len(images),
        pixels=of_pixels,
        saliency=saliency_checks(silencer.model, few, seed=seed),
    )


def tree_stability(
    model: keras.Model,
    images: Array,
    inside: Array | None = None,
    layer: str | None = None,
    batch_size: int = 256,
) -> float:
    """Returns how like trees are to those of images shifted by a pixel.

    It is the mean Jaccard index over four shifts. Which children of the images
    `[n, h, w, c]` are `inside` their trees, `[n, i]`, is looked up if `None`.
    """
    shifted = (
        _shifted(images) if inside is not None else [images, *_shifted(images)]
    )
    batches = (
        array[part]
        for array in shifted
        for part in parts_of(len(array), batch_size)
    )
    found = trees_of(model, batches, couplings=False, layer=layer).in_tree
    if inside is None:
        inside, found = found[: len(images)], found[len(images) :]
    return jaccard(np.tile(inside, (4, 1)), found)


def tree_lengths(
    model: keras.Model,
    images: ArrayLike,
    trees: Trees,
    *,
    batch_size: int = 256,
) -> NDArray[np.float32]:
    """Returns the lengths of all classes when parts of a network are silenced.

    Children that are silenced have pose and activation 0.

    Args:
        model: As in `trees`.
        images: Its input `[n, ...]`.
        trees: What `tfcaps.rem.trees` returns for them.
        batch_size: Int. Images in a batch. Defaults to `256`.

    Returns:
        Array `[n, 3, j]`, float32: the lengths as they are, those with the tree
        silenced, and those with all but the tree silenced.

    Raises:
        ValueError: If there is not one tree for each image, or as in `trees`.
    """
    images = trees.own(images)
    silencer = Silencer(model)
    lengths = np.repeat(trees.lengths[:, np.newaxis], 3, axis=1)
    for part in parts_of(len(images), batch_size):
        taken = silencer.taken(images[part], batch_size)
        inside = trees.in_tree[part]
        lengths[part, 1] = silencer.silence(taken, inside, None)
        lengths[part, 2] = silencer.silence(taken, ~inside, None)
    return lengths


def _shifted(images: Array) -> list[Array]:
    """Returns images shifted by a pixel to each side, borders repeated."""
    rows, columns = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "edge")
    return [
        padded[:, top : top + rows, left : left + columns]
        for top, left in ((2, 1), (0, 1), (1, 2), (1, 0))
    ]


def _evenly(count: int, most: int) -> Array:
    """Returns at most so many of `count` indices, evenly spaced."""
    return np.arange(min(count, most)) * count // min(count, most)


def _other_children(
    trees: Trees, some: Array, draws: int, seed: int
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
    scores = np.random.default_rng(seed).random((count, draws, children))
    scores += ~trees.activations.any(axis=0)
    random = _places(scores[some]) < sizes[:, None]
    others = (trees.active[some] & ~inside)[:, None]
    scores = np.random.default_rng(seed).random(random.shape)
    other = (_places(scores + ~others) < sizes[:, None]) & others
    longest = _places(-np.round(active, _DECIMALS)) < sizes
    random, other = (x.reshape(-1, children) for x in (random, other))
    return random, other, longest


def _silent_capsules(
    model: keras.Model, images: Array, batch_size: int
) -> dict[str, float]:
    """Returns the share of silent capsules of each capsule layer."""
    active: dict[str, Tensor] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = layer(*args, **kwargs)
        if is_routed(layer) or isinstance(layer, _CAPSULES):
            both = isinstance(outputs, (tuple, list))
            active[layer.name] = outputs[1] if both else length(outputs)
        return outputs

    copy = clone_with_call(model, call)
    network = keras.Model(copy.input, active)
    loud: dict[str, Any] = dict.fromkeys(active, False)
    for part in parts_of(len(images), batch_size):
        for name, values in predict(network, images[part]).items():
            loud[name] |= np.any(values >= _SILENT, axis=0)
    return {name: float(np.mean(~each)) for name, each in loud.items()}


def _places(scores: Array) -> Array:
    """Returns the place of each child from the lowest score on, `[..., i]`."""
    return scores.argsort(axis=-1, kind="stable").argsort(axis=-1)


def lost(lengths: Array, classes: Array, before: Array) -> Array:
    """Tells whether a class is not the longest, or half as long, `[b]`."""
    same = lengths.argmax(axis=-1) == classes
    return ~(same & (of_class(lengths, classes) >= 0.5 * before))


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
