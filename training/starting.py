"""Begins REM with what another run has trained: `--start-from`."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import keras

from cli import UserError
from tfcaps import rem
from training.configs import Config
from training.datasets import Data
from training.folder import RunFolder


def settings(run: str) -> Config:
    """Returns the settings of a run, for one that begins where it ended.

    Raises:
        UserError: If there is no such run, or it is not finished.
    """
    return dataclasses.replace(
        _finished(run).config,
        rem=False,
        baseline=True,
        rounds=1,
        dense_head=False,
        start_from=None,
        warm_start=True,
    )


def network(config: Config) -> keras.Model | None:
    """Returns the network that another run ended with, or `None` without one.

    Raises:
        UserError: If there is no such run, or it is not finished.
    """
    if config.start_from is None:
        return None
    run = _finished(config.start_from)
    return run.load_model(run.config.model_names[-1])


def take_baseline(folder: RunFolder, data: Data) -> keras.Model:
    """Makes the network of another run, and its curves, this run's baseline.

    Raises:
        UserError: If there is no such network, or it is for other images.
    """
    run = _finished(str(folder.config.start_from))
    name = run.config.model_names[-1]
    model = run.load_model(name)
    check(model, data, run.path)
    for row in run.read_metrics(name):
        folder.append_metrics({**row, "model": "baseline"})
    trees = folder.path / "epochs"
    trees.mkdir(exist_ok=True)
    for path in (run.path / "epochs").glob(f"{name}-*.npz"):
        epoch = path.stem.removeprefix(f"{name}-")
        shutil.copyfile(path, trees / f"baseline-{epoch}.npz")
    # The last file: where it is, everything is.
    folder.save_model("baseline", model)
    return model


def check(model: keras.Model, data: Data, run: Path) -> None:
    """Raises `UserError` unless a network is for such images and classes."""
    network = rem.encoder(model)
    has = (*network.inputs[0].shape[1:], network.output_shape[-1])
    needed = (*data.image_shape, data.num_classes)
    if has != needed:
        raise UserError(
            f"the network of {run} takes images of {_as_text(*has)}; those of "
            f"{data.name} are {_as_text(*needed)}. Start from a run on images "
            "like these, or leave out --dataset and --resize."
        )


def begin_with(
    model: keras.Model, start: keras.Model, config: Config
) -> keras.Model:
    """Returns a network with the weights of a trained one.

    If that one is smaller, since its filters or types of capsules were pruned,
    it is that one itself, in float32.

    Args:
        model: The network of the settings.
        start: The trained one.
        config: The settings.

    Raises:
        UserError: If it is another network.
    """
    if _shapes(model) == _shapes(start):
        model.set_weights(start.get_weights())
        return model
    if config.start_from is None or not _is_same(config):
        raise UserError(
            f"a trained {start.name} of {start.count_params():,} parameters "
            f"does not fit {model.name} of {model.count_params():,}; leave out "
            "--model, --routing and --decoder, which are then those of the run "
            "to start from."
        )
    return start


def _finished(run: str) -> RunFolder:
    folder = RunFolder.open(Path(run))
    path = folder.model_path(folder.config.model_names[-1])
    if not path.is_file():
        raise UserError(
            f"the run in {run} has not trained its network yet: no {path.name}."
            f" Go on with it: python training/run.py --resume --out {run}"
        )
    return folder


def _is_same(config: Config) -> bool:
    """Tells whether another run's network is this one, made smaller or not."""
    run = _finished(str(config.start_from)).config
    names = ("model", "routing", "decoder")
    return all(getattr(run, name) == getattr(config, name) for name in names)


def _shapes(model: keras.Model) -> list[Any]:
    return [tuple(weight.shape) for weight in model.weights]


def _as_text(rows: int, columns: int, channels: int, classes: int) -> str:
    return f"{rows}x{columns}x{channels} in {classes} classes"
