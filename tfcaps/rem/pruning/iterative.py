"""Iterative pruning guarded by the validation loss, as in the REM paper."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.graphs import classifier
from tfcaps.labels import class_of_each
from tfcaps.ops import check_that
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches
from tfcaps.rem.pruning.masks import magnitude_threshold, prunable_weights
from tfcaps.rem.pruning.pruning import Pruning, begin

# The search ends when the threshold moves by less, or when the loss was the
# same so many times in a row; the numbers of the paper's code.
_PRECISION = 1e-10
_REPEATS = 10
_BATCH_SIZE = 256  # of batches cut from arrays


def prune_iteratively(
    model: keras.Model,
    validation_data: Any,
    *,
    tolerance: float = 0.0,
    max_searches: int | None = None,
    min_accuracy: float = 0.0,
    max_sparsity: float | None = None,
) -> keras.Model:
    """Prepares a model for the REM paper's pruning during `fit`.

    After an epoch, the largest magnitude threshold is searched below which all
    weights can be set to zero without a higher loss on validation images. With
    `sensitivity_decay`, which shrinks weights in every step, this is LOBSTER.

    Train with the callback `UpdatePruningStep()`, then call `strip_pruning`.
    How sparse the model gets depends on the rate of the decay and on how long
    it trains; `max_sparsity` limits it. One threshold holds for all weights
    together, and pruned weights never come back. The loss is the one for the
    lengths with which the model is compiled.

    Args:
        model: A built `keras.Model`. It is changed in place, and returned.
        validation_data: Images and labels as in `tfcaps.rem.evaluate`, which
            are not trained on.
        tolerance: Float. The loss may grow by this share. Defaults to `0.0`.
        max_searches: Int. Most passes over the validation data in one epoch.
            Defaults to `None`, about 35; twelve find nearly the same threshold.
        min_accuracy: Float. Nothing is pruned while the accuracy on the
            validation data is not above it; the paper's code has 0.5 for
            affNIST. Defaults to `0.0`.
        max_sparsity: Float. No more than this share of the weights is pruned,
            as to compare strategies at the same sparsity. Defaults to `None`.

    Raises:
        ValueError: If an argument is out of range, or the model has no weight
            to prune or is pruned already.

    References:
        - Tartaglione et al., 2022 (LOBSTER),
          https://arxiv.org/abs/2011.09905
        - "Capsule Networks Do Not Need to Model Everything"
    """
    for name, value, least, below, wanted in (
        ("tolerance", tolerance, 0.0, math.inf, "at least 0"),
        ("max_searches", max_searches, 1, math.inf, "at least 1"),
        ("max_sparsity", max_sparsity, 0.0, 1.0, "at least 0 and less than 1"),
    ):
        fits = value is None or least <= value < below
        check_that(fits, f"be {wanted}", **{name: value})
    pruning = _LossGuarded(prunable_weights(model))
    network = classifier(model)
    batches, _ = labelled_batches(validation_data, _BATCH_SIZE, network)
    data = [(x, np.asarray(y)) for x, y in batches if len(x)]
    if not data:
        raise ValueError(NO_SAMPLES)
    for _, labels in data:  # a mistake is answered before training
        class_of_each(labels, network.output.shape[1])
    pruning.classifier, pruning.data = network, data
    pruning.tolerance, pruning.max_searches = tolerance, max_searches
    pruning.min_accuracy, pruning.max_sparsity = min_accuracy, max_sparsity
    return begin(model, pruning)


class _LossGuarded(Pruning):
    """Prunes what the validation loss does not need, see above."""

    classifier: keras.Model
    data: Sequence[tuple[Any, Any]]
    tolerance: float
    max_searches: int | None
    min_accuracy: float
    max_sparsity: float | None

    def end_epoch(self, model: keras.Model) -> None:
        weights, live = self.weights(model), self.trainable()
        loss, accuracy = self._measure(model)
        is_good = math.isfinite(loss) and accuracy > self.min_accuracy
        if not live or not is_good:
            return
        magnitudes = np.concatenate([np.abs(weights[k]).ravel() for k in live])

        def loss_at(threshold: float) -> float:
            for k in live:
                array = weights[k]
                self.variables[k].assign(array * (np.abs(array) >= threshold))
            return self._measure(model)[0]

        threshold = largest_threshold(
            loss_at,
            loss * (1.0 + self.tolerance),
            float(magnitudes.min()),
            float(magnitudes.mean()),
            float(magnitudes.max()),
            self.max_searches,
        )
        if self.max_sparsity is not None:
            limit = magnitude_threshold(magnitudes, self.max_sparsity)
            threshold = min(threshold, float(limit))
        masks = [
            mask & (np.abs(array) >= threshold)
            for mask, array in zip(self.masks(), weights, strict=True)
        ]
        self.prune(weights, masks)

    def _measure(self, model: keras.Model) -> tuple[float, float]:
        """Returns loss and accuracy on the validation data."""
        loss = _loss_of_lengths(model)
        total, count, right = 0.0, 0, 0
        for images, labels in self.data:
            lengths = self.classifier.predict_on_batch(images)
            value = ops.convert_to_numpy(ops.mean(loss(labels, lengths)))
            total += float(value) * len(labels)
            count += len(labels)
            classes = class_of_each(labels, lengths.shape[-1])
            right += int(np.sum(lengths.argmax(axis=-1) == classes))
        return total / count, right / count


def largest_threshold(
    loss_at: Callable[[float], float],
    most: float,
    low: float,
    start: float,
    high: float,
    max_searches: int | None = None,
) -> float:
    """Returns the largest threshold found at which a loss is at most `most`.

    Bisects from `start` between `low` and `high`. The loss need not grow with
    the threshold everywhere, so this is a good one; 0 if none was.
    """
    good, threshold = 0.0, start
    before, loss_before, repeats = math.inf, math.inf, 0
    calls = 0
    while max_searches is None or calls < max_searches:
        calls += 1
        loss = loss_at(threshold)
        if loss <= most:
            good = low = threshold
            threshold = (high + threshold) / 2
        else:  # also if it is not a number
            high = threshold
            threshold = (threshold + low) / 2
        repeats = repeats + 1 if loss == loss_before else 0
        if abs(before - threshold) < _PRECISION or repeats == _REPEATS:
            break
        before, loss_before = threshold, loss
    return good


def _loss_of_lengths(model: keras.Model) -> Any:
    loss = model.loss
    if isinstance(loss, dict) and "lengths" in loss:
        loss = loss["lengths"]
    elif isinstance(loss, dict | list | tuple):
        loss = keras.tree.flatten(loss)[0]
    if loss is None:
        raise ValueError(
            "Compile the model with a loss: `prune_iteratively` needs one."
        )
    return keras.losses.get(loss)
