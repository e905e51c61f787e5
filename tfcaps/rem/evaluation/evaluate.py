"""Measures a capsule network: accuracy, parse trees, entropy, sparsity."""

import collections
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import (
    check_called_once,
    check_unquantized,
    encoder,
    keep_pruned,
    routed_layers,
)
from tfcaps.ops import Tensor, check_mode, quantize
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches, predict
from tfcaps.rem.evaluation.faithfulness import Faithfulness
from tfcaps.rem.evaluation.faithfulness import (
    faithfulness as measure_faithfulness,
)
from tfcaps.rem.evaluation.named_parts import NamedParts
from tfcaps.rem.evaluation.pixels import PixelFaithfulness
from tfcaps.rem.evaluation.saliency_checks import SaliencyChecks
from tfcaps.rem.finite import check_weights
from tfcaps.rem.labels import class_of_each
from tfcaps.rem.multiply_adds import UnknownSizeError, multiply_adds
from tfcaps.rem.parse.couplings import (
    Levels,
    cut_below_rounding,
    layer_levels,
    quantize_couplings,
)
from tfcaps.rem.parse.dictionary import CouplingDictionary
from tfcaps.rem.parse.trees import TreeNetwork, Trees
from tfcaps.rem.pruning.masks import count_parameters, sparsity
from tfcaps.rem.results import Result, lines_of, percent

Array = NDArray[Any]

# Below either, couplings are uniform but for noise, and trees say nothing. Too
# strong a decay leaves 0.1 % of the codes off the uniform coupling.
TRIVIAL_SHARE = 0.01
TRIVIAL_T_SCORE = 0.01
# Above it, most trees have every child: they repeat the class. That is where a
# reward of clear couplings alone ends.
TRIVIAL_WHOLE_SHARE = 0.5
# Why entropy has two numbers.
BY_PLACE = (
    "Trees by place, the paper's key, are many where objects move, as the same "
    "tree is another key one place further; trees by type do not count places."
)
# Fewer samples cannot tell whether a network has learnt anything.
_FEWEST_SAMPLES = 30
# Standard deviations above the most frequent class; by chance it is 1 in 100.
_CLEARLY = 2.33
# Results in a `Faithfulness`.
_PARTS: Any = {"pixels": PixelFaithfulness, "saliency": SaliencyChecks}
# Fields that `to_dict` has in another form.
_NOT_JSON = ("dictionary", "type_dictionary", "faithfulness")


