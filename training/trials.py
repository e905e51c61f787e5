"""Several starts of a training, of which the best one is trained on.

Which type of part stands for what is decided in the first epochs, and may be
decided badly: two kinds of parts share a type, and another is split. The
training loss tells, without any label of a part.
"""

import json
import math
from typing import Any

import keras
import numpy as np

from tfcaps import graphs
from tfcaps.files import write_atomically
from training import callbacks, devices
from training.backup import BackUp
from training.feeding import stream
from training.folder import RunFolder
from training.progress import progress
from training.ready import Ready

_FILE = "trials.json"
# Seeds of the starts are this far apart.
_APART = 1000
_BATCHES = 30  # by which starts are compared


class Pause(keras.callbacks.Callback):
    """Stops after so many epochs, before the schedules end.

    Args:
        epochs: Int. Epochs since the beginning of the training.
    """

    def __init__(self, epochs: int):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch + 1 == self.epochs:
            self.model.stop_training = True


def best(name: str, ready: Ready, folder: RunFolder, draw: Any) -> str:
    """Trains from several starts, and chooses the one of the lowest loss.

    The loss is that of some training images after `config.trial_epochs`, as
    narrow and as hard as the network is in the end.

    Args:
        name: Name of the model.
        ready: The model, as it is drawn by the seed of the settings.
        folder: Settings of the run, and where the losses go.
        draw: Returns other weights of the trained model, for a seed.

    Returns:
        The title of the back-up of the best start, from which to train on.
    """
    config = ready.config
    path = folder.path / _FILE
    losses = json.loads(path.read_text("utf-8")) if path.exists() else []
    model = ready.trained
    model.optimizer.build(model.trainable_variables)
    fresh = [np.array(v) for v in model.optimizer.variables]
    for number in range(len(losses), config.trials):
        print(f"\nstart {number + 1} of {config.trials}", flush=True)
        if number:
            model.set_weights(draw(config.seed + _APART * number))
            for variable, value in zip(
                model.optimizer.variables, fresh, strict=True
            ):
                variable.assign(value)
        model.fit(
            stream(ready.batches),
            epochs=config.epochs,
            verbose=progress(),
            shuffle=False,
            callbacks=[
                *callbacks.of_training(model, config, ready.batches),
                Pause(config.trial_epochs),
                BackUp(folder.backup_path(title(name, number))),
            ],
        )
        losses.append(_loss(model, ready))
        if devices.process() == 0:
            with write_atomically(path, "w") as file:
                json.dump(losses, file)
    chosen = int(np.argmin(losses))
    told = ", ".join(f"{loss:.3f}" for loss in losses)
    print(
        f"\nlosses of the starts: {told}; number {chosen + 1} is trained on",
        flush=True,
    )
    return title(name, chosen)


def _loss(model: keras.Model, ready: Ready) -> float:
    """Returns the loss of some training images, at the network's last width."""
    layer = graphs.last_routed_layer(ready.network)
    before = np.array(layer.log_width)
    layer.log_width.assign(math.log(layer.routing.width))
    ready.batches.start_epoch(0)
    count = min(_BATCHES, ready.batches.num_batches)
    model.reset_metrics()
    for index in range(count):
        values = model.test_on_batch(*ready.batches[index], return_dict=True)
    layer.log_width.assign(before)
    return float(values["loss"])


def title(name: str, number: int) -> str:
    """Returns the name of the back-up of a start."""
    return f"{name}-start-{number + 1}"
