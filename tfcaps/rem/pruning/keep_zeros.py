"""Training on of a pruned network, with the zeros that it has."""

import keras
from keras import ops

from tfcaps.rem.pruning.masks import prunable_weights
from tfcaps.rem.pruning.pruning import Pruning, begin, retrace


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
    retrace(model)
    return model


class _Zeros(Pruning):
    """Masks that never change: constants, whatever optimiser there is."""

    def attach(self, model: keras.Model) -> None:
        """Leaves the optimiser as it is."""
