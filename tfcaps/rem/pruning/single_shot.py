"""SNIP: single-shot pruning before the training, by connection sensitivity."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import check_model, functional, of_same_kind
from tfcaps.ops import Tensor, check_that
from tfcaps.rem.batches import batches_of
from tfcaps.rem.pruning.masks import prunable_weights, saliency_masks
from tfcaps.rem.pruning.pruning import Pruning, begin

_BATCH_SIZE = 256  # of batches cut from arrays


def prune_single_shot(
    model: keras.Model, batches: Any, sparsity: float
) -> keras.Model:
    """Prunes a model once, before it is trained, and keeps the masks.

    A weight's saliency is `|w dL/dw|`, summed over the batches; the largest of
    all weights together survive, at least one of each tensor. Train with
    `UpdatePruningStep()`, then call `strip_pruning`.

    Args:
        model: A compiled, built `keras.Model` that has not been trained. It is
            changed in place, and returned.
        batches: Data that `fit` takes: arrays `(x, y)`, or an iterable of
            batches. Together they should show every class, and be neither
            shifted nor dropped.
        sparsity: Float in [0, 1). Share of weights to prune.

    Raises:
        ValueError: If `sparsity` is out of range, the model is not compiled or
            pruned already, or the loss depends on no weight.

    References:
        - Lee, Ajanthan, Torr, 2019, https://arxiv.org/abs/1810.02340
    """
    check_model(model)
    check_that(0.0 <= sparsity < 1.0, "be in [0, 1)", sparsity=sparsity)
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"Compile the model {model.name!r} before `prune_single_shot`, "
            "which takes the gradient of its loss."
        )
    pruning = Pruning(prunable_weights(model))
    saliencies = _saliencies(model, batches, pruning.variables)
    total = sum(float(s.sum(dtype=np.float64)) for s in saliencies)
    if not 0.0 < total < np.inf:
        raise ValueError(
            "Saliencies must be finite and some above 0; their sum is "
            f"{total}. Check the batches and the loss."
        )
    begin(model, pruning)
    pruning.prune(pruning.weights(model), saliency_masks(saliencies, sparsity))
    return model


def _saliencies(
    model: keras.Model, batches: Any, variables: Sequence[Any]
) -> list[NDArray[Any]]:
    """Returns the saliency of each weight; the model stays as it is."""
    whole = functional(model)
    # Of the same layers and losses, for an optimiser that leaves them alone.
    same = of_same_kind(model, whole.input, whole.output)
    same.compile(
        optimizer := _Saliency(),
        loss=model.loss,
        loss_weights=model.get_compile_config()["loss_weights"],
        auto_scale_loss=False,  # which leaves batches out
    )
    # Moving averages, and what constraints do.
    before = model.get_weights()
    try:
        for batch in batches_of(batches, _BATCH_SIZE)[0]:
            if batch.y is None:
                raise ValueError(
                    "`batches` must have targets, for the gradient of the "
                    "loss. Received: inputs alone."
                )
            same.train_on_batch(*batch)
    finally:
        model.set_weights(before)
    if not optimizer.built:
        raise ValueError("`batches` must have at least one batch.")
    return [ops.convert_to_numpy(optimizer.saliency(v)) for v in variables]


class _Saliency(keras.optimizers.Optimizer):
    """Sums the saliencies of batches, and leaves the weights alone."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.0, name="saliency")

    def build(self, variables: list[Any]) -> None:
        super().build(variables)
        self._sums = [
            self.add_variable_from_reference(variable, name="saliency")
            for variable in variables
        ]

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        self.assign_add(self.saliency(variable), ops.abs(gradient * variable))

    def saliency(self, variable: Any) -> Any:
        """Returns the sum for a weight."""
        return self._sums[self._get_variable_index(variable)]
