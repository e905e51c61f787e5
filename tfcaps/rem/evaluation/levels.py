"""The search for the fewest levels that keep the accuracy."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from tfcaps.rem.batches import labelled_batches, predict
from tfcaps.rem.evaluation.evaluate import Counts, Evaluator
from tfcaps.rem.results import Result

# Those of the paper's networks, and some around.
CANDIDATES = (2, 3, 5, 6, 11, 21, 51, 101, 129)

# What a row of the search says of a number of levels, from `Report`.
_COLUMNS = (
    "levels",
    "accuracy_quantized",
    "entropy_bits",
    "normalized_entropy",
    "median_keys",
    "type_entropy_bits",
    "nonuniform_share",
    "t_score",
    "zero_layers",
)

# Above it, most trees have no child.
_EMPTY = 0.5
# Accuracies are ratios; their difference is not exact.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class LevelSearch(Result):
    """The result of `find_levels`.

    Attributes:
        levels: The fewest levels that keep the accuracy and do not make the
            trees empty, or `None`.
        accuracy: Accuracy with couplings as they are.
        rows: Measures of each number of levels, from few to many, by the names
            of `Report`; `zero_layers` are the layers whose couplings were all
            rounded to 0. The T-score is that of couplings as they are.
            `empty_trees` is the share of images of whose children none has a
            rounded coupling above the uniform one.
        tolerance: How much accuracy might be lost.
        empty_trees: The same share with couplings as they are.
    """

    levels: int | None
    accuracy: float
    rows: list[dict[str, Any]] = dataclasses.field(repr=False)
    tolerance: float
    empty_trees: float

    def __str__(self) -> str:
        lines = [
            "levels  accuracy %  entropy (bits)  keys  off uniform %  "
            "empty trees %"
        ]
        for row in self.rows:
            zero = ", ".join(row["zero_layers"])
            lines.append(
                f"{row['levels']:>6}  {100 * row['accuracy_quantized']:>10.2f}"
                f"  {row['entropy_bits']:>14.2f}  {row['median_keys']:>4g}"
                f"  {100 * row['nonuniform_share']:>13.1f}"
                f"  {100 * row['empty_trees']:>13.1f}"
                + (f"  all couplings zero: {zero}" if zero else "")
            )
        found = f"{self.levels} levels keep"
        if self.levels is None:
            found = "No number of levels keeps"
        lines += [
            "",
            f"{found} the accuracy of {100 * self.accuracy:.2f} % but for "
            f"{100 * self.tolerance:g} points.",
        ]
        return "\n".join(lines)


def find_levels(
    model: keras.Model,
    dataset: Any,
    candidates: Sequence[int] = CANDIDATES,
    *,
    tolerance: float = 0.001,
    batch_size: int = 256,
    verbose: int = 0,
) -> LevelSearch:
    """Finds the fewest levels of couplings that keep the accuracy.

    All routed layers but `ConvCaps3D` get the same number. Use validation data;
    otherwise you fit the test set. The layers before the first rounded one run
    once for all candidates.

    Levels that do not resolve the uniform coupling 1/J round small couplings of
    a layer of J parents to 0: with up to J/2 + 1 mid-tread levels, a uniform
    layer passes on only its bias. (Mid-rise levels are never 0; if there are
    few, the layer passes on far too much.) Entropy is then low but meaningless.
    Accuracy usually reveals it, but not if routing adds a bias to couplings;
    see `zero_layers` and `nonuniform_share`. Levels with which more than half
    of the images have no child in their tree are not chosen, unless that is so
    with couplings as they are.

    Args:
        model: As in `evaluate`.
        dataset: As in `evaluate`; read once.
        candidates: Ints in [2, 256]. Numbers of levels to try. Defaults to
            2, 3, 5, 6, 11, 21, 51, 101 and 129.
        tolerance: Float, at least 0. Accuracy that may be lost, as a share.
            Defaults to `0.001`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        verbose: 0 or 1. Show a progress bar. Defaults to `0`.

    Returns:
        A `LevelSearch`, which prints as a table and saves as JSON.

    Raises:
        ValueError: If there is no candidate, or an argument is out of range.

    References:
        - "Capsule Networks Do Not Need to Model Everything" (REM), figure 7
    """
    if not candidates:
        raise ValueError("`candidates` must be some numbers. Received: none.")
    if not tolerance >= 0:
        raise ValueError(
            f"`tolerance` must be at least 0. Received: tolerance={tolerance}."
        )
    evaluators = [Evaluator(model, levels) for levels in sorted({*candidates})]
    first = evaluators[0]
    for evaluator in evaluators:
        evaluator.update()
    all_counts = [Counts(evaluator) for evaluator in evaluators]
    batches, count = labelled_batches(dataset, batch_size, first.model)
    bar = keras.utils.Progbar(count, verbose=verbose, unit_name="batch")
    for images, labels in batches:
        taken = keras.tree.flatten(predict(first.below, images))
        plain = first.plain(taken)
        for evaluator, counts in zip(evaluators, all_counts, strict=True):
            counts.add(plain, evaluator.rounded(taken), labels)
        bar.add(1)
    rows, fitting, own, accuracy = [], [], 0.0, 0.0
    for evaluator, counts in zip(evaluators, all_counts, strict=True):
        report = evaluator.report(counts)
        own, empty = (counts.empty_trees / counts.known).tolist()
        accuracy, known = report.accuracy, report.to_dict()
        rows.append(
            {**{name: known[name] for name in _COLUMNS}, "empty_trees": empty}
        )
        kept = report.accuracy_quantized >= accuracy - tolerance - _ROUNDING
        if kept and (empty <= _EMPTY or own > _EMPTY):
            fitting.append(report.levels)
    return LevelSearch(
        levels=min(fitting, default=None),
        accuracy=accuracy,
        rows=rows,
        empty_trees=own,
        tolerance=tolerance,
    )
