"""Magnitude pruning on a schedule, under the names that users of tfmot know.

tfmot refuses Keras 3 layers, but its schedules are plain objects. Here a mask
is a variable of the optimiser and acts as a constraint of its weight: Keras
applies constraints after every update, on every backend and replica, so the
model itself stays as it was and stripping is removing the constraints.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor
from tfcaps.rem.masks import check_scope, magnitude_masks
from tfcaps.rem.targets import DEFAULT_TARGETS, target_variables

Schedule = Callable[[int], Any]


def prune_low_magnitude(
    model: keras.Model,
    pruning_schedule: Schedule,
    *,
    targets: str | Sequence[str] = DEFAULT_TARGETS,
    scope: str = "tensor",
    frequency: int = 1,
) -> keras.Model:
    """Prepares a model for pruning during `fit`.

    Train with the callback `UpdatePruningStep()`, which rewrites the masks when
    the schedule says so; then call `strip_pruning`. The masks start with ones
    and live in the optimiser: compile the model before or after this call, and
    before restoring a checkpoint that was written during pruning.

    Args:
        model: A built `keras.Model`. It is changed in place.
        pruning_schedule: tfmot's `PolynomialDecay` or `ConstantSparsity`, a
            `keras.optimizers.schedules` object, or any function from the step
            (counted from 1) to the sparsity.
        targets: `"transformations"`, `"kernels"`, or several of these groups.
            Biases are never pruned. Defaults to both.
        scope: `"tensor"` prunes the same share of each weight, `"global"`
            compares magnitudes across weights. Defaults to `"tensor"`.
        frequency: Int. Steps between two updates of the masks. Only for
            schedules that do not decide this themselves, as tfmot's do.
            Defaults to `1`.

    Returns:
        The same model.

    Raises:
        ValueError: If an argument is out of range, or the model has no weight
            to prune or is pruned already.

    References:
        - Zhu, Gupta, 2017, https://arxiv.org/abs/1710.01878
    """
    check_scope(scope)
    if not callable(pruning_schedule):
        raise ValueError(
            "`pruning_schedule` must be a function from the step to the "
            "sparsity, such as tfmot's PolynomialDecay. Received: "
            f"pruning_schedule={pruning_schedule!r}."
        )
    if frequency < 1:
        raise ValueError(
            f"`frequency` must be at least 1. Received: frequency={frequency}."
        )
    if getattr(model, "pruning", None) is not None:
        raise ValueError(
            f"The model {model.name!r} is being pruned already. Call "
            "`strip_pruning` first."
        )
    model.pruning = _Pruning(
        target_variables(model.trainable_variables, targets),
        pruning_schedule,
        scope,
        frequency,
    )
    if getattr(model, "optimizer", None) is not None:
        model.pruning.attach(model)
    return model


def strip_pruning(model: keras.Model) -> keras.Model:
    """Ends pruning: the zeros stay, the masks no longer act.

    The optimiser keeps its masks, unused. To leave them behind, compile the
    model anew, or save `keras.Model(model.input, model.output)`.

    Args:
        model: A model given to `prune_low_magnitude`. It is changed in place;
            a model that is not being pruned stays as it is.

    Returns:
        The same model.
    """
    pruning = getattr(model, "pruning", None)
    if pruning is not None:
        pruning.detach(model)
        model.pruning = None
    return model


class UpdatePruningStep(keras.callbacks.Callback):
    """Rewrites the pruning masks before each batch for which it is time.

    As in tfmot, the masks during batch `b` (counted from 0) are those of the
    schedule's step `b + 1`. Steps are the optimiser's, so that a resumed run
    goes on where it stopped. Adds `sparsity` to the logs of each epoch.
    """

    def on_train_begin(self, logs: Any = None) -> None:
        pruning = getattr(self.model, "pruning", None)
        if pruning is None:
            raise ValueError(
                f"The model {self.model.name!r} is not being pruned. Call "
                "`tfcaps.rem.prune_low_magnitude(model, schedule)` before "
                "`fit`."
            )
        pruning.attach(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        self._first_step = int(ops.convert_to_numpy(optimizer.iterations)) + 1
        self._batches_per_step = optimizer.gradient_accumulation_steps or 1

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        step = self._first_step + batch // self._batches_per_step
        self.model.pruning.update(self.model, step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["sparsity"] = self.model.pruning.sparsity()


class _Pruning:
    """The masks of one model and when they change."""

    def __init__(
        self,
        variables: list[Any],
        schedule: Schedule,
        scope: str,
        frequency: int,
    ):
        self.variables = variables
        self.schedule = schedule
        self.scope = scope
        self.frequency = frequency
        self._optimizer: Any = None
        self._masks: list[Any] = []
        self._own_constraints = [v.constraint for v in variables]
        self._last_sparsity: float | None = None

    def attach(self, model: keras.Model) -> None:
        """Puts masks into the model's optimiser, unless they are there."""
        optimizer = model.optimizer
        if optimizer is self._optimizer:
            return
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        masks = [
            optimizer.add_variable_from_reference(
                variable, name="pruning_mask", initializer="ones"
            )
            for variable in self.variables
        ]
        for new, old in zip(masks, self._masks, strict=False):
            new.assign(ops.convert_to_numpy(old))
        self._optimizer, self._masks = optimizer, masks
        for variable, mask, own in zip(
            self.variables, masks, self._own_constraints, strict=True
        ):
            variable.constraint = _Masked(mask, own)
        _retrace(model)

    def detach(self, model: keras.Model) -> None:
        """Gives the weights their own constraints back."""
        for variable, own in zip(
            self.variables, self._own_constraints, strict=True
        ):
            variable.constraint = own
        if self._optimizer is not None:
            _retrace(model)

    def update(self, model: keras.Model, step: int) -> None:
        """Rewrites masks and weights if the schedule says so for `step`."""
        target = self._target(step)
        if target is None:
            return
        if keras.backend.backend() == "jax":
            # During `fit` the live state is outside the variables.
            model.jax_state_sync()
        weights = [ops.convert_to_numpy(v) for v in self.variables]
        masks = magnitude_masks(weights, target, scope=self.scope)
        for variable, mask, array, keep in zip(
            self.variables, self._masks, weights, masks, strict=True
        ):
            mask.assign(keep.astype(array.dtype))
            variable.assign(array * keep)

    def sparsity(self) -> float:
        """Returns the share of zeros in the masks."""
        masks = [ops.convert_to_numpy(mask) for mask in self._masks]
        kept = sum(float(mask.sum()) for mask in masks)
        return 1.0 - kept / sum(mask.size for mask in masks)

    def _target(self, step: int) -> float | None:
        """Returns the sparsity to reach now, or None if nothing changes."""
        value = self.schedule(step)
        if isinstance(value, tuple):  # tfmot: (is it time, sparsity)
            is_time, value = value
            return float(value) if bool(is_time) else None
        if (step - 1) % self.frequency:
            return None
        value = float(value)
        if value == self._last_sparsity:
            return None
        self._last_sparsity = value
        return value


def _retrace(model: keras.Model) -> None:
    """Drops a compiled training step, which keeps the constraints it saw."""
    if model.train_function is not None:
        model.make_train_function(force=True)


class _Masked(keras.constraints.Constraint):
    """Multiplies a weight with its mask, after the weight's own constraint."""

    def __init__(self, mask: Any, own: Any):
        self.mask = mask
        self.own = own

    def __call__(self, weight: Tensor) -> Tensor:
        if self.own is not None:
            weight = self.own(weight)
        return ops.multiply(weight, self.mask)
