"""Further rounds of a training, while the validation images gain by them.

In each the learning rate starts anew and falls to 0: warm restarts, as in
"SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017.
"""

from collections.abc import Callable

import keras

from training import devices
from training.batches import Batches
from training.folder import RunFolder
from training.stopping import accuracy

# Validation accuracy from which on no further round is needed.
_ENOUGH = 0.9
# Share by which a round must lower the validation loss to be followed by one.
_GAIN = 0.02


def title(name: str, number: int) -> str:
    """Returns the name of a model's round, for its back-up."""
    return f"{name}-round-{number + 1}" if number else name


def begun(name: str, folder: RunFolder, most: int) -> int:
    """Returns the number, from 0, of the round that a model is in."""
    numbers = range(1, most)
    backed_up = (folder.backup_path(title(name, k)).exists() for k in numbers)
    return sum(backed_up)


def go_on(
    model: keras.Model,
    validation: Batches,
    train: Callable[[int], None],
    most: int,
) -> int:
    """Trains a model that has been trained for a round, as long as it helps.

    There is a second round if fewer than 90 % of the validation images are
    right, and others while the last one lowered the validation loss by 2 %. The
    weights are those of the last round. Nothing is kept of what it decides, as
    a resumed training measures the same again.

    Args:
        model: Compiled, with an accuracy among its metrics.
        validation: Validation batches; without images there is one round.
        train: Trains it for another round, of this number, counted from 0.
        most: Int. Most rounds, with the first.

    Returns:
        How many rounds it has had, with the first.
    """
    if most == 1 or not len(validation.labels):
        return 1
    loss, right = _measure(model, validation)
    for number in range(1, most):
        if right >= _ENOUGH:
            return number
        if devices.process() == 0:
            print(
                f"\n{right:.1%} of the validation images are right: round "
                f"{number + 1} of at most {most} (--rounds)",
                flush=True,
            )
        train(number)
        before = loss
        loss, right = _measure(model, validation)
        if loss > (1 - _GAIN) * before:
            return number + 1
    return most


def _measure(model: keras.Model, validation: Batches) -> tuple[float, float]:
    values = model.evaluate(validation, verbose=0, return_dict=True)
    return values["loss"], accuracy(values)
