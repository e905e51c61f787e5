"""Trains a capsule network and reports what its couplings do.

python training/run.py --rem

trains a baseline and a REM model (pruned, with sensitivity-gated decay) under
the same settings, quantises their couplings, collects the parse trees of each
class, draws them, and exports the stripped model for TensorFlow Serving.
"""

import argparse
import dataclasses
import itertools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The repository's own folders, wherever the command is called from.
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

if __name__ == "__main__" and "jax" != os.environ.get("KERAS_BACKEND"):
    # TensorFlow 2.21 writes notes at start-up before its log level counts.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(stderr, 2)
    # Each model that is measured traces functions of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


import numpy as np  # noqa: E402

import tfcaps  # noqa: E402
from tfcaps import rem  # noqa: E402
from tfcaps.cli import (  # noqa: E402
    Parser,
    UserError,
    at_least_one,
    number,
    run_command,
)
from training import (  # noqa: E402
    configs,
    datasets,
    devices,
    fit,
    models,
    pruning,
    report,
)
from training.batches import Batches, to_float  # noqa: E402
from training.folder import RunFolder  # noqa: E402
from training.pairs import both_found, share_found  # noqa: E402
from training.tables import TITLES  # noqa: E402

Reports = dict[str, rem.Report]

# --------------------------------------------------------------------- flags


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="training/run.py",
        description=__doc__.splitlines()[0],
        epilog="Settings that are not given come from training/configs/.",
    )
    add = parser.add_argument
    add(
        "--rem",
        action="store_true",
        help="train a REM model beside the baseline",
    )
    add(
        "--dataset",
        metavar="NAME",
        help="digits (default), mnist, fashion_mnist, cifar10, any name of "
        "TensorFlow Datasets, an .npz file, or a folder of class folders",
    )
    add(
        "--validation",
        type=_validation,
        metavar="SHARE",
        help="share of the training images that is only for choosing, 0 to 0.5",
    )
    add(
        "--resize",
        type=at_least_one,
        metavar="PIXELS",
        help="rows and columns to which images are resized",
    )
    add("--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets")
    add("--model", metavar="NAME", help=f"one of {', '.join(models.MODELS)}")
    add(
        "--routing",
        type=_routing,
        metavar="NAME",
        help="dynamic, em, regularized, scaled_distance, self_attention, "
        "uniform, or a number of iterations of dynamic routing (default: the "
        "model's own)",
    )
    add(
        "--decoder",
        choices=("none", "joint", "frozen"),
        help="reconstruct images too: trained with the capsules, or afterwards",
    )
    add(
        "--samples",
        type=at_least_one,
        help="use only so many training and test images",
    )
    add("--epochs", type=at_least_one, help="passes over the images")
    add("--batch-size", type=at_least_one, help="images in a step")
    add("--seed", type=_not_negative, help="seed of weights and order")
    add(
        "--pruning",
        choices=tuple(pruning.STRATEGIES),
        help="what is pruned when, see training/pruning.py",
    )
    add(
        "--final-sparsity",
        type=_sparsity,
        metavar="SHARE",
        help="weights pruned in the end, 0 to 0.999",
    )
    add(
        "--decay",
        type=_share,
        metavar="RATE",
        help="rate of the sensitivity-gated decay, which moves along the "
        "frontier between accuracy and entropy; 0 for none",
    )
    add(
        "--levels",
        type=_levels,
        help="levels of the couplings, 2 to 256; or several with commas, one "
        "for each routed layer",
    )
    add(
        "--strategy",
        choices=tuple(devices.STRATEGIES),
        help="mirrored trains on all GPUs of this machine; data-parallel on "
        "all devices, on the JAX backend, see training/devices.py",
    )
    add(
        "--no-baseline",
        dest="baseline",
        action="store_const",
        const=False,
        help="train the REM model alone",
    )
    add(
        "--bare",
        action="store_true",
        help="train and measure, but draw and export nothing",
    )
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="run folder, which must not exist (default: a new one in runs/)",
    )
    add(
        "--resume",
        action="store_true",
        help="go on with the run in --out, with its settings",
    )
    return parser


