"""The masks of a model that is being pruned, whatever the strategy.

A mask is a variable of the optimiser and acts as a constraint of its weight:
Keras applies constraints after every update, on every backend and replica, so
the model itself stays as it was and stripping is removing the constraints. All
strategies are driven by `UpdatePruningStep` and end with `strip_pruning`.
"""

import abc
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.finite import check_weights
from tfcaps.graphs import forget_zeros, keep_pruned, note_zeros
from tfcaps.ops import Array, Tensor
from tfcaps.rem.pruning.masks import (
    check_scope,
    magnitude_masks,
    prunable_weights,
)

Schedule = Callable[[int], Any]

# What schedules of tfmot and Keras call the sparsity at their end.
_GOALS = ("final_sparsity", "target_sparsity", "end_learning_rate")


def prune_low_magnitude(
    model: keras.Model, pruning_schedule: Schedule, *, scope: str = "tensor"
) -> keras.Model:
    """Prepares a model for pruning during `fit`.

    Kernels and transformations are pruned, biases never. Train with the
    callback `UpdatePruningStep()`, which rewrites the masks when the schedule
    says so; then call `strip_pruning`. The masks live in the optimiser: compile
    the model before or after this call, and before restoring a checkpoint that
    was written during pruning.

    Args:
        model: A built `keras.Model`. It is changed in place, and returned.
        pruning_schedule: tfmot's `PolynomialDecay` or `ConstantSparsity`, a
            `keras.optimizers.schedules` object, or any function from the step
            (counted from 1) to the sparsity. One that does not decide when to
            prune, as tfmot's do, is followed at every step.
        scope: `"tensor"` prunes the same share of each weight, `"global"`
            compares magnitudes across weights. Defaults to `"tensor"`.

    Raises:
        ValueError: If an argument is out of range, or the model has no weight
            to prune or is pruned already.

    References:
        - Zhu, Gupta, 2017, https://arxiv.org/abs/1710.01878
    """
    pruning = _LowMagnitude(pruning_schedule, prunable_weights(model))
    pruning.scope = check_scope(scope)
    return begin(model, pruning)


def keep_zeros(model: keras.Model) -> keras.Model:
    """Keeps the zeros of a pruned network while it is trained on.

    From now on, each weight that is 0 stays 0 during `fit`, of the kernels and
    transformations that pruning touches; the others and the biases are trained.
    Without it training on fills the zeros, in the first step.

    Compile the model before or after. No callback is needed;
    `UpdatePruningStep()` adds `sparsity` to the logs. `strip_pruning` ends it.
    Files do not hold the masks: call it again after loading one.

    Args:
        model: A built `keras.Model` that was pruned, by any strategy. It is
            changed in place, and returned.

    Raises:
        ValueError: If no such weight is 0, or the model is being pruned.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.layers[0].set_weights([np.array([[0.0], [1.0]]), np.zeros(1)])
    >>> keep_zeros(model).compile("adam", "mse")
    >>> history = model.fit(np.ones((4, 2)), np.zeros((4, 1)), verbose=0)
    >>> float(model.layers[0].kernel[0, 0]) == 0.0
    True
    """
    pruning = _Zeros(prunable_weights(model))
    for weight in pruning._weights:
        array = ops.convert_to_numpy(weight.variable)
        weight.mask = (array != 0).astype(array.dtype)
    if not pruning.sparsity():
        raise ValueError(
            f"The model {model.name!r} must be pruned before. Received: one "
            "without a zero in its kernels and transformations."
        )
    begin(model, pruning)
    for weight in pruning._weights:
        weight.variable.constraint = weight
    _retrace(model)
    return model


def strip_pruning(model: keras.Model) -> keras.Model:
    """Ends pruning: the zeros stay, the masks no longer act.

    The optimiser drops its masks and keeps its moments, so that the model can
    be saved, loaded and trained further. Training on fills the zeros, unless
    `keep_zeros` is called before; functions that measure the model warn where
    that has happened, unless it comes from a file.

    Warns if a schedule of tfmot or Keras has not reached its final sparsity,
    and if pruned weights had other values again, as after
    `restore_best_weights` or with averages (`use_ema`); these are pruned again.

    Args:
        model: A model given to one of the strategies. It is changed in place,
            and returned; one that is not being pruned stays as it is.
    """
    pruning = getattr(model, "pruning", None)
    if pruning is None:
        return model
    keep_pruned(model)
    reached = pruning.reached()
    pruning.detach(model)
    model.pruning = None
    note_zeros(pruning.variables)
    if pruning.goal > reached + 0.01:
        warnings.warn(
            f"{reached:.1%} of the {pruning.counted} are pruned, not the "
            f"{pruning.goal:.1%} of the schedule. Train until its end, with "
            "the callback `tfcaps.rem.UpdatePruningStep()`.",
            stacklevel=2,
        )
    return model


