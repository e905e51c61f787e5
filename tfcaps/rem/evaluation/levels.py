"""Chooses the number of levels to which couplings are rounded."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfcaps.graphs import encoder, keep_pruned, routed_layers
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches, predict
from tfcaps.rem.finite import check_weights
from tfcaps.rem.labels import class_of_each
from tfcaps.rem.parse.couplings import (
    Levels,
    cut_below_rounding,
    layer_levels,
    quantize_couplings,
)
from tfcaps.rem.parse.dictionary import CouplingDictionary
from tfcaps.rem.parse.trees import TreeNetwork

# The numbers of levels of the paper and of its released code, and some between.
CANDIDATES = (2, 3, 5, 6, 11, 21, 51, 129)
# Those at which a run measures, as in the paper's figure 7.
CURVE = (2, 3, 5, 6, 11, 21)
# Accuracy has not deteriorated if it is lower by at most this share.
TOLERANCE = 0.001


def levels_curve(
    model: keras.Model,
    dataset: Any,
    levels: Sequence[Levels] = CURVE,
    *,
    mode: str = "midtread",
    batch_size: int = 256,
    verbose: int = 0,
) -> list[dict[str, Any]]:
    """Measures accuracy and entropy at several numbers of levels.

    What lies below the first routed layer is computed once.

    Args:
        model: As in `evaluate`.
        dataset: As in `evaluate`.
        levels: Numbers of levels, each as in `evaluate`. Defaults to those of
            the paper's figure 7 and of its released code.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`. Defaults
            to `"midtread"`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        verbose: 0 or 1. Show a progress bar. Defaults to `0`.

    Returns:
        A dict for each of `levels`, as `tfcaps.viz.tradeoff` takes them:
        `levels`; `accuracy` and `accuracy_quantized`, shares in [0, 1];
        `entropy_bits`, the mean over classes of the entropy of the keys.

    Raises:
        ValueError: As `evaluate` does.

    References:
        - "Capsule Networks Do Not Need to Model Everything", figure 7
    """
    below, plain, rounded = _networks(model, levels, mode)
    dictionaries = [CouplingDictionary(plain.num_classes) for _ in levels]
    right, count = np.zeros(1 + len(levels)), 0
    batches, total = labelled_batches(dataset, batch_size, encoder(model))
    bar = keras.utils.Progbar(total, verbose=verbose, unit_name="batch")
    for images, labels in batches:
        children = keras.tree.flatten(predict(below, images))
        trees = [network(children) for network in (plain, *rounded)]
        classes = class_of_each(labels, plain.num_classes)
        right += [np.sum(of.predicted == classes) for of in trees]
        count += len(classes)
        for dictionary, of in zip(dictionaries, trees[1:], strict=True):
            dictionary.update(of.codes, of.predicted)
        bar.add(1)
    if not count:
        raise ValueError(NO_SAMPLES)
    accuracy, *accuracies = (right / count).tolist()
    return [
        {
            "levels": number,
            "accuracy": accuracy,
            "accuracy_quantized": quantized,
            "entropy_bits": float(np.mean(dictionary.entropy_bits)),
        }
        for number, quantized, dictionary in zip(
            levels, accuracies, dictionaries, strict=True
        )
    ]


def lowest_levels(
    model: keras.Model,
    dataset: Any,
    candidates: Sequence[int] = CANDIDATES,
    *,
    tolerance: float = TOLERANCE,
    mode: str = "midtread",
    batch_size: int = 256,
    verbose: int = 0,
) -> tuple[int, ...]:
    """Chooses the lowest levels at which the accuracy does not deteriorate.

    The layers are taken from input to output. Each gets the lowest number at
    which the network is as accurate as without any rounding, but for
    `tolerance`; the layers before it are rounded as already chosen, those after
    it are not rounded.

    Args:
        model: As in `evaluate`.
        dataset: As in `evaluate`. Take validation images, not those on which
            the entropy is reported.
        candidates: Ints in [2, 256]. Defaults to
            `(2, 3, 5, 6, 11, 21, 51, 129)`.
        tolerance: Float in [0, 1]. The share of the images by which the
            accuracy may fall. Defaults to `0.001`.
        mode: As in `levels_curve`.
        batch_size: As in `levels_curve`.
        verbose: As in `levels_curve`.

    Returns:
        The levels of each layer that is rounded, from input to output, as
        `evaluate` and `quantize_couplings` take them. Where no candidate holds
        the accuracy, that of the highest accuracy, with a warning.

    Raises:
        ValueError: As `evaluate` does, or if `tolerance` is out of range or
            there is no candidate.

    References:
        - "Capsule Networks Do Not Need to Model Everything", section 3.1.2 and
          appendix B.3
    """
    if not 0.0 <= tolerance <= 1.0:
        raise ValueError(
            f"`tolerance` must be in [0, 1]. Received: tolerance={tolerance}."
        )
    numbers = sorted(set(candidates))
    if not numbers:
        raise ValueError("`candidates` must have a number of levels.")
    layers = [*layer_levels(routed_layers(encoder(model)), 2)]
    chosen: list[int] = []
    for place, name in enumerate(layers):
        after = [None] * (len(layers) - place - 1)
        rows = levels_curve(
            model,
            dataset,
            [(*chosen, number, *after) for number in numbers],
            mode=mode,
            batch_size=batch_size,
            verbose=verbose,
        )
        accuracies = [row["accuracy_quantized"] for row in rows]
        # The same sum in another order must not decide.
        least = rows[0]["accuracy"] - tolerance - 1e-9
        if max(accuracies) < least:
            warnings.warn(
                f"No number of levels of {name!r} out of {numbers} holds the "
                f"accuracy of {rows[0]['accuracy']:.2%} within "
                f"{tolerance:.2%}. The most accurate one is taken.",
                stacklevel=2,
            )
            least = max(accuracies)
        chosen.append(
            next(
                number
                for number, accuracy in zip(numbers, accuracies, strict=True)
                if accuracy >= least
            )
        )
    return tuple(chosen)


def _networks(
    model: keras.Model, levels: Sequence[Levels], mode: str
) -> tuple[keras.Model, TreeNetwork, list[TreeNetwork]]:
    """Returns what no rounding changes, and the rest: as it is, rounded."""
    routed_layers(model)  # their absence is the clearer error
    keep_pruned(model)
    check_weights(model.weights)
    below, above = cut_below_rounding(encoder(model))
    rounded = [quantize_couplings(above, each, mode=mode) for each in levels]
    networks = [TreeNetwork(each, mode) for each in (above, *rounded)]
    for part in (below, *(network.model for network in networks)):
        part.compile()
    return below, networks[0], networks[1:]
