"""Begins a run: its settings and folder, and the network it begins with."""

import argparse
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from cli import UserError
from tfcaps import rem
from training import defaults, networks, pruning, recipes
from training.configs import DEFAULT_DATASET, LOWEST, SETTINGS, Config
from training.datasets import Data
from training.folder import RunFolder
from training.names import as_text

# Flags of a run that are no settings of it.
_NOT_KEPT = ("bare", "force")


def open_folder(options: argparse.Namespace) -> RunFolder:
    """Returns the folder of a new run, or that of the run to resume."""
    given = {
        name: value
        for name in SETTINGS
        if (value := getattr(options, name, None)) is not None
    }
    if options.resume:
        return _resumed(options, given)
    config = _begun(options, given)
    flags = {
        name: f"--{'no-' * (value is False)}{name.replace('_', '-')}"
        for name, value in given.items()
    }
    if unused := [flags[name] for name in given if not config.uses(name)]:
        why = "need --rem, as only REM uses them."
        if config.rem:
            of = f"--model {config.model} with --pruning {config.pruning}"
            why = f"would change nothing: {of} does not use them."
        raise UserError(f"{', '.join(unused)} {why}")
    if config.start_from and not (config.baseline and config.warm_start):
        flag = flags["warm_start" if config.baseline else "baseline"]
        raise UserError(
            f"{flag} contradicts --start-from, whose network is the baseline "
            "that REM begins with."
        )
    return RunFolder(options.out or next(free_paths(config)), config)


def _resumed(options: argparse.Namespace, given: dict[str, Any]) -> RunFolder:
    if options.recipe is not None:
        raise UserError("--resume reads the settings; leave out --recipe.")
    folder = RunFolder.resume(options.out)
    for name, value in given.items():
        kept = getattr(folder.config, name)
        if as_text(str(kept)) != as_text(str(value)):
            raise UserError(
                f"the run in {options.out} has {name}={kept!r}, not {value!r}; "
                "leave out what --resume reads from it."
            )
    return folder


def _begun(options: argparse.Namespace, given: dict[str, Any]) -> Config:
    """Returns the settings of a new run."""
    if options.start_from is not None:
        config = dataclasses.replace(
            _finished(options.start_from).config,
            rem=False,
            baseline=True,
            warm_start=True,
        )
    else:
        config = defaults.load(
            given.get("dataset", DEFAULT_DATASET),
            given.get("model"),
            given.get("backbone"),
        )
    if options.recipe == "paper":
        final_sparsity = config.final_sparsity
        # As published, REM begins as its baseline did, and is trained as long.
        config = dataclasses.replace(
            recipes.applied("paper", config),
            rem_epochs=None,
            warm_start=options.start_from is not None,
        )
        if given.get("pruning", config.pruning) != config.pruning:
            # No limit of the iterative pruning is a target of the others.
            config = dataclasses.replace(config, final_sparsity=final_sparsity)
    if options.start_from is not None and "epochs" in given:
        # Nothing else is trained.
        config = dataclasses.replace(config, rem_epochs=None)
    return dataclasses.replace(config, **given)


def free_paths(config: Config) -> Iterator[Path]:
    """Yields folders that a run without `--out` may have, none of them made."""
    stem = as_text(Path(config.dataset).stem) + ("-rem" if config.rem else "")
    names = itertools.chain([stem], (f"{stem}-{k}" for k in itertools.count(2)))
    paths = map(Path("runs").joinpath, names)
    return (path for path in paths if not path.exists())


def how_to_resume(options: argparse.Namespace, path: Path) -> str:
    """Returns the command that goes on with a run."""
    backend = keras.backend.backend()
    words = [f"KERAS_BACKEND={backend}"] if backend != "tensorflow" else []
    words += ["python training/run.py --resume --out", str(path)]
    words += [f"--{name}" for name in _NOT_KEPT if getattr(options, name)]
    return " ".join(words)


def check_fit(data: Data, config: Config) -> keras.Model:
    """Builds the network once, before anything is written, and returns it."""
    model = networks.build_for(data, config, decoder=config.decoder != "none")
    if (start := network(config)) is not None:
        model = begin_with(networks.build_for(data, config), start)
    try:
        rem.quantize_couplings(model, config.fixed_levels, mode=config.mode)
    except ValueError as error:
        raise UserError(f"--levels does not fit: {error}") from error
    for what, chooses in (
        ("--levels lowest", config.levels == LOWEST),
        ("--pruning iterative", config.rem and config.pruning == "iterative"),
        ("--recipe paper", config.patience is not None),
    ):
        if chooses and not len(data.validation.labels):
            raise UserError(
                f"{what} needs validation images; give --validation a share "
                "above 0."
            )
    if config.rem and config.pruning == "structured" and config.final_sparsity:
        pruning.check_structured(model, config)
    rows, columns, _ = data.image_shape
    if config.shift >= min(rows, columns):
        raise UserError(
            f"--shift {config.shift} can move images of {rows}x{columns} out "
            "of sight: give fewer pixels."
        )
    return model


def network(config: Config) -> keras.Model | None:
    """Returns the network that another run ended with, if there is one."""
    if config.start_from is None:
        return None
    run = _finished(config.start_from)
    return run.load_model(run.config.model_names[-1])


def take_baseline(folder: RunFolder) -> keras.Model:
    """Makes the network of another run, and its curve, this run's baseline."""
    run = _finished(str(folder.config.start_from))
    name = run.config.model_names[-1]
    for row in run.read_metrics(name):
        folder.append_metrics({**row, "model": "baseline"})
    model = run.load_model(name)
    # The last file: where it is, everything is.
    folder.save_model("baseline", model)
    return model


def begin_with(model: keras.Model, start: keras.Model) -> keras.Model:
    """Returns a network with the weights of a trained one.

    If that one is smaller, since its filters or types of capsules were pruned
    or types were to spare, it is that one itself, in float32.
    """
    is_alike = _about(model) == _about(start)
    shapes, of_start = (
        [tuple(weight.shape) for weight in each.weights]
        for each in (model, start)
    )
    if is_alike and shapes == of_start:
        model.set_weights(start.get_weights())
        return model
    if is_alike and start.count_params() < model.count_params():
        return start
    raise UserError(
        f"the trained {_about(start)} with {start.count_params():,} parameters "
        f"does not fit {_about(model)} with {model.count_params():,}; leave "
        "out --dataset, --resize, --model, --routing and --decoder, which are "
        "then those of the run to start from."
    )


def _about(network: keras.Model) -> str:
    classifier = rem.classifier(network)
    image = "x".join(map(str, classifier.inputs[0].shape[1:]))
    classes = classifier.output_shape[-1]
    return f"{network.name} for images of {image} in {classes} classes"


def _finished(run: str) -> RunFolder:
    folder = RunFolder.open(Path(run))
    path = folder.model_path(folder.config.model_names[-1])
    if not path.is_file():
        raise UserError(
            f"the run in {run} has not trained its network yet: no {path.name}."
            f" Go on with it: python training/run.py --resume --out {run}"
        )
    return folder
