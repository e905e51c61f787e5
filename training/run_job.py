"""Trains, measures, draws and exports: what `training/run.py` does."""

import argparse
import contextlib
import dataclasses
import io
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
from export import run as export_command
from tfcaps import rem
from training import (
    closing,
    configs,
    datasets,
    decoding,
    dense_head,
    devices,
    features,
    feeding,
    fit,
    learnt,
    parts,
    plan,
    report,
    starting,
    summary,
)
from training.batches import Batches
from training.configs import pictures, recipe
from training.folder import RunFolder
from training.pairs import both_found, share_found
from training.progress import progress
from training.pruning import structured
from training.tables import TITLES

Reports = dict[str, rem.Report]

# Flags that are no settings of the run.
_NOT_KEPT = ("bare", "force", "tensorboard")

# ------------------------------------------------------------------ settings


def open_folder(options: argparse.Namespace) -> RunFolder:
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
    if options.start_from is not None:
        defaults = starting.settings(options.start_from)
    else:
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
    if config.start_from is not None:
        for name in ("baseline", "warm_start"):
            if given.get(name) is False:
                raise UserError(
                    f"--no-{name.replace('_', '-')} contradicts --start-from, "
                    "whose network is the baseline that REM begins with."
                )


def _free_name(config: configs.Config) -> Path:
    stem = Path(config.dataset).stem + ("-rem" if config.rem else "")
    names = itertools.chain([stem], (f"{stem}-{k}" for k in itertools.count(2)))
    return next(
        path for name in names if not (path := Path("runs") / name).exists()
    )


# ---------------------------------------------------------------- the stages


@dataclasses.dataclass(frozen=True)
class _Job:
    """What a run works on.

    Attributes:
        options: The flags of the command.
        folder: Where the run is, and its settings.
        data: Images and labels.
        strategy: What `make_strategy` returned.
        started: When it began, as `time.monotonic` tells; `None` if a part of
            it was done before, in a time that is not known.
    """

    options: argparse.Namespace
    folder: RunFolder
    data: datasets.Data
    strategy: devices.Strategy | None
    started: float | None

    @property
    def num_images(self) -> int:
        """Number of training images."""
        return len(self.data.train.labels)

    def seconds(self) -> float | None:
        """Returns what it took so far, if that is known."""
        return None if self.started is None else time.monotonic() - self.started


@dataclasses.dataclass(frozen=True)
class _Results:
    """What a run has measured.

    Attributes:
        models: The trained models by name.
        reports: One for each model, on the test images.
        tests: For each model what was measured besides, by test.
        compared: Accuracy with a dense head, or `None`.
    """

    models: Mapping[str, keras.Model]
    reports: Reports
    tests: Mapping[str, Mapping[str, Any]]
    compared: float | None

    @property
    def sentences(self) -> list[str]:
        """What is said of all that is not in `reports`."""
        sentences = report.sentences(self.tests)
        if self.compared is not None:
            sentences.append(dense_head.sentence(self.compared))
        return sentences


def run(options: argparse.Namespace) -> None:
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
    options_of_data = {"seed": config.data_seed} if config.data_seed else {}
    data = datasets.load(
        config.dataset,
        config.data_dir,
        validation=config.validation,
        resize=config.resize,
        crop=config.crop,
        skip_broken=config.skip_broken,
        **options_of_data,
    )
    for sentence in data.left_out:
        print(f"left out  {sentence}")
    if config.samples is not None:
        data = data.reduced(config.samples)
    if is_first and (text := pictures.about(config)):
        print(f"pictures  {text}")
    # A model that does not fit the images fails before anything is written.
    model = fit.build(data, config, decoder=config.decoder != "none")
    if (start := starting.network(config)) is not None:
        starting.check(start, data, Path(str(config.start_from)))
        model = fit.build(data, config, decoder=config.decoder == "joint")
        model = starting.begin_with(model, start, config)
    try:
        rem.quantize_couplings(model, config.levels, mode=config.mode)
    except ValueError as error:
        raise UserError(f"--levels does not fit: {error}") from error
    if config.rem and config.pruning == "structured":
        structured.check(model, config)
    feeding.check_shift(data, config)
    if options.dry_run:
        plan.show(data, folder, strategy)
        return
    if is_first and not options.resume:
        if devices.num_processes() == 1:
            plan.cost(data, folder, strategy)
        folder.create()
    if is_first:
        folder.save_data(data.name, data.class_names)
    begun_before = (folder.path / "metrics.jsonl").exists()
    since = None if begun_before else started
    try:
        _work(_Job(options, folder, data, strategy, since))
    except KeyboardInterrupt:
        print(f"\n\nstopped; go on with: {_resuming(options, folder.path)}")
        raise


