"""SNIP: single-shot pruning before the training, by connection sensitivity."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.ops import Tensor
from tfcaps.rem.pruning.gradients import NoStep, probe, training_batches
from tfcaps.rem.pruning.masks import saliency_masks
from tfcaps.rem.pruning.pruning import Array, Pruning, begin, check_unpruned
from tfcaps.rem.pruning.targets import DEFAULT_TARGETS, target_variables


def prune_single_shot(
    model: keras.Model,
    batches: Any,
    sparsity: float,
    *,
    targets: str | Sequence[str] = DEFAULT_TARGETS,
) -> keras.Model:
    """Prunes a model once, before it is trained, and keeps the masks.

    A weight's saliency is `|w dL/dw|`, summed over the batches; the largest of
    all weights together survive, at least one of each tensor. Train with
    `UpdatePruningStep()`, then call `strip_pruning`.

    Args:
        model: A compiled, built `keras.Model` that has not been trained. It is
            changed in place.
        batches: Data that `fit` takes: arrays `(x, y)`, or an iterable of
            batches. Together they should show every class, and be neither
            shifted nor dropped.
        sparsity: Float in [0, 1). Share of weights to prune.
        targets: Groups of weights, as in `prune_low_magnitude`.

    Returns:
        The same model.

    Raises:
        ValueError: If `sparsity` is out of range, the model is not compiled or
            pruned already, or the loss depends on no weight.

    References:
        - Lee, Ajanthan, Torr, 2019, https://arxiv.org/abs/1810.02340
    """
    check_unpruned(model)
    if not 0.0 <= sparsity < 1.0:
        raise ValueError(
            f"`sparsity` must be in [0, 1). Received: sparsity={sparsity}."
        )
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"Compile the model {model.name!r} before `prune_single_shot`, "
            "which takes the gradient of its loss."
        )
    pruning = Pruning(target_variables(model.trainable_variables, targets))
    saliencies = _saliencies(model, batches, pruning.variables)
    total = sum(float(s.sum(dtype=np.float64)) for s in saliencies)
    if not 0.0 < total < np.inf:
        raise ValueError(
            "Saliencies must be finite and some above 0; their sum is "
            f"{total}. Check the batches and the loss."
        )
    masks = saliency_masks(saliencies, sparsity)
    begin(model, pruning)
    pruning.prune(pruning.weights(model), masks)
    return model


def _saliencies(
    model: keras.Model, batches: Any, variables: Sequence[Any]
) -> list[Array]:
    """Returns the saliency of each weight; the model stays as it was."""
    before = model.get_weights()
    optimizer = _Saliency()
    trained = probe(model, optimizer)
    for batch in training_batches(batches, trained):
        trained.train_on_batch(*batch)
    model.set_weights(before)  # moving averages, and what constraints did
    if not optimizer.built:
        raise ValueError("`batches` must have at least one batch.")
    return [optimizer.kept(variable) for variable in variables]


class _Saliency(NoStep):
    """Adds up `|w dL/dw|`."""

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        saliency = ops.abs(ops.multiply(gradient, variable))
        self.assign_add(self._of(variable), saliency)
