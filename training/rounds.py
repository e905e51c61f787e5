"""Further rounds of a training, while the validation images gain by them."""

import math
from collections.abc import Callable

import keras

from training import devices
from training.batches import Batches

# Validation accuracy from which on no further round is needed.
_ENOUGH = 0.9
# Share by which a round must lower the validation loss to be followed by one.
_GAIN = 0.02


def further_rounds(
    model: keras.Model,
    validation: Batches,
    train_round: Callable[[int], None],
    most: int,
) -> int:
    """Trains a model that has been trained for a round, as long as it helps.

    In each the learning rate starts anew and falls to 0: warm restarts, as in
    "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017. There is
    a second round if fewer than 90 % of the validation images are right, and
    others while the last one lowered the validation loss by 2 %. The weights
    are those of the last round. Nothing is kept of what it decides, as a
    resumed training measures the same again.

    Args:
        model: Compiled, with an accuracy among its metrics.
        validation: Validation batches; without images there is one round.
        train_round: Trains it for another round of this number, from 0.
        most: Int. Most rounds, with the first.

    Returns:
        How many rounds it has had, with the first.
    """
    before = math.inf
    for number in range(1, most):
        if not len(validation.labels):
            return number
        values = model.evaluate(validation, verbose=0, return_dict=True)
        loss, right = values["loss"], accuracy(values)
        has_gained = loss <= (1 - _GAIN) * before
        if not has_gained or right >= _ENOUGH:
            return number
        if devices.process() == 0:
            print(
                f"\n{right:.1%} of the validation images are right: round "
                f"{number + 1} of at most {most} (--rounds)",
                flush=True,
            )
        train_round(number)
        before = loss
    return most


def backup_name(name: str, number: int) -> str:
    """Returns the name of the back-up of a model's round, counted from 0."""
    return f"{name}-round-{number + 1}" if number else name


def accuracy(values: dict[str, float]) -> float:
    """Returns the accuracy among the metrics of a model."""
    ends = ("accuracy", "both_found")
    return next(v for name, v in values.items() if name.endswith(ends))
