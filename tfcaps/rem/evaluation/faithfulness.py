"""Measures whether a network uses its parse trees."""

import dataclasses
from typing import Any

import keras
import numpy as np

from tfcaps.rem.evaluation.silencing import Silencer
from tfcaps.rem.evaluation.study import (
    Study,
    class_share,
    effect_rows,
    evenly,
)
from tfcaps.rem.results import Result, lines_of

# Capsules below this length for every image are silent.
_SILENT = 0.01

# Single effects and orders are measured on so many images that the routed
# layers see about so many rows, which grow with the children.
_EFFECT_ROWS = 4000
_EFFECT_SAMPLES = (8, 64)
# Below it, most images keep their class without their tree.
EMPTY_NECESSITY = 0.5
# Necessity must be above that of other children by this much.
EMPTY_MARGIN = 0.05


@dataclasses.dataclass(frozen=True)
class Faithfulness(Result):
    """The result of `tfcaps.rem.faithfulness`.

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
        empty_trees: Share of images whose tree has no child. Silencing such a
            tree changes nothing.
        child_deletion: Area under the length of the class, relative to the
            length with all children, as children are silenced one after another
            (pose 0), by their order: from the most `"coupling"`, from the
            largest single `"effect"`, or `"random"`. The lower, the better.
            It may exceed 1.
        child_insertion: The same as children are added to none. The higher, the
            better.
        rank_agreement: Mean over images of Spearman's correlation, over the
            children, of coupling and single effect (what the class loses in
            length when that child alone is silenced), in [-1, 1]. An image for
            which either is the same for all children counts 0.
        class_share: Share of the variance over images of the couplings with the
            predicted class that this class explains. 1 is a lookup of the
            class, also where couplings never vary.
        stability: Mean Jaccard index of the tree and that of the image shifted
            by one pixel. `None` if the model's input is no image.
        randomisation: Mean Jaccard index of the tree and that of a network
            whose class capsules have weights drawn anew. Of trees that depend
            on what was learnt it is near `randomisation_random`.
        randomisation_random: Mean Jaccard index of the tree and as many random
            children.
        silent_capsules: For each capsule layer, the share of capsules that are
            shorter than 0.01 for every image.
        samples: How many images were used.
        layer: Name of the layer whose children were silenced.
        cost: How often the routed layers ran for each image, on average.
        necessity_active: Necessity of as many active children that are not in
            the tree, drawn at random; of all of them where there are fewer. A
            child is active if its activation is more than a tenth of that of
            the image's most active child. Most random children are silent, and
            to silence those changes nothing.
        sufficiency_longest: Sufficiency of as many children as the tree has,
            the most active ones, whatever they are coupled with.
    """

    sufficiency: dict[str, float]
    necessity: dict[str, float]
    sufficiency_random: dict[str, float]
    necessity_random: dict[str, float]
    same_without_tree: dict[str, float]
    size: float
    empty_trees: float
    child_deletion: dict[str, float]
    child_insertion: dict[str, float]
    rank_agreement: float
    class_share: float
    stability: float | None
    randomisation: float
    randomisation_random: float
    silent_capsules: dict[str, float]
    samples: int
    layer: str
    cost: float
    # Of reports of before they were measured, `None`.
    necessity_active: dict[str, float] | None = None
    sufficiency_longest: dict[str, float] | None = None

    @property
    def empty(self) -> bool:
        """Whether the network does not use its trees.

        With either replacement, less than half of the images lose their class
        without their tree, or hardly more than without random children or
        without other active ones.
        """
        return bool(self._unused or self._replaceable)

    @property
    def _unused(self) -> list[str]:
        return [k for k, v in self.necessity.items() if v < EMPTY_NECESSITY]

    @property
    def _replaceable(self) -> list[tuple[str, str]]:
        """Replacements and controls by which the tree hardly matters."""
        return [
            (name, control)
            for name, value in self.necessity.items()
            for control, of_others in self._controls.items()
            if value - of_others[name] < EMPTY_MARGIN
        ]

    @property
    def _controls(self) -> dict[str, dict[str, float]]:
        """Necessity of as many children of other kinds, by what they are."""
        controls = {"random children": self.necessity_random}
        if self.necessity_active is not None:
            controls["other active children"] = self.necessity_active
        return controls

    @property
    def verdict(self) -> str:
        """One sentence on whether the network uses its trees."""
        for name in self._unused[:1]:
            same = self.same_without_tree[name]
            return (
                f"The trees are empty: without its tree{_IN_PLACE[name]}, "
                f"{_percent(same)} of the images are still taken for the same "
                "class."
            )
        for name, control in self._replaceable[:1]:
            return (
                f"The trees are empty: without its tree{_IN_PLACE[name]}, "
                f"{_percent(self.necessity[name])} of the images lose their "
                f"class, and without as many {control} "
                f"{_percent(self._controls[control][name])}, so that it hardly "
                "matters which children are in a tree."
            )
        others = ", ".join(
            f"without as many {control} {_percent(of_others['zero'])}"
            for control, of_others in self._controls.items()
        )
        return (
            "The trees are used: without its tree, "
            f"{_percent(self.necessity['zero'])} of the images lose their "
            f"class, {others}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all measures, ready for JSON."""
        return {
            **super().to_dict(),
            "empty": self.empty,
            "verdict": self.verdict,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Returns the names of measures, and what they are as text."""
        beside: dict[str, dict[str, float] | None] = {
            "of random children": self.sufficiency_random,
            "of the most active ones": self.sufficiency_longest,
        }
        others: dict[str, dict[str, float] | None] = {
            f"of {title}": n for title, n in self._controls.items()
        }
        replacements = [
            ("sufficiency", self.sufficiency, beside),
            ("necessity", self.necessity, others),
        ]
        orders = [
            ("child deletion", self.child_deletion),
            ("child insertion", self.child_insertion),
        ]
        stability = "–" if self.stability is None else f"{self.stability:.3f}"
        silent = ", ".join(
            f"{_percent(share)} of {name}"
            for name, share in self.silent_capsules.items()
        )
        return [
            ("images measured", f"{self.samples:,}"),
            *(
                (
                    f"{title}, {name}",
                    ", ".join(
                        [
                            _percent(own[name]),
                            *(
                                f"{control} {_percent(measured[name])}"
                                for control, measured in controls.items()
                                if measured is not None
                            ),
                        ]
                    ),
                )
                for title, own, controls in replacements
                for name in own
            ),
            (
                "same class without the tree",
                f"{_percent(self.same_without_tree['zero'])} zero, "
                f"{_percent(self.same_without_tree['mean'])} mean",
            ),
            ("size of a tree", f"{_percent(self.size)} of the children"),
            ("images without a tree", _percent(self.empty_trees)),
            *(
                (
                    title,
                    f"{areas['coupling']:.3f} by coupling, "
                    f"{areas['random']:.3f} random, "
                    f"{areas['effect']:.3f} by effect",
                )
                for title, areas in orders
            ),
            ("rank agreement", f"{self.rank_agreement:.3f}"),
            ("class share", f"{self.class_share:.3f}"),
            ("stability", stability),
            (
                "randomisation",
                f"{self.randomisation:.3f}, of random children "
                f"{self.randomisation_random:.3f}",
            ),
            ("silent capsules", silent),
            ("routings per image", f"{self.cost:.1f}"),
        ]

    def __str__(self) -> str:
        return "\n".join([*lines_of(self.rows()), "", self.verdict])


def faithfulness(
    model: keras.Model,
    dataset: Any,
    *,
    layer: str | None = None,
    samples: int = 2000,
    draws: int = 5,
    random_samples: int = 400,
    effect_samples: int | None = None,
    stability_samples: int = 256,
    seed: int = 0,
    batch_size: int = 256,
    verbose: int = 0,
) -> Faithfulness:
    """Measures whether a network uses its parse trees.

    The tree of an image has the children whose coupling with the predicted
    class exceeds the uniform one, 1/J, or its rounded value if the model's
    routing has levels. Couplings are those of the model as it is. With `layer`,
    the tree continues downwards: a child belongs to it if its coupling with
    some capsule of the tree exceeds that value.

    Silenced children get pose and activation 0 (`"zero"`), or their means over
    the images (`"mean"`), and the routed layers above run again. Deletion,
    insertion and single effects are those of `"zero"`. In an image whose tree
    is empty there is nothing to silence: its class is not lost.

    The network below the children runs once for each image, and once for each
    of the four shifts of the `stability_samples`. The routed layers above run

        1 + 4 + [6 draws + 3] random_samples / n
          + [i + 6 (steps - 1) + 1] effect_samples / n
          + 4 stability_samples / n

    times for each of n images: 13.7 times for 2,000 images and 8 children, 16.6
    times for 1,024 children.
    Silencing all children in an order takes `i` steps, or 16 if there are more
    children. The images stay in memory, and so do the inputs of the routed
    layers, `4 * i * k` bytes for each image.

    Args:
        model: A functional or sequential model with a routed layer, from images
            to class lengths or poses. Decoders and inputs `labels` do not
            matter.
        dataset: As in `evaluate`; labels are not looked at.
        layer: Name of the `ClassCaps` whose children are silenced, if not the
            last one. Its capsules must be the children of the next `ClassCaps`,
            and so on up to the last routed layer. Defaults to `None`, the last
            routed layer.
        samples: Int. Measure at most this many images, the first ones, so
            shuffle data that are sorted by class. Defaults to `2000`.
        draws: Int. How many sets of random children, and of active ones, are
            drawn for each image. Defaults to `5`.
        random_samples: Int. Random and active children are silenced, and
            weights drawn anew, for at most this many images, evenly spaced.
            Defaults to `400`.
        effect_samples: Int. The same for single effects and orders of children.
            Defaults to 64, or to fewer, at least 8, where there are many
            children.
        stability_samples: Int. The same for shifted images, whose border pixels
            are repeated. Defaults to `256`.
        seed: Int. Seed of all that is random. Defaults to `0`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        verbose: 0 or 1. Show progress bars. Defaults to `0`.

    Returns:
        A `Faithfulness`, which prints as a table and saves as JSON.

    Raises:
        ValueError: If the model has no routed layer or makes no class capsules,
            `layer` is none of its layers, the data set is empty, or a number is
            below 1.

    References:
        - DeYoung et al., 2020, https://arxiv.org/abs/1911.03429 (sufficiency,
          and necessity as comprehensiveness)
        - Petsiuk, Das, Saenko, 2018, https://arxiv.org/abs/1806.07421
          (deletion, insertion)
        - Adebayo et al., 2018, https://arxiv.org/abs/1810.03292
          (randomisation)
        - Mitterreiter, Koch, Giesen, Laue, 2023,
          https://arxiv.org/abs/2301.01583 (silent capsules)
    """
    numbers = {
        "samples": samples,
        "draws": draws,
        "random_samples": random_samples,
        "stability_samples": stability_samples,
    }
    if effect_samples is not None:
        numbers["effect_samples"] = effect_samples
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(
                f"`{name}` must be at least 1. Received: {name}={number}."
            )
    silencer = Silencer(model, layer, batch_size=batch_size)
    study = Study(silencer, dataset, samples, batch_size, seed, verbose)
    some = evenly(study.count, random_samples)
    if effect_samples is None:
        effect_samples = _effect_samples(silencer.num_children)
    few = evenly(study.count, effect_samples)
    shifted = evenly(study.count, stability_samples)
    study.plan(draws, len(some), len(few), len(shifted))
    found = {
        **study.whole_trees(),
        **study.random_children(some, draws),
        **study.active_children(some, draws),
        **study.orders(few),
        "stability": study.stability(shifted),
        "randomisation": study.randomisation(some, draws),
    }
    return Faithfulness(
        **found,
        size=float(np.mean(study.trees)),
        empty_trees=float(np.mean(~np.any(study.trees, axis=-1))),
        class_share=class_share(study.towards, study.classes),
        silent_capsules={
            layer.name: float(np.mean(study.active[layer.name] < _SILENT))
            for layer in silencer.model.layers
            if layer.name in study.active
        },
        samples=study.count,
        layer=silencer.layer.name,
        cost=silencer.votes / study.count,
    )


def _effect_samples(children: int) -> int:
    """Returns the number of images that have about `_EFFECT_ROWS` rows."""
    least, most = _EFFECT_SAMPLES
    return max(least, min(most, _EFFECT_ROWS // effect_rows(children)))


# How a sentence about silenced children says what took their place.
_IN_PLACE = {"zero": "", "mean": " (its children at their mean poses)"}


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
