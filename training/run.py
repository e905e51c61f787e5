"""Trains a capsule network and reports what its couplings do.

python training/run.py --rem

trains a baseline and a REM model (pruned, and trained on its couplings) under
the same settings, quantises their couplings, collects the parse trees of each
class, draws them, and exports the stripped model for TensorFlow Serving.
"""

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, check_installed, run_loading
from training import models, sources
from training.configs import FLAGS, add_flags
from training.names import existing

_LISTS: dict[str, Mapping[str, Any]] = {
    "datasets": sources.SOURCES,
    "models": models.MODELS,
}


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="training/run.py",
        description="Trains a capsule network and reports what its couplings "
        "do.",
        epilog=FLAGS["examples"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_flags(parser)
    add = parser.add_argument_group("the run").add_argument
    add(
        "--recipe",
        choices=("paper",),
        help="train and prune as in the REM paper: up to 1,000 epochs, "
        "iterative pruning with decay, no coupling loss; other flags change it",
    )
    add(
        "--out",
        type=existing,
        metavar="FOLDER",
        help="run folder, which must not exist (default: a new one in runs/)",
    )
    for name, about in FLAGS["switches"].items():
        about = " ".join(about.split())
        add(f"--{name.replace('_', '-')}", action="store_true", help=about)
    return parser


def check(options: argparse.Namespace) -> None:
    """Raises `UserError` where no training is needed to see a mistake."""
    for flag, known in _LISTS.items():
        if getattr(options, f"list_{flag}"):
            width = max(map(len, known))
            for name, one in known.items():
                print(f"{name:{width}}  {one.about}")
            raise SystemExit(0)
    for name in ("dataset", "data_dir", "start_from"):
        value = getattr(options, name)
        if value and not Path(value).exists() and existing(value).exists():
            setattr(options, name, str(existing(value)))
    if options.dataset is not None or options.data_dir is not None:
        sources.check(
            options.dataset if options.dataset is not None else "digits",
            options.data_dir,
        )
    if options.model is not None:
        models.network(options.model)
    try:
        str(options.out).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"--out {options.out} has bytes that are no UTF-8, and TensorFlow "
            "writes nothing there; give another name."
        ) from error
    if options.resume and options.out is None:
        raise UserError("--resume needs --out, the folder of the run.")
    begun = [options.out] if options.resume else []
    begun += [Path(options.start_from)] if options.start_from else []
    for path in begun:
        if not (path / "config.json").is_file():
            raise UserError(f"there is no run in {path}: no config.json.")
    # All packages, before the training starts.
    extras = {"data": "PIL"}
    if not options.bare:
        extras |= {"tensorflow": "tensorflow", "viz": "matplotlib"}
    check_installed(**extras)


def run(options: argparse.Namespace) -> None:
    """Trains, measures, draws and exports, and skips what is finished."""
    from training import datasets, defaults, devices, plan, starting

    started = time.monotonic()
    folder = starting.open_folder(options)
    config = folder.config
    strategy = devices.make_strategy(config.strategy)
    if config.deterministic:
        devices.make_deterministic()
    is_first = devices.process() == 0
    if devices.num_processes() > 1 and options.out is None:
        raise UserError("several processes need --out, one folder for all.")
    with contextlib.ExitStack() as held:
        if is_first and options.resume and not options.dry_run:
            held.enter_context(folder.hold())
        data = datasets.of_run(config)
        for sentence in data.left_out:
            print(f"left out  {sentence}")
        if is_first and (text := defaults.about_pictures(config)):
            print(f"pictures  {text}")
        model = starting.check_fit(data, config)
        if options.dry_run:
            plan.show(data, folder, strategy, model)
            return
        if is_first and not options.resume:
            is_new = options.out is None
            folder.create(starting.free_paths(config) if is_new else ())
            held.enter_context(folder.hold())
        if is_first:
            folder.save_data(data.name, data.class_names)
        begun_before = (folder.path / "metrics.jsonl").exists()
        since = None if begun_before else started
        try:
            train_and_measure(options, folder, data, strategy, since)
        except KeyboardInterrupt:
            again = starting.how_to_resume(options, folder.path)
            print(f"\n\nstopped; go on with: {again}")
            raise


def train_and_measure(
    options: argparse.Namespace,
    folder: Any,
    data: Any,
    strategy: Any,
    started: float | None,
) -> None:
    """Does the work of a run whose settings and data have been checked.

    When it has `started` is `None` if a part of it was done before.
    """
    from training import devices, features, results, starting, train
    from training.tables import TITLES

    config = folder.config
    cache = features.kept(folder.path)
    trained: dict[str, Any] = {}
    failure = None
    for name in config.model_names:
        print(f"\n{TITLES[name]} on {data.name}", flush=True)
        trained[name] = train.train_model(
            name, data, folder, strategy, cache=cache
        )
        if name == "baseline" and config.rem and not options.force:
            results.check_learnt(folder.read_metrics(name))
    if devices.process() == 0:
        # The other processes have nothing more to do, and wait.
        measured = results.measure(config, data, trained, cache, folder)
        cache.clear()
        shutil.rmtree(folder.path / "features", ignore_errors=True)
        seconds = None if started is None else time.monotonic() - started
        folder.save_reports(measured.reports, measured.tests, seconds)
        if not options.bare:
            model = trained[config.model_names[-1]]
            if not folder.has_report():
                # A decoder on frozen capsules is small enough for one process.
                alone = config.strategy == "data-parallel"
                decoded = train.train_decoder(
                    model, data, folder, None if alone else strategy
                )
                print("\ndrawing the figures of the report", flush=True)
                results.write_report(
                    folder, trained, measured, data.name, decoded
                )
            failure = results.export(folder, model.name)
        results.tell(folder, measured, has_report=not options.bare)
    devices.wait()
    if failure is not None:
        again = starting.how_to_resume(options, folder.path)
        raise UserError(
            "the network is trained and measured, and its report is drawn, but "
            f"it was not exported: {failure} To try that again: {again}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    modules = ("training.plan", "training.results")
    return run_loading(make_parser(), run, check, argv, modules=modules)


if __name__ == "__main__":
    sys.exit(main())