@dataclasses.dataclass(frozen=True)
class Report(Result):
    """The result of `tfcaps.rem.evaluate`: prints as a table, saves as JSON.

    Never read entropy alone: it cannot exceed the ceiling, log2 of the number
    of samples, and it is 0 for a network that does not route at all.

    Attributes:
        levels: Levels of the last routed layer's couplings.
        levels_per_layer: Those of each layer that was rounded, by its name.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
        accuracy: Share of right predictions, couplings as they are.
        accuracy_quantized: The same with quantised couplings.
        nonuniform_share: Share of the keys' codes that differ from the code of
            the uniform coupling 1/J.
        strong_share: Share of the children that are in a sample's tree, with
            couplings as they are.
        whole_share: Share of samples whose tree has every child and so only
            repeats the class.
        t_score: Mean T-score of the unquantised couplings, see `t_score`.
        zero_layers: Names of the fully connected layers all of whose couplings
            were rounded to 0.
        sparsity: Share of zeros among transformations and kernels.
        sparsity_paper: The same with the biases of these layers, see
            `tfcaps.rem.sparsity`.
        nonzero_parameters: Parameters that are not zero.
        total_parameters: All parameters.
        majority_share: Share of the most frequent class: accuracy of always
            naming it.
        dictionary: The parse trees of each predicted class.
        type_dictionary: Their keys of types, see `Trees.type_codes`, or `None`
            where children have no positions.
        grid: Rows, columns and types of the children, or `None` where they have
            no positions.
        faithfulness: Whether the network uses its trees, if that was measured.
        named_parts: Whether the types of leaves name parts, if that was.
        multiply_adds: Multiply-adds for one image, or `None` where the size of
            images is not known.
        t_score_voting: The T-score over the children that are active in some
            image. The others, such as those that pruning has left no vote,
            choose no parent, which makes the T-score of all low.
        voting_children: How many children these are.
        tree_threshold: The coupling that a child must exceed to be in a tree,
            see `tfcaps.rem.trees`.
        by_levels: Accuracy and entropy at several numbers of levels, see
            `levels_curve`, if these were measured.
    """

    told = ("learnt", "trivial", "empty", "verdict", "type_entropy_bits")

    levels: int
    levels_per_layer: dict[str, int]
    mode: str
    accuracy: float
    accuracy_quantized: float
    nonuniform_share: float
    strong_share: float
    whole_share: float
    t_score: float
    zero_layers: list[str]
    sparsity: float
    sparsity_paper: float
    nonzero_parameters: int
    total_parameters: int
    majority_share: float
    dictionary: CouplingDictionary = dataclasses.field(repr=False)
    type_dictionary: CouplingDictionary | None = dataclasses.field(
        default=None, repr=False
    )
    grid: tuple[int, int, int] | None = None
    faithfulness: Faithfulness | None = None
    named_parts: NamedParts | None = None
    multiply_adds: int | None = None
    t_score_voting: float | None = None
    voting_children: int | None = None
    tree_threshold: float | None = None
    by_levels: list[dict[str, Any]] | None = None

    @property
    def entropy_bits(self) -> float:
        """Mean over classes of the entropy in bits."""
        return float(np.mean(self.dictionary.entropy_bits))

    @property
    def ceiling_bits(self) -> float:
        """Mean over classes of the highest possible entropy in bits."""
        return float(np.mean(self.dictionary.ceiling_bits))

    @property
    def median_keys(self) -> float:
        """Median over classes of the number of distinct keys."""
        return float(np.median(self.dictionary.num_keys))

    @property
    def type_entropy_bits(self) -> float | None:
        """Mean over classes of the entropy of keys of types, in bits."""
        trees = self.type_dictionary
        return None if trees is None else float(np.mean(trees.entropy_bits))

    @property
    def learnt(self) -> bool | None:
        """Whether the accuracy is clearly above `majority_share`.

        By 2.33 standard deviations of a constant answer's accuracy. `None` of
        fewer than 30 samples, and of samples of one class.
        """
        count = int(np.sum(self.dictionary.num_samples))
        share = self.majority_share
        if count < _FEWEST_SAMPLES or share == 1.0:
            return None
        deviation = np.sqrt(share * (1.0 - share) / count)
        return bool(self.accuracy_quantized > share + _CLEARLY * deviation)

    @property
    def trivial(self) -> bool:
        """Whether the trees say no more than the class.

        The couplings are uniform but for noise, or all zero, or most trees have
        every child.
        """
        return bool(self._why_trivial)

    @property
    def _why_trivial(self) -> str:
        # Children without a vote choose no parent, however clear the others.
        clear = self.t_score_voting
        clear = self.t_score if clear is None else clear
        routing, whole = self._in_words
        nothing = "and the entropy says nothing"
        if [*self.levels_per_layer][-1] in self.zero_layers:
            return (
                f"all couplings are rounded to 0, {self.levels} levels are too "
                "few"
            )
        if self.nonuniform_share < TRIVIAL_SHARE or clear < TRIVIAL_T_SCORE:
            return f"{routing}, so that there is hardly any routing {nothing}"
        if self.whole_share > TRIVIAL_WHOLE_SHARE:
            return f"{whole}, so that they repeat the class {nothing}"
        return ""

    @property
    def _in_words(self) -> tuple[str, str]:
        """How much is routed, and how many trees are whole."""
        return (
            f"{percent(self.nonuniform_share)} of the codes differ from the "
            f"uniform coupling, T-score {self.t_score:.3f}",
            f"{percent(self.whole_share)} of the samples couple every child "
            "with their class",
        )

    @property
    def empty(self) -> bool | None:
        """Whether the network does not use its trees, if that was measured."""
        return None if self.faithfulness is None else self.faithfulness.empty

    @property
    def verdict(self) -> str:
        """Whether the trees say anything, are used, and name parts.

        The trees of a network that has learnt nothing are not judged.
        """
        if self.learnt is False:
            return (
                f"{self.accuracy_quantized:.1%} of the samples are right, and "
                "always naming the most frequent class would be right for "
                f"{self.majority_share:.1%}: the network has learnt nothing, "
                "and its trees mean nothing."
            )
        used = self.faithfulness
        sentences = [f"The trees are trivial: {self._why_trivial}."]
        if not self.trivial:
            told = "; ".join(self._in_words)
            sentences = [f"The trees are not trivial: {told}."]
        if used is not None and self.trivial and used.empty is False:
            sentences.append(
                "To silence such trees tells nothing of the routing: "
                f"{used.numbers}."
            )
        elif used is not None:
            sentences.append(used.verdict)
        elif not self.trivial:
            sentences.append("Whether the network uses them was not measured.")
        if used is not None:
            sentences += used.further
        if self.named_parts is not None:
            sentences.append(self.named_parts.verdict)
        return " ".join(sentences)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything but the keys themselves, ready for JSON."""
        measures = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _NOT_JSON
        }
        if self.faithfulness is not None:
            measures |= self.faithfulness.to_dict()
        return {
            **measures,
            "named_parts": self.named_parts and self.named_parts.to_dict(),
            **self.dictionary.summary(),
            **{name: getattr(self, name) for name in self.told},
        }

    @classmethod
    def from_dict(
        cls,
        measures: Mapping[str, Any],
        dictionary: CouplingDictionary,
        type_dictionary: CouplingDictionary | None = None,
    ) -> "Report":
        """Returns the report of which `to_dict` gave these measures.

        Raises:
            KeyError: If a measure is missing, as of another version.
        """
        parts: dict[str, Any] = {"faithfulness": None, "named_parts": None}
        if "necessity" in measures:
            used = _of(Faithfulness, measures)
            for name, kind in _PARTS.items():
                if used[name] is not None:
                    used[name] = kind(**_of(kind, used[name]))
            parts["faithfulness"] = Faithfulness(**used)
        if measures["named_parts"] is not None:
            named = _of(NamedParts, measures["named_parts"])
            parts["named_parts"] = NamedParts(**named)
        trees = {"dictionary": dictionary, "type_dictionary": type_dictionary}
        return cls(**_of(cls, {**measures, **parts, **trees}))

    def __str__(self) -> str:
        trees, types = self.dictionary, self.type_entropy_bits
        never = int(np.sum(trees.num_samples == 0))
        ceiling = f"of at most {self.ceiling_bits:.2f} bits"
        left, adds = self.t_score_voting, self.multiply_adds
        rows: list[tuple[str, str | None]] = [
            ("accuracy", percent(self.accuracy, 2)),
            ("accuracy, quantised", percent(self.accuracy_quantized, 2)),
            ("most frequent class", percent(self.majority_share, 2)),
            (
                "entropy" + ", trees by place" * (types is not None),
                f"{self.entropy_bits:.2f} {ceiling}",
            ),
            ("keys per class, median", f"{self.median_keys:g}"),
            (
                "entropy, trees by type",
                None if types is None else f"{types:.2f} {ceiling}",
            ),
            ("classes never predicted", f"{never} of {trees.num_classes}"),
            ("codes off uniform", percent(self.nonuniform_share)),
            ("children in a tree", percent(self.strong_share)),
            ("trees of every child", percent(self.whole_share)),
            ("T-score", f"{self.t_score:.3f}"),
            (
                f"T-score of the {self.voting_children} children left",
                None if left in (None, self.t_score) else f"{left:.3f}",
            ),
            ("sparsity", percent(self.sparsity)),
            (
                "parameters, non-zero",
                f"{self.nonzero_parameters:,} of {self.total_parameters:,}",
            ),
            ("multiply-adds", f"{adds:,}" if adds else None),
        ]
        if self.faithfulness is not None:
            rows += self.faithfulness.rows()
        notes = [] if types is None else ["", BY_PLACE]
        return "\n".join([*lines_of(rows), *notes, "", self.verdict])


def _of(kind: Any, measures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a dataclass; lists of JSON are tuples again."""

    def as_tuple(value: Any) -> Any:
        return tuple(map(as_tuple, value)) if isinstance(value, list) else value

    return {
        field.name: value if field.type == list[str] else as_tuple(value)
        for field in dataclasses.fields(kind)
        for value in [measures[field.name]]
    }


