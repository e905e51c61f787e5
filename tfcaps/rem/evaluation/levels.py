"""The search for the fewest levels that keep the accuracy."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from tfcaps.rem.batches import labelled_batches
from tfcaps.rem.evaluation.evaluate import Evaluator
from tfcaps.rem.results import Result

# Those of the paper's networks, and some around.
CANDIDATES = (2, 3, 5, 6, 11, 21, 51, 101, 129)
# Accuracies are ratios; their difference is not exact.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class LevelSearch(Result):
    """The result of `find_levels`.

    Attributes:
        levels: The fewest levels that keep the accuracy and do not make the
            trees trivial, or `None`.
        rows: What `Report.to_dict` says of each number of levels, from few to
            many.
        tolerance: How much accuracy might be lost.
    """

    levels: int | None
    rows: list[dict[str, Any]] = dataclasses.field(repr=False)
    tolerance: float

    def __str__(self) -> str:
        lines = ["levels  accuracy %  entropy (bits)  keys  off uniform %"]
        lines += [
            f"{row['levels']:>6}  {100 * row['accuracy_quantized']:>10.2f}"
            f"  {row['entropy_bits']:>14.2f}  {row['median_keys']:>4g}"
            f"  {100 * row['nonuniform_share']:>13.1f}"
            f"{'  trivial' * row['trivial']}"
            for row in self.rows
        ]
        found = "No number of levels keeps"
        if self.levels is not None:
            found = f"{self.levels} levels keep"
        return "\n".join(lines) + (
            f"\n\n{found} the accuracy of {100 * self.rows[0]['accuracy']:.2f} "
            f"% but for {100 * self.tolerance:g} points."
        )


def find_levels(
    model: keras.Model,
    dataset: Any,
    candidates: Sequence[int] = CANDIDATES,
    *,
    tolerance: float = 0.001,
    mode: str = "midtread",
    batch_size: int = 256,
    verbose: int = 0,
) -> LevelSearch:
    """Finds the fewest levels of couplings that keep the accuracy.

    All routed layers but `ConvCaps3D` get the same number. Use validation data;
    otherwise you fit the test set.

    Levels that do not resolve the uniform coupling 1/J round small couplings of
    a layer of J parents to 0: with up to J/2 + 1 levels, a uniform layer passes
    on only its bias. Entropy is then low but meaningless. Accuracy usually
    reveals it, but not if routing adds a bias to couplings; so levels whose
    trees are trivial, see `Report.trivial`, are not chosen unless all are.

    Args:
        model: As in `evaluate`.
        dataset: As in `evaluate`; read once, and kept.
        candidates: Ints in [2, 256]. Numbers of levels to try. Defaults to
            2, 3, 5, 6, 11, 21, 51, 101 and 129.
        tolerance: Float, at least 0. Accuracy that may be lost, as a share.
            Defaults to `0.001`.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`. Defaults
            to `"midtread"`.
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
    evaluators = [
        Evaluator(model, levels, mode=mode) for levels in sorted({*candidates})
    ]
    network = evaluators[0].model
    batches = list(labelled_batches(dataset, batch_size, network)[0])
    reports = [each.run(batches, verbose=verbose) for each in evaluators]
    least = reports[0].accuracy - tolerance - _ROUNDING
    anyway = all(report.trivial for report in reports)
    fitting = [
        report.levels
        for report in reports
        if report.accuracy_quantized >= least and (anyway or not report.trivial)
    ]
    rows = [report.to_dict() for report in reports]
    return LevelSearch(min(fitting, default=None), rows, tolerance)
