"""A real experiment that is stopped ends with the table of one that is not."""

import dataclasses
import json

import pytest

from experiments import experiment
from experiments import folder as experiment_folder
from experiments import table as experiment_table
from experiments.folder import ExperimentFolder
from tests.experiment_runs import (
    ALL,
    cells,
    command,
    once,
    remember_processes,
    row,
    small,
    terminate,
)
from tests.training.test_run import command as run
from tests.training.test_run import metrics, tiny_data
from tfcaps import rem
from training import datasets, networks, results
from training.configs import Config
from training.folder import RunFolder
from training.tables import look_up

EPOCHS = 8


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A real run that was stopped twice, and one that was not."""
    tmp_path = tmp_path_factory.mktemp("stopped")
    data = tiny_data(tmp_path / "tiny.npz")
    config = Config(
        dataset=data, rem=True, baseline=False, epochs=EPOCHS, batch_size=8,
        pruning="iterative", validation=0.4, seed=0,
    )  # fmt: skip
    shown = dataclasses.replace(row("tiny"), config=config)
    patch = pytest.MonkeyPatch()
    patch.setattr(experiment_folder, "load", lambda *_: small(shown))
    whole = ExperimentFolder(tmp_path / "whole", "table_1", "short", False, [0])
    whole.begin()
    (single,) = whole.runs()
    single.path.mkdir(parents=True)
    single.begin(None)
    flags = ("--resume", "--bare", "--out", single.path)
    assert run(*flags) == 0
    experiment_table.write(whole)

    out = tmp_path / "out"
    cut = out / "tiny" / "seed-0"
    processes = remember_processes(patch)
    statuses = []
    for epoch, stop in ((2, terminate), (5, lambda: processes[-1].kill())):
        with once(lambda done=epoch: epochs_backed_up(cut) >= done, stop):
            statuses.append(command("table_1", "--seeds", 0, "--out", out))
    statuses.append(command("table_1", "--seeds", 0, "--out", out))
    patch.undo()
    return tmp_path, statuses


def epochs_backed_up(folder):
    names = [p.name for p in folder.glob("backup-rem/epoch-*.weights.h5")]
    return max((int(name.split(".")[0][6:]) for name in names), default=0)


@pytest.mark.slow
def test_a_stopped_experiment_ends_with_the_same_table(stopped):
    tmp_path, statuses = stopped
    assert statuses == [130, 2, 0]
    epochs = [line["epoch"] for line in metrics(tmp_path / "out/tiny/seed-0")]
    assert epochs == sorted(epochs) and set(epochs) == set(range(EPOCHS))
    # What was done before it was stopped was not done again.
    assert len(epochs) <= EPOCHS + 2
    whole, cut = (cells(tmp_path, name) for name in ("whole", "out"))
    seconds = whole[0].index("seconds")
    for mine, theirs in zip(cut, whole, strict=True):
        del mine[seconds], theirs[seconds]
        assert mine == theirs
    whole, cut = (
        json.loads((tmp_path / name / "tiny/seed-0/rem.json").read_text())
        for name in ("whole", "out")
    )
    assert cut["models"] == whole["models"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The report in the `rem.json` of a network that was not trained."""
    tmp_path = tmp_path_factory.mktemp("measured")
    config = Config(
        dataset=tiny_data(tmp_path / "tiny.npz"), rem=True, baseline=False
    )
    folder = RunFolder(tmp_path / "run", config)
    folder.create()
    data = datasets.load(config.dataset)
    model = networks.build_for(data, config, decoder=False)
    folder.save_reports(*results.measure(config, data, {"rem": model}))
    return read_report(folder.path)


def read_report(run):
    return json.loads((run / "rem.json").read_text())["models"]["rem"]


@pytest.mark.slow
def test_a_run_leaves_what_is_measured_of_a_network(stopped, measured):
    tmp_path, _ = stopped
    report = read_report(tmp_path / "whole/tiny/seed-0")
    assert fields_in(report) == fields_in(measured)


def fields_in(report):
    """Returns the names in a report, with those inside of its parts."""
    if isinstance(report, dict):
        return {name: fields_in(part) for name, part in report.items()}
    return None


@pytest.mark.parametrize(("name", "recipe"), ALL)
def test_what_tables_show_is_what_runs_leave(measured, name, recipe):
    # Tiny images have no masks, see tests/training/test_run_parts.py.
    maps = ("relevance_mass", "relevance_mass_uniform", "pointing")
    model = {
        **measured,
        "parts": {f.name: 0.5 for f in dataclasses.fields(rem.TreesOnParts)},
        "tests": {
            "familiar": measured,
            "expanded": measured,
            "maps": dict.fromkeys(maps, 0.5),
            "pairs": {"pointing": 0.5},
        },
    }
    classes = {"per_class": {"num_keys": [1] * 10}}
    for shown in experiment.load(name, recipe).rows:
        for field in filter(None, shown.fields):
            known = {**model, **classes} if "num_keys" in field else model
            look_up({"baseline": known, "rem": known}, field)