class UpdatePruningStep(keras.callbacks.Callback):
    """Lets a strategy rewrite its masks during `fit`.

    Strategies that depend on the step do so before each batch, those that
    depend on the loss after each epoch. As in tfmot, the masks during batch `b`
    (counted from 0) are those of the schedule's step `b + 1`. Steps are the
    optimiser's, so a resumed run continues where it stopped. Adds `sparsity` to
    the logs of each epoch.

    A layer that is frozen (`trainable=False`) before a `fit` keeps its masks
    and weights. `BackupAndRestore` may stand before or after this callback.

    In a training loop of your own, call it as tfmot's guide says:
    `set_model(model)` of a model that has an optimiser, `on_train_begin()`,
    before each step `on_train_batch_begin(batch)`, and `on_epoch_end(epoch)`.
    It counts the steps itself.
    """

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        # Before another callback loads an optimiser that had the masks.
        pruning = getattr(model, "pruning", None)
        if pruning and getattr(model, "optimizer", None) is not None:
            pruning.attach(model)

    def on_train_begin(self, logs: Any = None) -> None:
        if self.model is None:
            raise ValueError(
                "The model is not known. Call `set_model(model)` before "
                "`on_train_begin`, or give the callback to `fit`."
            )
        pruning = getattr(self.model, "pruning", None)
        if pruning is None:
            raise ValueError(
                f"The model {self.model.name!r} is not being pruned. Call "
                "`tfcaps.rem.prune_low_magnitude(model, schedule)`, or begin "
                "another strategy, before `fit`; `tfcaps.rem.keep_zeros(model)`"
                " to train on with the zeros of an earlier one."
            )
        if getattr(self.model, "optimizer", None) is None:
            raise ValueError(
                f"The model {self.model.name!r} has no optimiser, in which the "
                "masks live. Compile it, or set `model.optimizer` in a loop of "
                "your own, before `on_train_begin`."
            )
        pruning.attach(self.model)
        self._count_from_here()

    def on_epoch_begin(self, epoch: int = -1, logs: Any = None) -> None:
        if epoch >= 0:
            self._count_from_here()

    def on_train_batch_begin(self, batch: int = -1, logs: Any = None) -> None:
        step = self._first_step + self._batches // self._batches_per_step
        self._batches += self.model.steps_per_execution or 1
        self.model.pruning.begin_step(self.model, step)

    def on_epoch_end(
        self, epoch: int = -1, logs: Any = None, batch: int | None = None
    ) -> None:
        # `batch` is what tfmot calls the first argument.
        self.model.pruning.end_epoch(self.model)
        if logs is not None:
            _sync(self.model)
            logs["sparsity"] = self.model.pruning.sparsity()

    def _count_from_here(self) -> None:
        optimizer = self.model.optimizer
        self._first_step = int(ops.convert_to_numpy(optimizer.iterations)) + 1
        self._batches_per_step = optimizer.gradient_accumulation_steps or 1
        self._batches = 0


def begin(model: keras.Model, pruning: "Pruning") -> keras.Model:
    """Makes `pruning` the strategy of a model that has none."""
    if getattr(model, "pruning", None) is not None:
        raise ValueError(
            f"The model {model.name!r} is being pruned already. Call "
            "`strip_pruning` first."
        )
    forget_zeros(pruning.variables)
    model.pruning = pruning
    if getattr(model, "optimizer", None) is not None:
        pruning.attach(model)
    return model


class Pruning:
    """The masks of one model. A strategy overrides one of the two hooks.

    `fills` is what each of the variables is where it is pruned, else 0.
    """

    counted = "weights"  # what `goal` and `reached` are shares of
    goal = 0.0  # the sparsity at the end, as far as that is known

    def __init__(self, variables: Sequence[Any], fills: Sequence[float] = ()):
        self.variables = list(variables)
        pairs = itertools.zip_longest(variables, fills, fillvalue=0.0)
        self._weights = [_Masked(*pair) for pair in pairs]
        self._optimizer: Any = None

    def begin_step(self, model: keras.Model, step: int) -> None:
        """Is called before each step, counted from 1."""

    def end_epoch(self, model: keras.Model) -> None:
        """Is called after each epoch."""

    def attach(self, model: keras.Model) -> None:
        """Puts masks into the model's optimiser, unless they are there."""
        if (optimizer := model.optimizer) is self._optimizer:
            return
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        for weight in self._weights:
            mask = _inner(optimizer).add_variable_from_reference(
                weight.variable, name="pruning_mask", initializer="ones"
            )
            mask.assign(weight.kept().astype(mask.dtype))
            weight.mask = mask
            weight.variable.constraint = weight
        self._optimizer = optimizer
        _retrace(model)

    def detach(self, model: keras.Model) -> None:
        """Gives the weights their own constraints back."""
        for weight in self._weights:
            weight.variable.constraint = weight.own
            if self._optimizer is not None:
                _inner(self._optimizer)._untrack_variable(weight.mask)
        self._optimizer = None
        _retrace(model)

    def weights(self, model: keras.Model) -> list[Array]:
        """Returns the weights that can be pruned as they are now."""
        _sync(model)
        check_weights(self.variables)
        return [ops.convert_to_numpy(v) for v in self.variables]

    def masks(self) -> list[Array]:
        """Returns the masks, True where a weight is kept."""
        return [weight.kept() for weight in self._weights]

    def prune(self, weights: Sequence[Array], masks: Sequence[Array]) -> None:
        """Sets the masks, and stores `weights`, but of what is frozen."""
        for weight, array, keep in zip(
            self._weights, weights, masks, strict=True
        ):
            if weight.variable.trainable:
                weight.mask.assign(keep.astype(array.dtype))
                left = np.where(keep, array, weight.fill)
                weight.variable.assign(left.astype(array.dtype))

    def trainable(self) -> list[int]:
        """Returns which of `variables` are not frozen."""
        return [k for k, v in enumerate(self.variables) if v.trainable]

    def reached(self) -> float:
        """Returns the share of what is not frozen, to compare with `goal`."""
        live = [self._weights[k] for k in self.trainable()]
        return _share(live) if live else self.goal

    def sparsity(self) -> float:
        """Returns the share of the weights that are pruned now."""
        return _share(self._weights)


