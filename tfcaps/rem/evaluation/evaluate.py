"""Measures a capsule network: accuracy, parse trees, entropy, sparsity."""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import graphs
from tfcaps.finite import check_weights
from tfcaps.labels import class_of_each
from tfcaps.ops import Tensor, check_mode, quantize
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches, predict
from tfcaps.rem.evaluation import words
from tfcaps.rem.evaluation.faithfulness import Faithfulness
from tfcaps.rem.evaluation.faithfulness import (
    faithfulness as measure_faithfulness,
)
from tfcaps.rem.evaluation.named_parts import NamedParts
from tfcaps.rem.evaluation.pixels import PixelFaithfulness
from tfcaps.rem.evaluation.saliency_checks import SaliencyChecks
from tfcaps.rem.multiply_adds import UnknownSizeError, multiply_adds
from tfcaps.rem.parse.couplings import (
    Levels,
    cut_below_rounding,
    layer_levels,
    quantize_couplings,
)
from tfcaps.rem.parse.dictionary import CouplingDictionary, entropy
from tfcaps.rem.parse.trees import TreeNetwork, Trees
from tfcaps.rem.pruning.masks import count_parameters, sparsity
from tfcaps.rem.results import Result, lines_of

# Below either, couplings are uniform but for noise, and trees say nothing. Too
# strong a decay leaves 0.1 % of the codes off the uniform coupling.
TRIVIAL_SHARE = 0.01
TRIVIAL_T_SCORE = 0.01
# Above it, most trees have every child: they repeat the class. That is where a
# reward of clear couplings alone ends.
TRIVIAL_WHOLE_SHARE = 0.5
# Fewer samples cannot tell whether a network has learnt anything.
_FEWEST_SAMPLES = 30
# Standard deviations above the most frequent class; by chance it is 1 in 100.
_CLEARLY = 2.33


@dataclasses.dataclass(frozen=True)
class Report(Result):
    """The result of `tfcaps.rem.evaluate`: prints as a table, saves as JSON.

    Never read entropy alone: it cannot exceed the ceiling, log2 of the number
    of samples, and it is 0 for a network that does not route at all.

    Attributes:
        levels: Levels of the last routed layer's couplings.
        levels_per_layer: Those of each layer that was rounded, by its name.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
        accuracy, accuracy_quantized: Shares of right predictions, couplings as
            they are, and quantised.
        nonuniform_share: Share of the keys' codes that differ from the code of
            the uniform coupling 1/J.
        strong_share: Share of the children that are in a sample's tree, with
            couplings as they are.
        whole_share: Share of samples whose tree has every child.
        t_score: Mean of `t_scores_of_children` of the unquantised couplings.
        zero_layers: Names of layers whose couplings all were rounded to 0.
        sparsity, sparsity_paper: `tfcaps.rem.sparsity` of two scopes.
        nonzero_parameters, total_parameters: Numbers of parameters.
        majority_share: Accuracy of always answering the most frequent class.
        dictionary: The parse trees of each predicted class.
        type_dictionary: Their keys of types, see `Trees.type_codes`. It is
            `None` where children have no positions, and so are the next three.
        offset_entropy_bits: The entropy of `Trees.offset_keys`, the mean over
            classes.
        slot_entropy_bits: That of `Trees.slots`, of the types in the tree.
        grid: Rows, columns and types of the children.
        faithfulness: Whether the network uses its trees, if that was measured.
        named_parts: Whether the types of leaves name parts, if that was.
        multiply_adds: Those for one image, or `None` of images of any size.
        t_score_voting: The T-score over the `voting_children`, those that are
            active in some image. Others, as of pruning, choose no parent.
        tree_threshold: The coupling that a child in a tree exceeds.
        by_levels: What `levels_curve` measures, if that was measured.
    """

    properties = ("learnt", "trivial", "empty", "verdict", "type_entropy_bits")
    words = words.report_rows, words.report_verdict

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
    offset_entropy_bits: float | None = None
    slot_entropy_bits: float | None = None
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
        """Whether the trees say no more than the class."""
        return bool(self.trivial_reason)

    @property
    def trivial_reason(self) -> str:
        """Why the trees say no more than the class, or `""`.

        All couplings are rounded to `"zero"`, or are `"uniform"` but for noise,
        or most trees are `"whole"`, with every child.
        """
        # Children without a vote choose no parent, however clear the others.
        clear = self.t_score_voting
        clear = self.t_score if clear is None else clear
        if [*self.levels_per_layer][-1] in self.zero_layers:
            return "zero"
        if self.nonuniform_share < TRIVIAL_SHARE or clear < TRIVIAL_T_SCORE:
            return "uniform"
        return "whole" if self.whole_share > TRIVIAL_WHOLE_SHARE else ""

    @property
    def empty(self) -> bool | None:
        """Whether the network does not use its trees, if that was measured."""
        return None if self.faithfulness is None else self.faithfulness.empty

    def to_dict(self) -> dict[str, Any]:
        """Returns everything but the keys themselves, ready for JSON."""
        measures = super().to_dict()
        del measures["dictionary"], measures["type_dictionary"]
        used = measures.pop("faithfulness") or {}
        return {**used, **measures, **self.dictionary.summary()}

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
        used = None
        if "necessity" in measures:
            parts = {n: _read(kind, measures[n]) for n, kind in _PARTS.items()}
            used = _read(Faithfulness, {**measures, **parts})
        known = {
            "faithfulness": used,
            "named_parts": _read(NamedParts, measures["named_parts"]),
            "dictionary": dictionary,
            "type_dictionary": type_dictionary,
        }
        report: Report = _read(cls, {**measures, **known})
        return report

    def __str__(self) -> str:
        note = [] if self.type_dictionary is None else ["", words.BY_PLACE]
        return "\n".join([*lines_of(self.rows), *note, "", self.verdict])


