"""Stops a training that is no longer finite, and says where that began."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from cli import UserError
from tfcaps import graphs
from training.batches import Batches


class _Guard:
    """Leaves out updates by gradients that are not finite, and notes them.

    So the weights stay what they were when a tensor became infinite, and can
    be asked which one it was.
    """

    def build(self, variables: list[Any]) -> None:
        super().build(variables)  # type: ignore[misc]
        # For each variable the first bad step, summed over the replicas that
        # saw it, and how many did.
        self.not_finite = self.add_variable(  # type: ignore[attr-defined]
            (2, len(variables)),
            initializer="zeros",
            aggregation="sum",
            name="not_finite",
        )

    def apply(self, grads: list[Any], trainable_variables: Any = None) -> None:
        optimizer: Any = self
        if not optimizer.built:
            optimizer.build(list(trainable_variables))
        bad = ops.stack(
            [
                ops.zeros((), "bool")
                if grad is None
                else ops.logical_not(ops.all(ops.isfinite(grad)))
                for grad in grads
            ]
        )
        step = ops.cast(optimizer.iterations + 1, "float32")
        is_first = ops.logical_not(ops.any(self.not_finite > 0))
        noted = ops.cast(ops.logical_and(bad, is_first), "float32")
        self.not_finite.assign_add(ops.stack([noted * step, noted]))
        keep = ops.logical_not(ops.any(bad))
        super().apply(  # type: ignore[misc]
            [
                grad if grad is None else ops.where(keep, grad, 0)
                for grad in grads
            ],
            trainable_variables,
        )


@functools.cache
def _guarded_class(base: type) -> Any:
    """Returns the class, registered because Keras clones compiled models."""
    cls = type(f"Guarded{base.__name__}", (_Guard, base), {})
    return keras.saving.register_keras_serializable(package="training")(cls)


def guarded(optimizer: keras.optimizers.Optimizer) -> Any:
    """Returns an unused optimiser anew, so that it is never fed NaN."""
    base: Any = type(optimizer)
    cls = _guarded_class(base)
    return cls.from_config(optimizer.get_config())


class StopIfNotFinite(keras.callbacks.Callback):
    """Raises `UserError` before what is not finite is backed up.

    The error names the step and the first tensor.

    Args:
        batches: The training batches.
    """

    def __init__(self, batches: Batches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for measure, value in (logs or {}).items():
            if not np.isfinite(value):
                self._synchronize()
                origin = self._origin(batch)
                self._stop(f"{measure} became {value}", batch, origin)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._synchronize()
        steps, replicas = ops.convert_to_numpy(self.model.optimizer.not_finite)
        if not np.any(replicas):
            return
        # Of a finite loss. Gradients flow from the last weight to the first.
        last = int(np.flatnonzero(replicas)[-1])
        step = round(steps[last] / replicas[last]) - 1
        weight = self.model.trainable_variables[last].path
        self._stop(
            "a gradient became infinite or not a number",
            step % self.batches.num_batches,
            f"the gradient of the weight {weight!r}",
        )

    def _synchronize(self) -> None:
        if keras.backend.backend() == "jax":
            # During `fit` the live state is outside the variables.
            self.model.jax_state_sync()

    def _stop(self, what: str, batch: int, origin: str) -> None:
        raise UserError(
            f"{what} in step {batch + 1} of epoch {self.epoch + 1}; the first "
            f"tensor that is not finite is {origin}. The training was stopped, "
            "and nothing of this epoch is kept. Try a lower --learning-rate."
        )

    def _origin(self, batch: int) -> str:
        """Names the first tensor that is not finite on the way to the loss."""
        inputs, _ = self.batches[batch]
        named = inputs if isinstance(inputs, dict) else {"images": inputs}
        for name, tensor in named.items():
            if not np.all(np.isfinite(tensor)):
                return f"the input {name!r}"
        for variable in self.model.trainable_variables:
            if not _is_finite(variable):
                return f"the weight {variable.path!r}"
        for name, tensor in _outputs(self.model, inputs):
            if not _is_finite(tensor):
                return f"the output of the layer {name!r}"
        return "the loss, of outputs that are finite"


def _outputs(model: keras.Model, inputs: Any) -> list[tuple[str, Any]]:
    """Returns what each layer makes of a batch, in the order of the calls."""
    names, outputs = [], []

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        output = layer(*args, **kwargs)
        for tensor in keras.tree.flatten(output):
            names.append(layer.name)
            outputs.append(tensor)
        return output

    copy = graphs.same_layers(model, call)
    probe = keras.Model(copy.input, outputs)
    values = probe(inputs, training=True)
    return list(zip(names, values, strict=True))


def _is_finite(tensor: Any) -> bool:
    return bool(np.all(np.isfinite(ops.convert_to_numpy(tensor))))