def _routing(text: str) -> str:
    try:
        tfcaps.routing.get(int(text) if text.isdigit() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _not_negative(text: str) -> int:
    return number(text, int, 0, 2**32 - 1)


def _share(text: str) -> float:
    return number(text, float, 0.0, 1.0)


def _sparsity(text: str) -> float:
    return number(text, float, 0.0, 0.999)


def _validation(text: str) -> float:
    return number(text, float, 0.0, 0.5)


def _levels(text: str) -> int | tuple[int, ...]:
    levels = tuple(number(part, int, 2, 256) for part in text.split(","))
    return levels if levels[1:] else levels[0]


# ------------------------------------------------------------------ settings


def open_folder(options) -> RunFolder:
    """Returns the folder of a new run, or that of the run to resume."""
    given = {
        field.name: value
        for field in dataclasses.fields(configs.Config)
        # `is`, because 0 is a setting and equals False.
        if (value := getattr(options, field.name, None)) is not None
        and (value is not False or field.name == "baseline")
    }
    if options.resume:
        if options.out is None:
            raise UserError("--resume needs --out, the folder of the run.")
        folder = RunFolder.resume(options.out)
        for name, value in given.items():
            kept = getattr(folder.config, name)
            if kept != value:
                raise UserError(
                    f"the run in {options.out} has {name}={kept!r}, not "
                    f"{value!r}; leave out what --resume reads from it."
                )
        return folder
    defaults = configs.load(given.get("dataset", "digits"))
    config = dataclasses.replace(defaults, **given)
    if options.out is not None:
        return RunFolder(options.out, config)
    return RunFolder(_free_name(config), config)


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
    is_first = devices.process() == 0
    if devices.num_processes() > 1 and options.out is None:
        raise UserError("several processes need --out, one folder for all.")
    data = datasets.load(
        config.dataset,
        config.data_dir,
        validation=config.validation,
        resize=config.resize,
        crop=config.crop,
    )
    if config.samples is not None:
        data = data.reduced(config.samples)
    # A model that does not fit the images fails before anything is written.
    fit.build(data, config, decoder=config.decoder != "none")
    if is_first and not options.resume:
        folder.create()
    if is_first:
        folder.save_data(data.name, data.class_names)
    # The time of a run that was stopped half way is not known.
    begun_before = (folder.path / "metrics.jsonl").exists()

    trained = {}
    for name in config.model_names:
        print(f"\n{TITLES[name]} on {data.name}", flush=True)
        trained[name] = fit.train(name, data, folder, strategy)
    if is_first:
        # The other processes have nothing more to do, and wait.
        reports, others = measure(config, data, trained)
        folder.save_reports(reports, others)  # the manifest tells of them
        if not options.bare:
            _show(data, folder, trained, reports, strategy)
        if not begun_before:
            folder.save_reports(reports, others, time.monotonic() - started)
        print()
        print(report.table(reports))
        for name in config.model_names:
            print(f"{TITLES[name]}: {reports[name].verdict}")
        print(f"\nfiles of the run: {folder.path}")
    devices.wait()


def measure(
    config: configs.Config, data: datasets.Data, trained: Mapping[str, Any]
) -> tuple[Reports, dict[str, dict[str, Any]]]:
    """Measures each model on the test images, and on further test sets.

    Of images of two digits, `pairs` has the accuracies for both.
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
            measured = evaluator.run(batches, verbose=1)
            if test:
                others[name][test] = measured.to_dict()
            else:
                reports[name] = measured
        if config.pairs:
            images, labels = data.test
            lengths = model.predict(to_float(images), verbose=0)
            others[name]["pairs"] = {
                "both_found": float(np.mean(both_found(labels, lengths))),
                "share_found": float(np.mean(share_found(labels, lengths))),
            }
    return reports, others


def _show(data, folder, trained, reports, strategy) -> None:
    """Searches the levels, exports and draws, in one process."""
    config = folder.config
    main = config.model_names[-1]
    model = trained[main]
    # A decoder on frozen capsules is small enough for one process.
    if config.strategy == "data-parallel":
        strategy = None
    decoded = fit.decoded_model(model, data, folder, strategy)
    if len(data.validation[1]):
        search = rem.find_levels(
            model, Batches(*data.validation, batch_size=256), mode=config.mode
        )
        folder.write_json("levels.json", {"model": main, **search.to_dict()})
    served = folder.served / model.name / "1"
    if not served.exists():
        print("\nexporting, and checking what is exported", flush=True)
        export(folder.path, folder.served)
    page = report.write(folder, data, reports, decoded, trained)
    print(f"\nmodel for TensorFlow Serving: {served}")
    print(f"report: {page}")


def export(run: Path, to: Path) -> None:
    """Calls the export command, as a user would, on what the run wrote."""
    command = [sys.executable, str(ROOT / "export" / "run.py")]
    flags = ["--run", str(run), "--to", str(to), "--version", "1"]
    done = subprocess.run(
        [*command, *flags],
        stdout=subprocess.DEVNULL,
        # TensorFlow writes the SavedModel, whatever trained the model.
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
    )
    if done.returncode:
        raise UserError(f"{run} could not be exported, see above.")


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
