"""Rebuilds a network between epochs, while structured pruning empties it.

A masked network takes as long to train as before. So its training is cut into
stages at the ends of epochs. At each cut `rem.compact` makes the smaller
network, and pruning goes on with that. Each stage has a back-up of its own,
with its network beside it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfcaps import rem
from tfcaps.files import put_in_place
from training import devices
from training.backup import BackUp
from training.configs import Config
from training.folder import RunFolder, read_model
from training.moments import carry_on
from training.pruning import structured
from training.pruning.polynomial import polynomial_schedule, update_steps
from training.ready import Ready
from training.stopping import StopOnValidation

# The only model that is pruned.
_NAME = "rem"
# A network is rebuilt when so much of what it cost the last time is gone, and
# when nothing more will leave.
_GONE = 1 / 3
# And if that saves so many multiply-adds of forward passes in the epochs to
# come, ten seconds of a CPU core: about what it takes to build a network.
_WORTH = 3e11
_NETWORK = "network.keras"


class Pause(keras.callbacks.Callback):
    """Stops after so many epochs, to go on with a smaller network.

    It stands behind what does more when a training ends, and before `BackUp`.

    Args:
        epochs: Int. Epochs since the beginning of the training.
    """

    def __init__(self, epochs: int):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch + 1 == self.epochs:
            self.model.stop_training = True


def train(
    ready: Ready,
    folder: RunFolder,
    epochs: int,
    stops: Sequence[StopOnValidation],
    compiled: Callable[[keras.Model], Ready],
    fit: Callable[[Ready, int, str, int | None], None],
) -> Ready:
    """Trains the REM model in stages, as far as it has not been done.

    Args:
        ready: The network to begin with, which is being pruned.
        folder: Settings of the run, and where its back-ups go.
        epochs: Int. How many epochs to train.
        stops: What may end the training before.
        compiled: Compiles a smaller network, to be trained.
        fit: Trains up to an epoch, with a name for the back-up; with a number
            as the last argument only up to that epoch, and pruning goes on.

    Returns:
        What was trained in the last stage, no longer being pruned.
    """
    config, original = ready.config, ready.network
    steps, whole = ready.batches.num_batches, _cost(original)
    found = cuts(config, steps, whole)

    def smaller(network: keras.Model, begun: int) -> Ready:
        now = compiled(network)._replace(original=original)
        if begun < last_update(config, steps):
            structured.begin(
                now.trained, config, now.data, now.batches, original
            )
        return now

    if begun := begun_at(_NAME, folder):
        ready = smaller(_read_network(folder, begun), begun)
    while True:
        backup = title(_NAME, begun)
        done = BackUp(folder.backup_path(backup)).epochs
        end = end_of_stage(begun, done, found, epochs)
        fit(ready, epochs, backup, end if end < epochs else None)
        epochs = min((stop.epochs(epochs) for stop in stops), default=epochs)
        if end >= epochs:
            rem.strip_pruning(ready.trained)
            return ready
        # Layers that draw numbers draw the same in a training that was stopped.
        keras.utils.set_random_seed(config.seed)
        before, begun = ready, end
        ready = smaller(rem.compact(before.model), begun)
        carry_on(before.trained, ready.trained, before.model, ready.model)
        _write_stage(folder, ready, begun)
        if devices.process() == 0:
            print(
                f"rebuilt: {_cost(ready.network) / 1e6:.1f} of "
                f"{whole / 1e6:.1f} million multiply-adds an image",
                flush=True,
            )


def last_update(config: Config, steps_per_epoch: int) -> int:
    """Returns after how many epochs nothing more leaves."""
    _, end, _ = update_steps(config, steps_per_epoch)
    return math.ceil(end / steps_per_epoch)


def cuts(config: Config, steps_per_epoch: int, per_image: float) -> list[int]:
    """Returns the numbers of epochs after which a network is rebuilt.

    They follow from the schedule, so a resumed training has the same.

    Args:
        config: Settings of the run.
        steps_per_epoch: Int. Steps of an epoch.
        per_image: Multiply-adds of the network before it is pruned.
    """
    schedule = polynomial_schedule(config, steps_per_epoch)
    last = last_update(config, steps_per_epoch)
    per_epoch = per_image * steps_per_epoch * config.batch_size
    found, cost = [], 1.0
    for done in range(1, min(last, config.epochs - 1) + 1):
        left = 1.0 - float(schedule(done * steps_per_epoch)[1])
        saved = (cost - left) * per_epoch * (config.epochs - done)
        is_smaller = left <= (1.0 - _GONE) * cost or done == last
        if is_smaller and saved >= _WORTH:
            found.append(done)
            cost = left
    return found


def end_of_stage(begun: int, done: int, found: list[int], epochs: int) -> int:
    """Returns the epoch at the end of a stage.

    Args:
        begun: Int. The epoch at its beginning.
        done: Int. Epochs that have been trained. More than to the next cut are
            those of a run that was begun before networks were rebuilt.
        found: What `cuts` returned.
        epochs: Int. All epochs.
    """
    later = [cut for cut in found if cut > begun]
    if not later:
        return epochs
    return min(next((cut for cut in later if cut >= done), done), epochs)


def title(name: str, begun: int) -> str:
    """Returns the name of a stage that begins at an epoch, for its back-up."""
    return f"{name}-from-{begun}" if begun else name


def begun_at(name: str, folder: RunFolder) -> int:
    """Returns the epoch at which the stage begins that a training is in."""
    start = folder.backup_path(title(name, 1)).name.removesuffix("1")
    found = [
        int(path.name.removeprefix(start))
        for path in folder.path.glob(f"{start}*")
        if BackUp(path).epochs
    ]
    return max(found, default=0)


def _cost(network: keras.Model) -> int:
    """Returns the multiply-adds of a network for one image, no decoder's."""
    return rem.multiply_adds(rem.encoder(network)).total


def _read_network(folder: RunFolder, begun: int) -> keras.Model:
    """Returns the network of a stage that has begun."""
    return read_model(folder.backup_path(title(_NAME, begun)) / _NETWORK)


def _write_stage(folder: RunFolder, ready: Ready, begun: int) -> None:
    """Writes the network of a stage, and a back-up of its beginning.

    The back-up appears last: where it is, the stage has begun.
    """
    if devices.process() == 0:
        path = folder.backup_path(title(_NAME, begun))
        path.mkdir(exist_ok=True)
        staged = path / f".{_NETWORK}"
        with devices.alone():
            ready.model.save(staged)
        put_in_place(staged, path / _NETWORK)
        BackUp(path).write(ready.trained, begun)
    devices.wait()
