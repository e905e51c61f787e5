"""Gradients of a model's loss, without a step."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import functional, of_same_kind
from tfcaps.ops import Tensor
from tfcaps.rem.batches import Batch, batches_of

Array = NDArray[Any]

# Of batches cut from arrays.
_BATCH_SIZE = 256


class NoStep(keras.optimizers.Optimizer):
    """Keeps a number for each weight, and leaves the weights alone.

    By default that is the gradient of the last batch.
    """

    def __init__(self) -> None:
        super().__init__(learning_rate=0.0, name="no_step")

    def build(self, variables: list[Any]) -> None:
        super().build(variables)
        self._kept = [
            self.add_variable_from_reference(variable, name="kept")
            for variable in variables
        ]

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        self.assign(self._of(variable), gradient)

    def kept(self, variable: Any) -> Array:
        """Returns what is kept for a weight."""
        return ops.convert_to_numpy(self._of(variable))

    def _of(self, variable: Any) -> Any:
        return self._kept[self._get_variable_index(variable)]


def probe(model: keras.Model, optimizer: NoStep) -> keras.Model:
    """Returns a model of the same layers and losses for an optimiser."""
    whole = functional(model)
    same = of_same_kind(model, whole.input, whole.output)
    same.compile(
        optimizer,
        loss=model.loss,
        loss_weights=model.get_compile_config()["loss_weights"],
        auto_scale_loss=False,  # which leaves batches out
    )
    return same


def training_batches(data: Any, model: keras.Model) -> Iterable[Batch]:
    """Returns batches of inputs, targets and weights, as `fit` takes them.

    Raises:
        ValueError: If they have no targets.
    """
    rank = max(len(tensor.shape) for tensor in model.inputs)
    batches, _ = batches_of(data, _BATCH_SIZE, rank)
    for batch in batches:
        if batch.y is None:
            raise ValueError(
                "`batches` must have targets, for the gradient of the loss. "
                "Received: inputs alone."
            )
        yield batch


class Gradients:
    """The gradients of a compiled model, batch by batch.

    Args:
        model: A compiled model. It stays as it is.
        batches: Data as in `batches_of`, to be read several times.
    """

    def __init__(self, model: keras.Model, batches: Any):
        self._model = model
        self._batches = batches
        self._probe: keras.Model | None = None

    def towards(self, variables: Sequence[Any]) -> Iterator[list[Array]]:
        """Yields the gradients towards weights for each batch.

        Raises:
            ValueError: If there is no batch.
        """
        if self._probe is None:
            self._probe = probe(self._model, NoStep())
        optimizer = self._probe.optimizer
        # Moving averages, and what constraints do.
        before = self._model.get_weights()
        empty = True
        try:
            for batch in training_batches(self._batches, self._model):
                empty = False
                self._probe.train_on_batch(*batch)
                yield [optimizer.kept(variable) for variable in variables]
        finally:
            self._model.set_weights(before)
        if empty:
            raise ValueError("`batches` must have at least one batch.")