def evaluate(
    model: keras.Model,
    dataset: Any,
    levels: Levels = 11,
    *,
    mode: str = "midtread",
    batch_size: int = 256,
    faithfulness: bool = False,
    verbose: int = 0,
) -> Report:
    """Measures accuracy, parse trees, entropy and sparsity.

    Runs the model as it is, for accuracy and T-score. Runs it with quantised
    couplings in all routed layers, for accuracy and for the dictionaries of
    parse trees, which are those of the last layer.

    Args:
        model: A functional or sequential model with a routed layer, from images
            to class lengths or poses.
        dataset: What `fit` takes: a tuple `(images, labels)` of arrays, or an
            iterable of such batches: a `tf.data.Dataset`, a
            `keras.utils.PyDataset`, a list. Of several inputs it takes
            `images`, of several targets `lengths`. Labels are class indices,
            or rows `[b, j]` that sum to 1, one-hot or soft. Every sample counts
            once, whatever its weight, so do not drop the last partial batch.
        levels: Int in [2, 256], or several, one for each routed layer, as in
            `quantize_couplings`. The uniform coupling 1/J should be a level, as
            with 11 levels and ten classes. Defaults to `11`.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`. Defaults
            to `"midtread"`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        faithfulness: Bool. Also measure whether the network uses its trees, by
            `tfcaps.rem.faithfulness` with its defaults, for which the data set
            is read a second time. Defaults to `False`.
        verbose: 0 or 1. Show a progress bar. Defaults to `0`.

    Raises:
        ValueError: If the model has no routed layer, the data set is empty or
            never ends, a label is out of range or `levels` is, or what the
            network returns is not finite.
    """
    report = Evaluator(model, levels, mode=mode).run(
        dataset, batch_size=batch_size, verbose=verbose
    )
    if not faithfulness:
        return report
    used = measure_faithfulness(
        model, dataset, batch_size=batch_size, verbose=verbose
    )
    return dataclasses.replace(report, faithfulness=used)