def _resuming(options: argparse.Namespace, path: Path) -> str:
    """Returns the command that goes on with a run."""
    backend = keras.backend.backend()
    words = [f"KERAS_BACKEND={backend}"] if backend != "tensorflow" else []
    words += ["python training/run.py --resume --out", str(path)]
    words += [f"--{name}" for name in _NOT_KEPT if getattr(options, name)]
    return " ".join(words)


def _work(job: _Job) -> None:
    """Trains, measures and shows, as far as it has not been done."""
    models, compared = _train(job)
    if devices.process() == 0:
        # The other processes have nothing more to do, and wait.
        reports, tests = measure(job.folder.config, job.data, models)
        results = _Results(models, reports, tests, compared)
        job.folder.save_reports(reports, tests, job.seconds())
        if not job.options.bare:
            _show(job, results)
        closing.tell(
            job.folder,
            results.reports,
            results.sentences,
            results.compared,
            num_images=job.num_images,
            has_report=not job.options.bare,
        )
    devices.wait()


def _train(job: _Job) -> tuple[dict[str, Any], float | None]:
    """Returns the models, and the accuracy with a dense head if measured."""
    folder, config = job.folder, job.folder.config
    compared = None
    models = {}
    with features.removed_after(folder.path):
        if config.dense_head and devices.num_processes() == 1:
            compared = dense_head.accuracy(job.data, folder)
        for name in config.model_names:
            print(f"\n{TITLES[name]} on {job.data.name}", flush=True)
            models[name] = fit.train(
                name,
                job.data,
                folder,
                job.strategy,
                tensorboard=job.options.tensorboard,
            )
            if name == "baseline" and config.rem and not job.options.force:
                rows = folder.read_metrics(name)
                learnt.check(config, job.num_images, rows, compared)
    return models, compared


def measure(
    config: configs.Config,
    data: datasets.Data,
    models: Mapping[str, keras.Model],
) -> tuple[Reports, dict[str, dict[str, Any]]]:
    """Measures each model on the test images, and on the other test sets.

    Of images of two digits, `pairs` has the accuracies for both, and whether
    the map of each lies on it; of several fully connected layers,
    `trees_down_to` whether the trees below the class layer's are used.
    """
    reports: Reports = {}
    tests: dict[str, dict[str, Any]] = {name: {} for name in models}
    for name, model in models.items():
        evaluator = rem.Evaluator(model, config.levels, mode=config.mode)
        for test, split in [("", data.test), *data.others.items()]:
            print(
                f"\n{TITLES[name]}: parse trees of the {test or 'test'} images",
                flush=True,
            )
            batches = Batches(*split, batch_size=256)
            measured = evaluator.run(batches, verbose=progress() % 2)
            if test:
                tests[name][test] = measured.to_dict()
                continue
            used, deeper = parts.used(name, model, split)
            if deeper:
                tests[name]["trees_down_to"] = deeper
            known = parts.found(model, data)
            on_parts = parts.trees(model, data, known)
            if on_parts is not None:
                told = parts.sentence(on_parts)
                print(summary.wrapped(told), flush=True)
            named = parts.named(model, data, known)
            if named is not None:
                print(summary.wrapped(str(named)), flush=True)
            reports[name] = dataclasses.replace(
                measured, faithfulness=used, parts=on_parts, named_parts=named
            )
            if on_maps := parts.maps(model, data, known):
                tests[name]["maps"] = on_maps
        if config.pairs:
            images, labels = data.test
            lengths = model.predict(images[:], verbose=0)
            tests[name]["pairs"] = {
                "both_found": float(np.mean(both_found(labels, lengths))),
                "share_found": float(np.mean(share_found(labels, lengths))),
                **parts.maps_of_pairs(model, data),
            }
    return reports, tests


def _show(job: _Job, results: _Results) -> None:
    """Searches the levels, exports and draws, in one process."""
    data, folder, config = job.data, job.folder, job.folder.config
    main = config.model_names[-1]
    model = results.models[main]
    # A decoder on frozen capsules is small enough for one process.
    strategy = None if config.strategy == "data-parallel" else job.strategy
    decoded = decoding.decoded_model(model, data, folder, strategy)
    if len(data.validation.labels):
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
    report.write(
        folder,
        data,
        results.reports,
        decoded,
        results.models,
        results.sentences,
        results.compared,
    )
    print(f"\nmodel for TensorFlow Serving: {served}")


def export(run: Path, to: Path) -> None:
    """Exports what the run wrote, as the export command does.

    TensorFlow writes the SavedModel; on another backend it needs a process of
    its own.
    """
    flags = ["--run", str(run), "--to", str(to), "--version", "1"]
    if keras.backend.backend() != "tensorflow":
        command = [sys.executable, export_command.__file__, *flags]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise UserError(f"{run} could not be exported, see above.")
        return
    options = export_command.make_parser().parse_args(flags)
    export_command.check(options)
    from export import run_job

    with contextlib.redirect_stdout(io.StringIO()):
        run_job.export(options)
