"""Report of a REM evaluation, as a table and as JSON."""

import dataclasses
import functools
from typing import Any

import numpy as np

from tfcaps.rem.evaluation.faithfulness import Faithfulness
from tfcaps.rem.evaluation.named_parts import NamedParts, TreesOnParts
from tfcaps.rem.parse.dictionary import (
    CouplingDictionary,
    Grid,
    type_dictionary,
)
from tfcaps.rem.results import Result, lines_of, percent

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
# Up to so many classes have a row each; of more, so many at either end.
_MOST = 30
_AT_EITHER_END = 5


@dataclasses.dataclass(frozen=True)
class Report(Result):
    """The result of `tfcaps.rem.evaluate`.

    Never read entropy alone: it cannot exceed the ceiling, log2 of the number
    of samples, and it is 0 for a network that does not route at all.

    Attributes:
        levels: Levels of the last routed layer's couplings.
        levels_per_layer: Levels of each layer whose couplings were rounded, by
            its name.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
        accuracy: Share of right predictions, couplings as they are.
        accuracy_quantized: The same with quantised couplings.
        nonuniform_share: Share of the keys' codes that differ from the code of
            the uniform coupling 1/J.
        strong_share: Share of the children that are in a sample's tree, that of
            the predicted class with couplings as they are.
        whole_share: Share of samples whose tree has every child and so only
            repeats the class.
        t_score: Mean T-score of the unquantised couplings, see
            `t_score`.
        tree_threshold: The coupling that a child must exceed to be in a tree,
            see `tfcaps.routing.Routing.tree_threshold`.
        t_score_voting: The same over the children that pruning has left a vote.
            The others choose no parent, so that the T-score of a network with
            few children left is low, however clearly these choose.
        voting_children: How many children these are.
        without_class: How many images were of no class. They are in no other
            number, but for the accuracy of a network with one class, which is
            whether that is there.
        zero_layers: Names of the layers whose couplings were all rounded to 0,
            for every sample.
        sparsity: Share of zeros among transformations and kernels.
        sparsity_paper: The same with the biases of these layers, see
            `tfcaps.rem.sparsity`.
        sparsity_all: Share of zeros among all parameters.
        nonzero_parameters: Parameters that are not zero.
        total_parameters: All parameters.
        multiply_adds: Multiply-adds for one image, see
            `tfcaps.rem.multiply_adds`, or `None` where the size of images is
            not known.
        dictionary: The parse trees of each predicted class.
        majority_share: Share of the most frequent class: accuracy of always
            naming it.
        grid: Rows, columns and types of the children, or `None` where they have
            no positions. Without, there are no trees of types either: what is
            called `type_...` is `None`.
        faithfulness: Whether the network uses its trees, or `None` where that
            was not measured.
        parts: How much of the trees lies on true parts of objects, or `None`
            where that was not measured, see `tfcaps.rem.trees_on_parts`.
        named_parts: Whether the types of leaves name parts, or `None` where
            that was not measured, see `tfcaps.rem.named_parts`.
    """

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
    sparsity_all: float
    nonzero_parameters: int
    total_parameters: int
    majority_share: float
    dictionary: CouplingDictionary = dataclasses.field(repr=False)
    grid: Grid | None = None
    faithfulness: Faithfulness | None = None
    parts: TreesOnParts | None = None
    named_parts: NamedParts | None = None
    multiply_adds: int | None = None
    t_score_voting: float | None = None
    voting_children: int | None = None
    tree_threshold: float | None = None
    without_class: int = 0

    @property
    def entropy_bits(self) -> float:
        """Mean over classes of the entropy in bits."""
        return float(np.mean(self.dictionary.entropy_bits))

    @property
    def ceiling_bits(self) -> float:
        """Mean over classes of the highest possible entropy in bits."""
        return float(np.mean(self.dictionary.ceiling_bits))

    @property
    def normalized_entropy(self) -> float:
        """Mean over classes of the entropy over its ceiling, in [0, 1]."""
        return float(np.mean(self.dictionary.normalized_entropy))

    @property
    def median_keys(self) -> float:
        """Median over classes of the number of distinct keys."""
        return float(np.median(self.dictionary.num_keys))

    @functools.cached_property
    def type_dictionary(self) -> CouplingDictionary | None:
        """The trees of types of each predicted class, see `dictionary`."""
        if self.grid is None:
            return None
        return type_dictionary(self.dictionary, self.grid)

    @property
    def type_entropy_bits(self) -> float | None:
        """Mean over classes of the entropy of keys of types, in bits."""
        trees = self.type_dictionary
        return None if trees is None else float(np.mean(trees.entropy_bits))

    @property
    def type_ceiling_bits(self) -> float | None:
        """The ceiling of that entropy: that of the same samples' trees."""
        return None if self.grid is None else self.ceiling_bits

    @property
    def type_median_keys(self) -> float | None:
        """Median over classes of the number of distinct keys of types."""
        trees = self.type_dictionary
        return None if trees is None else float(np.median(trees.num_keys))

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
        if [*self.levels_per_layer][-1] in self.zero_layers:
            return (
                f"all couplings are rounded to 0, {self.levels} levels are too "
                "few"
            )
        clear = self.t_score_voting
        clear = self.t_score if clear is None else clear
        if self.nonuniform_share < TRIVIAL_SHARE or clear < TRIVIAL_T_SCORE:
            return (
                f"{self._routing}, so that there is hardly any routing and the "
                "entropy says nothing"
            )
        if self.whole_share > TRIVIAL_WHOLE_SHARE:
            return (
                f"{self._whole}, so that they repeat the class and the entropy "
                "says nothing"
            )
        return ""

    @property
    def _routing(self) -> str:
        return (
            f"{percent(self.nonuniform_share)} of the codes differ from the "
            f"uniform coupling, T-score {self.t_score:.3f}"
        )

    @property
    def _whole(self) -> str:
        return (
            f"{percent(self.whole_share)} of the samples couple every child "
            "with their class"
        )

    @property
    def empty(self) -> bool | None:
        """Whether the network does not use its trees, see `Faithfulness`.

        `None` where that was not measured.
        """
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
        sentences = [f"The trees are trivial: {self._why_trivial}."]
        if not self.trivial:
            sentences = [
                f"The trees are not trivial: {self._routing}; {self._whole}."
            ]
        if self.faithfulness is not None:
            sentences.append(self.faithfulness.verdict)
        elif not self.trivial:
            sentences.append("Whether the network uses them was not measured.")
        if self.named_parts is not None:
            sentences.append(self.named_parts.verdict)
        return " ".join(sentences)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything but the keys themselves, ready for JSON."""
        measures = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("dictionary", "faithfulness")
        }
        if self.faithfulness is not None:
            measures |= self.faithfulness.to_dict()
        return {
            **measures,
            "parts": self.parts and self.parts.to_dict(),
            "named_parts": self.named_parts and self.named_parts.to_dict(),
            **self.dictionary.summary(),
            "learnt": self.learnt,
            "trivial": self.trivial,
            "empty": self.empty,
            "verdict": self.verdict,
            "type_entropy_bits": self.type_entropy_bits,
            "type_ceiling_bits": self.type_ceiling_bits,
            "type_median_keys": self.type_median_keys,
        }

    def __str__(self) -> str:
        about = self.dictionary.summary()
        types = clear = None
        if self.grid is not None:
            types = (
                f"{self.type_entropy_bits:.2f} of at most "
                f"{self.type_ceiling_bits:.2f} bits"
            )
        if self.t_score_voting not in (None, self.t_score):
            clear = f"{self.t_score_voting:.3f}"
        rows: list[tuple[str, str | None]] = [
            ("accuracy", percent(self.accuracy, 2)),
            ("accuracy, quantised", percent(self.accuracy_quantized, 2)),
            ("most frequent class", percent(self.majority_share, 2)),
            (
                "entropy",
                f"{self.entropy_bits:.2f} of at most "
                f"{self.ceiling_bits:.2f} bits",
            ),
            ("entropy over ceiling", f"{self.normalized_entropy:.3f}"),
            ("keys per class, median", f"{self.median_keys:g}"),
            ("entropy of types", types),
            (
                "keys of types, median",
                f"{self.type_median_keys:g}" if types else None,
            ),
            (
                "deviation over classes",
                f"{about['entropy_deviation_bits']:.2f} bits, "
                f"{about['keys_deviation']:.1f} keys",
            ),
            (
                "classes never predicted",
                f"{about['empty_classes']} of {self.dictionary.num_classes}",
            ),
            ("codes off uniform", percent(self.nonuniform_share)),
            ("children in a tree", percent(self.strong_share)),
            ("trees of every child", percent(self.whole_share)),
            ("T-score", f"{self.t_score:.3f}"),
            (f"T-score of the {self.voting_children} children left", clear),
            (
                "images of no class",
                f"{self.without_class:,}" if self.without_class else None,
            ),
            ("sparsity", percent(self.sparsity)),
            ("sparsity, with biases", percent(self.sparsity_paper)),
            ("sparsity, everything", percent(self.sparsity_all)),
            (
                "parameters, non-zero",
                f"{self.nonzero_parameters:,} of {self.total_parameters:,}",
            ),
            (
                "multiply-adds",
                f"{self.multiply_adds:,}" if self.multiply_adds else None,
            ),
        ]
        if self.faithfulness is not None:
            rows += self.faithfulness.rows()
        table = class_table(self.dictionary)
        return "\n".join([*lines_of(rows), "", *table, "", self.verdict])


def class_table(trees: CouplingDictionary) -> list[str]:
    """Returns lines about the trees of each class.

    Of more than 30 classes these are the five of the lowest and the five of the
    highest entropy, among those that have a sample.
    """
    samples, entropy = trees.num_samples, trees.entropy_bits
    columns = (samples, trees.num_keys, entropy, trees.ceiling_bits)
    rows = [
        f"{j:>5}  {n:>7}  {keys:>4}  {bits:>7.2f}  {top:>7.2f}"
        for j, (n, keys, bits, top) in enumerate(zip(*columns, strict=True))
    ]
    title = "class  samples  keys  entropy  ceiling (bits)"
    if len(rows) <= _MOST:
        return [title, *rows]
    order = np.argsort(entropy, kind="stable")
    order = order[samples[order] > 0]
    left_out = len(order) - 2 * _AT_EITHER_END
    if left_out <= 0:
        return [title, *(rows[j] for j in order)]
    return [
        title,
        *(rows[j] for j in order[:_AT_EITHER_END]),
        f"  ...  {left_out:,} classes of an entropy in between",
        *(rows[j] for j in order[-_AT_EITHER_END:]),
    ]
