"""Sensitivity-gated weight decay, the part of REM that lowers the entropy."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, check_that
from tfcaps.rem.pruning.masks import DEFAULT_TARGETS, check_targets, is_target

# Optimisers that hold others, which make the updates. Keras 3.12 has only one.
_WRAPPERS = tuple(
    getattr(keras.optimizers, name)
    for name in ("LossScaleOptimizer", "MultiOptimizer")
    if hasattr(keras.optimizers, name)
)


class _SensitivityDecay:
    """Shrinks insensitive weights before the optimiser's own update."""

    def __init__(
        self,
        *args: Any,
        rate: Any = 0.0,
        targets: str | Sequence[str] = DEFAULT_TARGETS,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        if isinstance(rate, dict):
            rate = keras.saving.deserialize_keras_object(rate)
        is_share = isinstance(rate, (float, int)) and 0.0 <= rate <= 1.0
        fits = callable(rate) or is_share
        check_that(fits, "be in [0, 1], or a schedule", rate=rate)
        self.rate = rate
        self.targets = check_targets(targets)

    def build(self, variables: list[Any]) -> None:
        super().build(variables)  # type: ignore[misc]
        self._decayed = [is_target(v, self.targets) for v in variables]

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        optimizer: Any = self
        if self._decayed[optimizer._get_variable_index(variable)]:
            rate = self.rate
            if callable(rate):
                rate = rate(optimizer.iterations)
            gate = ops.relu(1.0 - ops.abs(gradient))
            shrinkage = ops.cast(rate, gradient.dtype) * gate
            optimizer.assign_sub(variable, ops.multiply(shrinkage, variable))
        super().update_step(  # type: ignore[misc]
            gradient, variable, learning_rate
        )

    def get_config(self) -> dict[str, Any]:
        rate = self.rate
        if callable(rate):
            rate = keras.saving.serialize_keras_object(rate)
        config = {"rate": rate, "targets": list(self.targets)}
        return {**super().get_config(), **config}  # type: ignore[misc]


def sensitivity_decay(
    optimizer: keras.optimizers.Optimizer,
    rate: Any,
    *,
    targets: str | Sequence[str] = DEFAULT_TARGETS,
) -> keras.optimizers.Optimizer:
    """Adds sensitivity-gated weight decay to an optimiser.

    Before each of the optimiser's updates every target weight shrinks by

        w = w - rate * w * max(0, 1 - |dL/dw|)

    so that only weights on which the loss hardly depends go to zero. The rate
    is not multiplied by the learning rate. The gradient is that of the whole
    batch, summed over replicas, after clipping if the optimiser clips.

    Args:
        optimizer: A Keras optimiser that has not been used yet.
        rate: Float in [0, 1], or a `keras.optimizers.schedules` object of the
            step.
        targets: `"transformations"`, `"kernels"`, or both, which is the
            default. Biases never decay, as they do in the paper's code.

    Returns:
        A new optimiser with the same settings. It is saved and loaded with the
        model. For an optimiser class that is not one of Keras' own, call this
        function once before loading.

    Raises:
        ValueError: If the optimiser has been used, or an argument is out of
            range.

    Example:

    >>> adam = sensitivity_decay(keras.optimizers.Adam(1e-3), rate=1e-4)
    >>> isinstance(adam, keras.optimizers.Adam)
    True

    References:
        - Tartaglione et al., 2022 (LOBSTER),
          https://arxiv.org/abs/2011.09905
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            "`optimizer` must be an object such as `keras.optimizers.Adam()`. "
            f"Received: optimizer={optimizer!r}."
        )
    if isinstance(optimizer, _WRAPPERS):
        raise ValueError(
            f"Add the decay to the optimiser inside {type(optimizer).__name__}."
        )
    if optimizer.built:
        raise ValueError(
            f"The optimiser {optimizer.name!r} has been used. Add the decay "
            "before the model is trained."
        )
    config = optimizer.get_config()
    return _with_decay(type(optimizer)).from_config(
        {**config, "rate": rate, "targets": targets}
    )


# Optimiser class -> the same with the decay.
_WITH_DECAY: dict[Any, Any] = {}


def _with_decay(base: Any) -> Any:
    """Returns `base` with the decay, registered so that it can be loaded."""
    if base not in _WITH_DECAY:
        name = f"SensitivityDecay{base.__name__}"
        cls = type(name, (_SensitivityDecay, base), {"__module__": __name__})
        register = keras.saving.register_keras_serializable(package="tfcaps")
        _WITH_DECAY[base] = register(cls)
    return _WITH_DECAY[base]


# Those of Keras can be loaded without further ado.
for _, _base in inspect.getmembers(keras.optimizers, inspect.isclass):
    if issubclass(_base, keras.optimizers.Optimizer) and not (
        _base is keras.optimizers.Optimizer or issubclass(_base, _WRAPPERS)
    ):
        _with_decay(_base)