class Evaluator:
    """`evaluate` for repeated use on one model, compiled once.

    Args:
        model: As in `evaluate`. Its weights may change between runs.
        levels: As in `evaluate`.
        mode: As in `evaluate`.
    """

    def __init__(
        self,
        model: keras.Model,
        levels: Levels = 11,
        *,
        mode: str = "midtread",
    ):
        routed_layers(model)  # their absence is the clearer error
        check_unquantized(model)
        self.model = encoder(model)
        layers = routed_layers(self.model)
        check_called_once(self.model, layers[-1])
        self.mode = check_mode(mode)
        names = layer_levels(layers, levels, most=256)  # keys are bytes
        # What no rounding changes is computed once.
        self._below, self._above = cut_below_rounding(self.model)
        self._rounding = quantize_couplings(self._above, levels, mode=mode)
        self._plain = TreeNetwork(self._above, mode)
        self._rounded = TreeNetwork(self._rounding, mode)
        self._last, self.levels_per_layer = layers[-1], names
        self.levels = names[self._last.name]
        for part in (self._below, self._plain.model, self._rounded.model):
            part.compile()
        self.grid: tuple[int, int, int] | None = None
        if len(self._plain.grid) == 3 and math.prod(self._plain.grid[:2]) > 1:
            self.grid = self._plain.grid

    def run(
        self, dataset: Any, *, batch_size: int = 256, verbose: int = 0
    ) -> Report:
        """Measures the model on a data set, see `evaluate`."""
        keep_pruned(self.model)
        check_weights(self.model.weights)
        self._rounding.set_weights(self._above.get_weights())
        classes = self._plain.num_classes
        trees, types = CouplingDictionary(classes), CouplingDictionary(classes)
        sums: dict[str, Any] = collections.defaultdict(int)
        batches, count = labelled_batches(dataset, batch_size, self.model)
        bar = keras.utils.Progbar(count, verbose=verbose, unit_name="batch")
        for images, labels in batches:
            below = keras.tree.flatten(predict(self._below, images))
            plain, rounded = self._plain(below), self._rounded(below)
            trees.update(rounded.codes, rounded.predicted)
            if self.grid is not None:
                types.update(rounded.type_codes, rounded.predicted)
            for name, more in self._sums(plain, rounded, labels).items():
                sums[name] = sums[name] + more
            bar.add(1)
        known = int(np.sum(sums["of_class"]))
        if not known:
            raise ValueError(NO_SAMPLES)
        votes, t_scores = sums["votes"] > 0, sums["t_scores"] / known
        nonzero, total = count_parameters(self.model.weights)
        try:
            products: int | None = multiply_adds(self.model).total
        except UnknownSizeError:
            products = None
        return Report(
            levels=self.levels,
            levels_per_layer=self.levels_per_layer,
            mode=self.mode,
            accuracy=float(sums["right"] / known),
            accuracy_quantized=float(sums["right_rounded"] / known),
            nonuniform_share=float(sums["off_uniform"] / (known * votes.size)),
            strong_share=float(sums["leaves"] / (known * votes.size)),
            whole_share=float(sums["whole"] / known),
            t_score=float(np.mean(t_scores)),
            t_score_voting=float(t_scores[votes].mean()) if any(votes) else 0.0,
            voting_children=int(np.sum(votes)),
            zero_layers=[
                name
                for name, coupled in zip(
                    self._rounded.layers, sums["coupled"], strict=True
                )
                if not coupled and name in self.levels_per_layer
            ],
            sparsity=sparsity(self.model),
            sparsity_paper=sparsity(self.model, scope="paper"),
            nonzero_parameters=nonzero,
            total_parameters=total,
            majority_share=int(sums["of_class"].max()) / known,
            dictionary=trees,
            type_dictionary=types if self.grid else None,
            grid=self.grid,
            multiply_adds=products,
            tree_threshold=self._last.tree_threshold,
        )

    def _sums(
        self, plain: Trees, rounded: Trees, labels: Any
    ) -> dict[str, Any]:
        """Returns what adds up over batches, of the trees of one batch."""
        count, children = plain.couplings.shape[2], plain.couplings.shape[1]
        classes = class_of_each(labels, count)
        uniform = quantize(1.0 / count, self.levels, mode=self.mode)
        scores = ops.convert_to_numpy(t_scores_of_children(plain.couplings))
        links = (*(of for _, of in rounded.hidden), rounded.couplings)
        return {
            "of_class": np.bincount(classes, minlength=count),
            "right": np.sum(plain.predicted == classes),
            "right_rounded": np.sum(rounded.predicted == classes),
            "off_uniform": np.sum(rounded.codes != int(uniform)),
            "leaves": plain.leaves.sum(),
            "whole": np.sum(plain.leaves == children),
            "t_scores": scores.sum(axis=0, dtype="float64"),
            "votes": plain.activations.any(axis=0),
            "coupled": np.array([np.any(link > 0) for link in links]),
        }


