"""SNIP: single-shot pruning before the training, by connection sensitivity."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import functional, of_same_kind
from tfcaps.ops import Tensor
from tfcaps.rem.batches import batches_of
from tfcaps.rem.pruning.masks import (
    DEFAULT_TARGETS,
    saliency_masks,
    target_variables,
)
from tfcaps.rem.pruning.pruning import Pruning, begin, check_unpruned

Array = NDArray[Any]

# Of batches cut from arrays.
_BATCH_SIZE = 256


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
    """Returns the saliency of each weight."""
    weights = [ops.convert_to_numpy(variable) for variable in variables]
    saliencies = [np.zeros_like(weight) for weight in weights]
    for gradients in Gradients(model).towards(variables, batches):
        for s, w, g in zip(saliencies, weights, gradients, strict=True):
            s += np.abs(w * g)
    return saliencies


class Gradients:
    """The gradients of a compiled model's loss, batch by batch.

    Args:
        model: A compiled model. It stays as it is.
    """

    def __init__(self, model: keras.Model):
        self._model = model
        whole = functional(model)
        # Of the same layers and losses, for another optimiser.
        self._same = of_same_kind(model, whole.input, whole.output)
        self._same.compile(
            _NoStep(),
            loss=model.loss,
            loss_weights=model.get_compile_config()["loss_weights"],
            auto_scale_loss=False,  # which leaves batches out
        )

    def towards(
        self, variables: Sequence[Any], batches: Any
    ) -> Iterator[list[Array]]:
        """Yields the gradients towards weights for each batch.

        Args:
            variables: Trainable weights of the model.
            batches: Data that `fit` takes, with targets.

        Raises:
            ValueError: If there is no batch, or one has no targets.
        """
        optimizer = self._same.optimizer
        # Moving averages, and what constraints do.
        before = self._model.get_weights()
        try:
            for batch in batches_of(batches, _BATCH_SIZE)[0]:
                if batch.y is None:
                    raise ValueError(
                        "`batches` must have targets, for the gradient of the "
                        "loss. Received: inputs alone."
                    )
                self._same.train_on_batch(*batch)
                yield [optimizer.gradient(variable) for variable in variables]
        finally:
            self._model.set_weights(before)
        if not optimizer.built:
            raise ValueError("`batches` must have at least one batch.")


class _NoStep(keras.optimizers.Optimizer):
    """Keeps the gradients of the last batch, and leaves the weights alone."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.0, name="no_step")

    def build(self, variables: list[Any]) -> None:
        super().build(variables)
        self._gradients = [
            self.add_variable_from_reference(variable, name="gradient")
            for variable in variables
        ]

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        self.assign(self._of(variable), gradient)

    def gradient(self, variable: Any) -> Array:
        """Returns the gradient towards a weight."""
        return ops.convert_to_numpy(self._of(variable))

    def _of(self, variable: Any) -> Any:
        return self._gradients[self._get_variable_index(variable)]
