"""Chooses the number of levels to which couplings are rounded."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfcaps.graphs import classifier, routed_layers
from tfcaps.rem.evaluation.evaluate import Evaluator
from tfcaps.rem.parse.couplings import Levels, layer_levels

# The numbers of levels of the paper and of its released code, and some between.
CANDIDATES = (2, 3, 5, 6, 11, 21, 51, 129)
# Those at which a run measures, as in the paper's figure 7.
CURVE = (2, 3, 5, 6, 11, 21)


def levels_curve(
    model: keras.Model,
    dataset: Any,
    levels: Sequence[Levels] = CURVE,
    *,
    mode: str = "midtread",
    verbose: int = 0,
) -> list[dict[str, Any]]:
    """Measures accuracy and entropy at several numbers of levels.

    What lies below the first routed layer is computed once. An `Evaluator` with
    a `curve` measures the same beside all else.

    Args:
        model: As in `evaluate`.
        dataset: As in `evaluate`.
        levels: Numbers of levels, each as in `evaluate`. Defaults to those of
            the paper's figure 7 and of its released code.
        mode: As in `evaluate`.
        verbose: As in `evaluate`.

    Returns:
        A dict for each of `levels`, as `tfcaps.viz.tradeoff` takes them:
        `levels`; `accuracy` and `accuracy_quantized`, shares in [0, 1];
        `entropy_bits`, the mean over classes of the entropy of the keys.

    Raises:
        ValueError: As `evaluate` does.

    References:
        - "Capsule Networks Do Not Need to Model Everything", figure 7
    """
    evaluator = Evaluator(model, 2, mode=mode, curve=levels)
    return evaluator.run(dataset, verbose=verbose).by_levels or []


def lowest_levels(
    model: keras.Model,
    dataset: Any,
    candidates: Sequence[int] = CANDIDATES,
    *,
    mode: str = "midtread",
    verbose: int = 0,
) -> tuple[int, ...]:
    """Chooses the lowest levels at which the accuracy does not deteriorate.

    The layers are taken from input to output. Each gets the lowest number at
    which the network is as accurate as without any rounding, within one
    standard error of that accuracy, √(p (1 - p) / n); the layers before it are
    rounded as already chosen, those after it are not rounded. Of 2,000 images
    and 99 % that is 0.22 points, of 200 it is 0.7: few images tell little.

    Args:
        model: As in `evaluate`.
        dataset: As in `evaluate`. Take validation images, not those on which
            the entropy is reported.
        candidates: Ints in [2, 256]. Defaults to
            `(2, 3, 5, 6, 11, 21, 51, 129)`.
        mode: As in `evaluate`.
        verbose: As in `evaluate`.

    Returns:
        The levels of each layer that is rounded, from input to output, as
        `evaluate` and `quantize_couplings` take them. Where no candidate holds
        the accuracy, that of the highest accuracy, with a warning.

    Raises:
        ValueError: As `evaluate` does, or if there is no candidate.

    References:
        - "Capsule Networks Do Not Need to Model Everything", section 3.1.2 and
          appendix B.3
        - Breiman et al., 1984, "Classification and Regression Trees", section
          3.4.3 (the rule of one standard error)
    """
    numbers = sorted(set(candidates))
    if not numbers:
        raise ValueError("`candidates` must have a number of levels.")
    layers = [*layer_levels(routed_layers(classifier(model)), 2)]
    chosen: list[int] = []
    for place, name in enumerate(layers):
        after = [None] * (len(layers) - place - 1)
        levels = [(*chosen, number, *after) for number in numbers]
        first: Levels = 2 if after else levels[0]  # no network of its own
        evaluator = Evaluator(model, first, mode=mode, curve=levels)
        report = evaluator.run(dataset, verbose=verbose)
        rows, plain = report.by_levels or [], report.accuracy
        accuracies = np.array([row["accuracy_quantized"] for row in rows])
        count = np.sum(report.dictionary.num_samples)
        error = np.sqrt(plain * (1 - plain) / count)
        # The same sum in another order must not decide.
        least = plain - error - 1e-9
        if accuracies.max() < least:
            warnings.warn(
                f"No number of levels of {name!r} out of {numbers} holds the "
                f"accuracy of {plain:.2%} within {error:.2%}. The most "
                "accurate one is taken.",
                stacklevel=2,
            )
            least = accuracies.max()
        chosen.append(numbers[int(np.argmax(accuracies >= least))])
    return tuple(chosen)
