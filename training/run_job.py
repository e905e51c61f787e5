"""Trains, measures, draws and exports: what `training/run.py` does."""

import dataclasses
import itertools
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cli import UserError
from tfcaps import rem
from training import (
    configs,
    datasets,
    decoding,
    dense_head,
    devices,
    features,
    fit,
    learnt,
    parts,
    plan,
    report,
)
from training.batches import Batches, to_float
from training.configs import pictures, recipe
from training.folder import RunFolder
from training.pairs import both_found, share_found
from training.tables import TITLES

Reports = dict[str, rem.Report]

_EXPORT = Path(__file__).resolve().parents[1] / "export" / "run.py"

# Flags that are no settings of the run.
_NOT_KEPT = ("bare", "force", "tensorboard")

# ------------------------------------------------------------------ settings


def open_folder(options) -> RunFolder:
    """Returns the folder of a new run, or that of the run to resume."""
    given = {
        field.name: value
        for field in dataclasses.fields(configs.Config)
        if (value := getattr(options, field.name, None)) is not None
    }
    if options.resume:
        if options.recipe is not None:
            raise UserError("--resume reads the settings; leave out --recipe.")
        folder = RunFolder.resume(options.out)
        for name, value in given.items():
            kept = getattr(folder.config, name)
            if kept != value:
                raise UserError(
                    f"the run in {options.out} has {name}={kept!r}, not "
                    f"{value!r}; leave out what --resume reads from it."
                )
        return folder
    defaults = configs.load(
        given.get("dataset", configs.DEFAULT_DATASET), given.get("model")
    )
    if options.recipe == "paper":
        own = defaults.final_sparsity
        defaults = recipe.published(defaults, given.get("model"))
        if given.get("pruning", defaults.pruning) != defaults.pruning:
            # No limit of the iterative pruning is a target of the others.
            defaults = dataclasses.replace(defaults, final_sparsity=own)
    if "epochs" in given:
        defaults = dataclasses.replace(defaults, rounds=1)
    config = dataclasses.replace(defaults, **given)
    _check_used(config, given)
    if options.out is not None:
        return RunFolder(options.out, config)
    return RunFolder(_free_name(config), config)


def _check_used(config: configs.Config, given: Mapping[str, Any]) -> None:
    """Raises `UserError` if a flag makes no difference without `--rem`."""
    unused = [name for name in given if not config.uses(name)]
    if not config.rem and "baseline" in given:
        unused.append("no_baseline")
    if unused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise UserError(f"{flags} need --rem, as only REM uses them.")


def _free_name(config: configs.Config) -> Path:
    stem = Path(config.dataset).stem + ("-rem" if config.rem else "")
    names = itertools.chain([stem], (f"{stem}-{k}" for k in itertools.count(2)))
    return next(
        path for name in names if not (path := Path("runs") / name).exists()
    )


# ---------------------------------------------------------------- the stages


def run(options) -> None:
    """Trains, measures, draws and exports."""
    started = time.monotonic()
    folder = open_folder(options)
    config = folder.config
    strategy = devices.make_strategy(config.strategy)
    if config.deterministic:
        devices.make_deterministic()
    is_first = devices.process() == 0
    if devices.num_processes() > 1 and options.out is None:
        raise UserError("several processes need --out, one folder for all.")
    data = datasets.load(
        config.dataset,
        config.data_dir,
        validation=config.validation,
        resize=config.resize,
        crop=config.crop,
        skip_broken=config.skip_broken,
    )
    for sentence in data.left_out:
        print(f"left out  {sentence}")
    if config.samples is not None:
        data = data.reduced(config.samples)
    if is_first and (text := pictures.about(config)):
        print(f"pictures  {text}")
    # A model that does not fit the images fails before anything is written.
    model = fit.build(data, config, decoder=config.decoder != "none")
    try:
        rem.quantize_couplings(model, config.levels, mode=config.mode)
    except ValueError as error:
        raise UserError(f"--levels does not fit: {error}") from error
    if options.dry_run:
        plan.show(data, folder, strategy)
        return
    if is_first and not options.resume:
        if devices.num_processes() == 1:
            plan.cost(data, folder, strategy)
        folder.create()
    if is_first:
        folder.save_data(data.name, data.class_names)
    # The time of a run that was stopped half way is not known.
    begun_before = (folder.path / "metrics.jsonl").exists()

    try:
        _work(options, folder, data, strategy, begun_before, started)
    except KeyboardInterrupt:
        print(f"\n\nstopped; go on with: {_resuming(options, folder.path)}")
        raise


def _resuming(options, path: Path) -> str:
    """Returns the command that goes on with a run."""
    backend = keras.backend.backend()
    words = [f"KERAS_BACKEND={backend}"] if backend != "tensorflow" else []
    words += ["python training/run.py --resume --out", str(path)]
    words += [f"--{name}" for name in _NOT_KEPT if getattr(options, name)]
    return " ".join(words)