class _Masked(keras.constraints.Constraint):
    """Fills a weight where it is masked, after the weight's own constraint."""

    def __init__(self, variable: Any, fill: float):
        self.variable = variable
        self.own = variable.constraint
        self.mask: Any = np.ones(variable.shape, bool)  # or a variable
        self.fill = fill

    def __call__(self, weight: Tensor) -> Tensor:
        if self.own is not None:
            weight = self.own(weight)
        masked = ops.multiply(weight, self.mask)
        if self.fill:
            masked = masked + self.fill * (1.0 - self.mask)
        return masked

    def kept(self) -> Array:
        """Returns the mask, True where the weight is kept."""
        return ops.convert_to_numpy(self.mask) != 0

    def pruned(self) -> Array:
        """Returns where the weight is masked, and has not changed since."""
        array = ops.convert_to_numpy(self.variable)
        return np.asarray(~self.kept() & (array == self.fill))

    def prune_again(self) -> tuple[int, int]:
        """Prunes again what is not frozen; returns how much, and of what."""
        masked = ~self.kept() & self.variable.trainable
        changed = int(np.sum(masked & ~self.pruned()))
        if changed:
            array = ops.convert_to_numpy(self.variable)
            again = np.where(masked, self.fill, array)
            self.variable.assign(again.astype(array.dtype))
        return changed, int(np.sum(masked))


class _Zeros(Pruning):
    """Masks that never change: constants, whatever optimiser there is."""

    def attach(self, model: keras.Model) -> None:
        """Leaves the optimiser as it is."""


class Scheduled(Pruning, abc.ABC):
    """Rewrites the masks when a schedule says so.

    That is a function from the step, counted from 1, to the share that is
    pruned, or as tfmot's to whether it is time and that share.
    """

    def __init__(self, schedule: Schedule, *weights: Sequence[Any]):
        if not callable(schedule):
            raise ValueError(
                "`pruning_schedule` must be a function from the step to the "
                "sparsity, such as tfmot's PolynomialDecay. Received: "
                f"pruning_schedule={schedule!r}."
            )
        super().__init__(*weights)
        self.schedule = schedule
        self._last_sparsity: float | None = None
        for name in _GOALS:
            self.goal = float(getattr(schedule, name, None) or self.goal)

    @abc.abstractmethod
    def masks_for(self, weights: Sequence[Array], target: float) -> list[Array]:
        """Returns the masks with which a share of `target` is pruned."""

    def begin_step(self, model: keras.Model, step: int) -> None:
        steps = range(step, step + (model.steps_per_execution or 1))
        due = [t for t in map(self._target, steps) if t is not None]
        if due and self.trainable():
            weights = self.weights(model)
            self.prune(weights, self.masks_for(weights, due[-1]))

    def _target(self, step: int) -> float | None:
        """Returns the sparsity to reach now, or None if nothing changes."""
        value = self.schedule(step)
        if isinstance(value, tuple):  # tfmot: (is it time, sparsity)
            is_time, value = value
        else:
            is_time = float(value) != self._last_sparsity
            self._last_sparsity = float(value)
        return float(value) if bool(is_time) else None


class _LowMagnitude(Scheduled):
    """Prunes the smallest magnitudes of what is not frozen."""

    scope = "tensor"

    def masks_for(self, weights: Sequence[Array], target: float) -> list[Array]:
        masks, live = self.masks(), self.trainable()
        chosen = [weights[k] for k in live]
        new = magnitude_masks(chosen, target, scope=self.scope)
        for k, mask in zip(live, new, strict=True):
            masks[k] = mask
        return masks


def _share(weights: Sequence[_Masked]) -> float:
    pruned = [weight.pruned() for weight in weights]
    return sum(int(p.sum()) for p in pruned) / sum(p.size for p in pruned)


def _inner(optimizer: Any) -> Any:
    """Returns what JAX runs within an optimiser that scales losses."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _sync(model: keras.Model) -> None:
    """Gives variables their newest values."""
    if keras.backend.backend() == "jax":
        # During `fit` the live state is outside the variables.
        model.jax_state_sync()


def _retrace(model: keras.Model) -> None:
    """Drops a compiled training step, which keeps the constraints it saw."""
    if model.train_function is not None:
        model.make_train_function(force=True)