# Results in a `Faithfulness`.
_PARTS: Any = {"pixels": PixelFaithfulness, "saliency": SaliencyChecks}


def _read(kind: Any, measures: Mapping[str, Any] | None) -> Any:
    """Returns a dataclass of JSON, in which tuples are lists."""

    def as_tuple(value: Any) -> Any:
        return tuple(map(as_tuple, value)) if isinstance(value, list) else value

    if measures is None:
        return None
    names = {field.name: field.type for field in dataclasses.fields(kind)}
    return kind(
        **{
            name: value if "list[" in str(wanted) else as_tuple(value)
            for name, wanted in names.items()
            for value in [measures[name]]
        }
    )


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
        mode: As in `tfcaps.rem.quantize`. Defaults to `"midtread"`.
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
        model: As in `evaluate`. Weights may change between runs.
        levels: As in `evaluate`.
        mode: As in `evaluate`.
        curve: The `levels` of `levels_curve`, for `Report.by_levels`. Defaults
            to none.
    """

    def __init__(
        self,
        model: keras.Model,
        levels: Levels = 11,
        *,
        mode: str = "midtread",
        curve: Sequence[Levels] = (),
    ):
        graphs.routed_layers(model)  # their absence is the clearer error
        graphs.check_unquantized(model)
        self.model = graphs.classifier(model)
        layers = graphs.routed_layers(self.model)
        graphs.check_called_once(self.model, layers[-1])
        self.mode = check_mode(mode)
        names = layer_levels(layers, levels, most=256)  # keys are bytes
        # What no rounding changes is computed once.
        self._below, self._above = cut_below_rounding(self.model)
        self._plain = TreeNetwork(self._above, mode)
        self._curve = list(curve)
        # The first one makes the dictionaries.
        self._levels = [levels, *(each for each in curve if each != levels)]
        self._rounding = [
            quantize_couplings(self._above, each, mode=mode)
            for each in self._levels
        ]
        self._rounded = [TreeNetwork(each, mode) for each in self._rounding]
        self._last, self.levels_per_layer = layers[-1], names
        self.levels = names[self._last.name]
        for network in (self._plain, *self._rounded):
            network.model.compile()
        self._below.compile()
        self.grid: tuple[int, int, int] | None = None
        if len(self._plain.grid) == 3 and math.prod(self._plain.grid[:2]) > 1:
            self.grid = self._plain.grid

    def run(
        self, dataset: Any, *, batch_size: int = 256, verbose: int = 0
    ) -> Report:
        """Measures the model on a data set, see `evaluate`."""
        graphs.keep_pruned(self.model)
        check_weights(self.model.weights)
        for copy in self._rounding:
            copy.set_weights(self._above.get_weights())
        classes = self._plain.num_classes
        dictionaries = [CouplingDictionary(classes) for _ in self._rounded]
        types, slots = (CouplingDictionary(classes) for _ in range(2))
        offsets = [collections.Counter[bytes]() for _ in range(classes)]
        sums: dict[str, Any] = collections.defaultdict(int)
        batches, count = labelled_batches(dataset, batch_size, self.model)
        bar = keras.utils.Progbar(count, verbose=verbose, unit_name="batch")
        for images, labels in batches:
            below = keras.tree.flatten(predict(self._below, images))
            plain = self._plain(below)
            rounded = [network(below) for network in self._rounded]
            for dictionary, of in zip(dictionaries, rounded, strict=True):
                dictionary.update(of.codes, of.predicted)
            if self.grid is not None:
                trees = rounded[0]
                types.update(trees.type_codes, trees.predicted)
                slots.update(trees.slots.astype(np.uint8), trees.predicted)
                for key, j in zip(
                    trees.offset_keys, trees.predicted, strict=True
                ):
                    offsets[j][key] += 1
            for name, more in self._sums(plain, rounded, labels).items():
                sums[name] = sums[name] + more
            bar.add(1)
        known = int(np.sum(sums["of_class"]))
        if not known:
            raise ValueError(NO_SAMPLES)
        accuracy, *accuracies = (sums["right"] / known).tolist()
        rows = [
            {
                "levels": each,
                "accuracy": accuracy,
                "accuracy_quantized": accuracies[k],
                "entropy_bits": float(np.mean(dictionaries[k].entropy_bits)),
            }
            for each in self._curve
            for k in [self._levels.index(each)]
        ]
        by_offset = by_slot = None
        if self.grid is not None:
            bits = [entropy([*counter.values()]) for counter in offsets]
            by_offset = float(np.mean(bits))
            by_slot = float(np.mean(slots.entropy_bits))
        votes, t_scores = sums["votes"] > 0, sums["t_scores"] / known
        coupled = dict(zip(self._plain.layers, sums["coupled"], strict=True))
        return Report(
            levels=self.levels,
            levels_per_layer=self.levels_per_layer,
            mode=self.mode,
            accuracy=accuracy,
            accuracy_quantized=accuracies[0],
            nonuniform_share=float(sums["off_uniform"] / (known * votes.size)),
            strong_share=float(sums["leaves"] / (known * votes.size)),
            whole_share=float(sums["whole"] / known),
            t_score=float(np.mean(t_scores)),
            t_score_voting=float(t_scores[votes].mean()) if any(votes) else 0.0,
            voting_children=int(np.sum(votes)),
            zero_layers=[
                name
                for name in self.levels_per_layer
                if not coupled.get(name, True)
            ],
            majority_share=int(sums["of_class"].max()) / known,
            dictionary=dictionaries[0],
            type_dictionary=types if self.grid else None,
            offset_entropy_bits=by_offset,
            slot_entropy_bits=by_slot,
            grid=self.grid,
            tree_threshold=graphs.routing_of(self._last).tree_threshold(
                classes
            ),
            by_levels=rows or None,
            **costs(self.model),
        )

    def _sums(
        self, plain: Trees, rounded: Sequence[Trees], labels: Any
    ) -> dict[str, Any]:
        """Returns what adds up over batches, of the trees of one batch."""
        first, (children, count) = rounded[0], plain.couplings.shape[1:]
        classes = class_of_each(labels, count)
        uniform = quantize(1.0 / count, self.levels, mode=self.mode)
        scores = ops.convert_to_numpy(t_scores_of_children(plain.couplings))
        links = (*(of for _, of in first.hidden), first.couplings)
        return {
            "of_class": np.bincount(classes, minlength=count),
            "right": np.array(
                [np.sum(of.predicted == classes) for of in (plain, *rounded)]
            ),
            "off_uniform": np.sum(first.codes != int(uniform)),
            "leaves": plain.leaves.sum(),
            "whole": np.sum(plain.leaves == children),
            "t_scores": scores.sum(axis=0, dtype="float64"),
            "votes": plain.activations.any(axis=0),
            "coupled": np.array([np.any(link > 0) for link in links]),
        }


def costs(model: keras.Model) -> dict[str, Any]:
    """Returns what a `Report` says of the model itself, whatever the data."""
    nonzero, total = count_parameters(model.weights)
    try:
        products: int | None = multiply_adds(model).total
    except UnknownSizeError:
        products = None
    return {
        "sparsity": sparsity(model),
        "sparsity_paper": sparsity(model, scope="paper"),
        "nonzero_parameters": nonzero,
        "total_parameters": total,
        "multiply_adds": products,
    }


def t_scores_of_children(couplings: Tensor) -> Tensor:
    """Returns how tree-like couplings `[b, i, j]` of children are, `[b, i]`.

    `T_i = 1 - H(c_i) / ln J` with the entropy `H` over parents in nats: 0 for
    equal couplings with all parents, 1 for one parent, as in a tree, also if
    there is no other. It is in [0, 1] where couplings sum to 1, which those of
    `RegularizedRouting`, and with `leaky=True`, do not.

    References:
        - Peer, Stabinger, Rodriguez-Sanchez, 2018,
          https://arxiv.org/abs/1812.09707
    """
    parents = couplings.shape[-1]
    if parents == 1:
        return ops.ones_like(couplings[..., 0])
    # Coefficients that are no shares may be negative; these count as none.
    shares = ops.maximum(couplings, 0.0)
    nats = -ops.sum(shares * ops.log(shares + 1e-11), axis=-1)
    return 1.0 - nats / math.log(parents)