def t_score(couplings: Tensor) -> Tensor:
    """Measures how tree-like each sample's couplings are.

    `T = mean_i [1 - H(c_i) / ln J]` with the entropy `H` over parents in nats:
    0 if every child is coupled equally to all parents, 1 if each child has one
    parent, as in a tree.

    Args:
        couplings: Unquantised couplings `[b, i, j]`.

    Returns:
        T-scores `[b]`, float32, in [0, 1] where the couplings of a child sum to
        1. (Those of `RegularizedRouting` do not, nor with `leaky=True`.) With a
        single parent there is nothing to choose, and the score is 1.

    References:
        - Peer, Stabinger, Rodriguez-Sanchez, 2018,
          https://arxiv.org/abs/1812.09707
    """
    return ops.mean(t_scores_of_children(couplings), axis=-1)


def t_scores_of_children(couplings: Tensor) -> Tensor:
    """Returns `1 - H(c_i) / ln J` of each child, `[b, i]`, see `t_score`."""
    parents = couplings.shape[-1]
    if parents == 1:
        return ops.ones_like(couplings[..., 0])
    # Coefficients that are no shares may be negative; these count as none.
    shares = ops.maximum(couplings, 0.0)
    nats = -ops.sum(shares * ops.log(shares + 1e-11), axis=-1)
    return 1.0 - nats / math.log(parents)