def _work(options, folder, data, strategy, begun_before, started) -> None:
    """Trains, measures and shows, as far as it has not been done."""
    config, count = folder.config, len(data.train[1])
    compared = None
    trained = {}
    with features.removed_after(folder.path):
        if config.dense_head and devices.num_processes() == 1:
            compared = dense_head.accuracy(data, folder)
        for name in config.model_names:
            print(f"\n{TITLES[name]} on {data.name}", flush=True)
            trained[name] = fit.train(
                name, data, folder, strategy, tensorboard=options.tensorboard
            )
            if name == "baseline" and config.rem and not options.force:
                rows = folder.read_metrics(name)
                learnt.check(config, count, rows, compared)
    if devices.process() == 0:
        # The other processes have nothing more to do, and wait.
        reports, others = measure(config, data, trained)
        further = report.others(others)
        if compared is not None:
            further.append(dense_head.sentence(compared))
        folder.save_reports(reports, others)  # the manifest tells of them
        if not options.bare:
            _show(data, folder, trained, reports, further, compared, strategy)
        if not begun_before:
            folder.save_reports(reports, others, time.monotonic() - started)
        print()
        print(report.table(reports, compared))
        for name in config.model_names:
            print(f"{TITLES[name]}: {reports[name].verdict}")
            if reports[name].learnt is False:
                rows = folder.read_metrics(name)
                print(learnt.advice(config, count, rows, compared))
        for sentence in further:
            print(sentence)
        print(f"\nfiles of the run: {folder.path}")
    devices.wait()


def measure(
    config: configs.Config, data: datasets.Data, trained: Mapping[str, Any]
) -> tuple[Reports, dict[str, dict[str, Any]]]:
    """Measures each model on the test images, and on further test sets.

    Of images of two digits, `pairs` has the accuracies for both, and whether
    the map of each lies on it.
    """
    reports: Reports = {}
    others: dict[str, dict[str, Any]] = {name: {} for name in trained}
    for name, model in trained.items():
        evaluator = rem.Evaluator(model, config.levels, mode=config.mode)
        for test, (images, labels) in [("", data.test), *data.others.items()]:
            print(
                f"\n{TITLES[name]}: parse trees of the {test or 'test'} images",
                flush=True,
            )
            batches = Batches(images, labels, batch_size=256)
            measured = evaluator.run(batches, verbose=fit.progress() % 2)
            if test:
                others[name][test] = measured.to_dict()
                continue
            used = _faithfulness(name, model, images, labels)
            on_parts = parts.trees(model, data)
            if on_parts is not None:
                print(parts.sentence(on_parts), flush=True)
            reports[name] = dataclasses.replace(
                measured, faithfulness=used, parts=on_parts
            )
            if on_maps := parts.maps(model, data):
                others[name]["maps"] = on_maps
        if config.pairs:
            images, labels = data.test
            lengths = model.predict(to_float(images), verbose=0)
            others[name]["pairs"] = {
                "both_found": float(np.mean(both_found(labels, lengths))),
                "share_found": float(np.mean(share_found(labels, lengths))),
                **parts.maps_of_pairs(model, data),
            }
    return reports, others


def _faithfulness(name, model, images, labels) -> rem.Faithfulness:
    """Measures whether the model uses its trees, on 2,000 images at most."""
    print(f"\n{TITLES[name]}: what it does without its trees", flush=True)
    # Drawn, as images may come class by class.
    batches = Batches(images, labels, batch_size=256, seed=0)
    used = rem.faithfulness(model, batches, verbose=fit.progress() % 2)
    print(used.verdict, flush=True)
    return used


def _show(data, folder, trained, reports, further, compared, strategy) -> None:
    """Searches the levels, exports and draws, in one process."""
    config = folder.config
    main = config.model_names[-1]
    model = trained[main]
    # A decoder on frozen capsules is small enough for one process.
    if config.strategy == "data-parallel":
        strategy = None
    decoded = decoding.decoded_model(model, data, folder, strategy)
    if len(data.validation[1]):
        print("\nsearching the fewest levels", flush=True)
        search = rem.find_levels(
            model, Batches(*data.validation, batch_size=256), mode=config.mode
        )
        folder.write_json("levels.json", {"model": main, **search.to_dict()})
    served = folder.served / model.name / "1"
    if not served.exists():
        print("\nexporting, and checking what is exported", flush=True)
        export(folder.path, folder.served)
    print("\ndrawing the figures of the report", flush=True)
    page = report.write(
        folder, data, reports, decoded, trained, further, compared
    )
    print(f"\nmodel for TensorFlow Serving: {served}")
    print(f"report: {page}")


def export(run: Path, to: Path) -> None:
    """Calls the export command, as a user would, on what the run wrote."""
    command = [sys.executable, str(_EXPORT)]
    flags = ["--run", str(run), "--to", str(to), "--version", "1"]
    done = subprocess.run([*command, *flags], stdout=subprocess.DEVNULL)
    if done.returncode:
        raise UserError(f"{run} could not be exported, see above.")
