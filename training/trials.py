"""Several starts of a training, of which the best one is trained on.

Which type of part stands for what is decided in the first epochs, and may be
decided badly: then types still move from class to class, and the training loss
stays high. Both tell without any label of a part.
"""

import json
from typing import Any

import numpy as np

from tfcaps.files import write_atomically
from training import callbacks, devices
from training.backup import BackUp
from training.feeding import stream
from training.folder import RunFolder
from training.progress import progress
from training.ready import Ready
from training.rebuilding import Pause

_FILE = "trials.json"
# Seeds of the starts are this far apart.
_APART = 1000


def best(name: str, ready: Ready, folder: RunFolder, draw: Any) -> str:
    """Trains from starts until one has settled, at most `config.trials`.

    A start has settled if after `config.trial_epochs` no type of part moved. If
    none has, the one with the lowest training loss is chosen.

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
    starts = json.loads(path.read_text("utf-8")) if path.exists() else []
    model = ready.trained
    model.optimizer.build(model.trainable_variables)
    fresh = [np.array(v) for v in model.optimizer.variables]
    for number in range(len(starts), config.trials):
        if any(start["settled"] for start in starts):
            break
        print(f"\nstart {number + 1} of at most {config.trials}", flush=True)
        if number:
            model.set_weights(draw(config.seed + _APART * number))
            for variable, value in zip(
                model.optimizer.variables, fresh, strict=True
            ):
                variable.assign(value)
        every = callbacks.of_training(model, config, ready.batches)
        done = model.fit(
            stream(ready.batches),
            epochs=config.epochs,
            verbose=progress(),
            shuffle=False,
            callbacks=[
                *every,
                Pause(config.trial_epochs),
                BackUp(folder.backup_path(title(name, number))),
            ],
        )
        moved = [getattr(each, "moved", []) for each in every]
        starts.append(
            {
                "loss": float(done.history["loss"][-1]),
                "settled": any(each and not each[-1] for each in moved),
            }
        )
        if devices.process() == 0:
            with write_atomically(path, "w") as file:
                json.dump(starts, file)
    chosen = min(
        range(len(starts)),
        key=lambda k: (not starts[k]["settled"], starts[k]["loss"]),
    )
    told = ", ".join(
        f"{start['loss']:.3f}" + " (settled)" * start["settled"]
        for start in starts
    )
    print(f"\nstarts: {told}; number {chosen + 1} is trained on", flush=True)
    return title(name, chosen)


def title(name: str, number: int) -> str:
    """Returns the name of the back-up of a start."""
    return f"{name}-start-{number + 1}"
