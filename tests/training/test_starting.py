"""Runs that begin with another one's network, or go on after a stop."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from cli import UserError
from tests.nightly import nightly
from tests.tolerance import assert_all_equal
from tests.training.test_run import command, refused, tiny_data
from tfcaps import rem
from training import datasets, networks, objectives, starting
from training.configs import Config
from training.folder import RunFolder

SHORT = ("--epochs", 1, "--bare", "--force")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run with a network; it was not trained."""
    folder = tmp_path_factory.mktemp("trained")
    data = tiny_data(folder / "tiny.npz")
    config = Config(dataset=data, epochs=3, rem_epochs=2)
    run = RunFolder(folder / "run", config)
    run.create()
    data = datasets.load(config.dataset)
    run.save_model("baseline", networks.build_for(data, config, decoder=False))
    run.append_metrics({"model": "baseline", "epoch": 2})
    return run.path


def weights(path):
    return keras.models.load_model(path, compile=False).get_weights()


@pytest.fixture
def begun(monkeypatch):
    """The weights that the training of each model begins with."""
    begun = {}
    compiled = objectives.compile_model

    def note(model, name, config, steps):
        begun[name] = rem.classifier(model).get_weights()
        compiled(model, name, config, steps)

    monkeypatch.setattr(objectives, "compile_model", note)
    return begun


@pytest.mark.slow
@pytest.mark.parametrize("warm", [True, pytest.param(False, marks=nightly)])
def test_rem_begins_where_the_baseline_ended(tmp_path, begun, warm):
    data = tiny_data(tmp_path / "tiny.npz")
    flag = "--warm-start" if warm else "--no-warm-start"
    flags = ("--rem", "--dataset", data, "--epochs", 1, "--bare", "--force")
    command(*flags, flag, "--out", tmp_path / "run")
    expected = begun["baseline"]
    if warm:
        expected = weights(tmp_path / "run" / "baseline.keras")
        assert not np.array_equal(expected[0], begun["baseline"][0])
    assert_all_equal(begun["rem"], expected)


@pytest.mark.slow
def test_the_network_is_the_baseline_and_rem_begins_with_it(
    finished, tmp_path, begun
):
    out = tmp_path / "run"
    flags = ("--rem", "--start-from", finished, *SHORT, "--seed", 3)
    command(*flags, "--out", out)
    # It is not trained again.
    assert list(begun) == ["rem"]
    expected = weights(finished / "model.keras")
    for found in (weights(out / "baseline.keras"), begun["rem"]):
        assert_all_equal(found, expected)
    # Settings that were not given are those of that run.
    before, after = RunFolder.open(finished), RunFolder.open(out)
    for name in ("dataset", "batch_size", "decay", "final_sparsity"):
        assert getattr(after.config, name) == getattr(before.config, name)
    assert (after.config.epochs, after.config.seed) == (1, 3)
    # Its curve and its report stand beside those of REM.
    rows = before.read_metrics("rem")
    assert after.read_metrics("baseline") == [
        {**row, "model": "baseline"} for row in rows
    ]
    assert len(after.read_metrics("rem")) == 1
    left, models = (
        json.loads((path / "rem.json").read_text())["models"]
        for path in (finished, out)
    )
    assert list(models) == ["baseline", "rem"]
    for name in ("accuracy", "entropy_bits", "sparsity"):
        assert models["baseline"][name] == left["rem"][name]


@pytest.mark.slow
def test_a_network_that_was_made_smaller_is_trained_as_it_is(tmp_path):
    data = tiny_data(tmp_path / "tiny.npz")
    small, out = tmp_path / "small", tmp_path / "run"
    flags = ("--no-baseline", "--pruning", "structured")
    command(
        "--rem", "--dataset", data, *SHORT, *flags, "--final-sparsity", 0.5,
        "--out", small,
    )  # fmt: skip
    smaller = RunFolder.open(small).load_model("rem")
    flags = ("--rem", "--start-from", small, *SHORT, "--pruning", "none")
    command(*flags, "--out", out)
    trained = RunFolder.open(out).load_model("rem")
    assert trained.count_params() == smaller.count_params()
    # And so is what was trained on.
    data, config = datasets.load(data), RunFolder.open(out).config
    again = networks.build_for(data, config, decoder=False)
    assert starting.begin_with(again, trained) is trained
    # As the networks differ in size, it cannot stand for another one.
    flags = (*flags, "--model", "parts_capsnet", "--out", tmp_path / "other")
    assert "leave out --dataset" in refused(*flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--start-from need --rem"),
        (("--warm-start",), "--warm-start, --start-from need --rem"),
        (("--rem", "--no-baseline"), "--no-baseline contradicts --start-from"),
        (("--rem", "--no-warm-start"), "contradicts --start-from"),
        (("--rem", "--dataset", "digits"), "8x8x1 in 10 classes"),
        (("--rem", "--model", "parts_capsnet"), "does not fit parts_capsnet"),
    ],
)
def test_what_cannot_begin_there_is_refused(trained, tmp_path, flags, message):
    out = tmp_path / "run"
    assert message in refused("--start-from", trained, *flags, "--out", out)
    assert not out.exists()


def test_a_run_that_is_not_finished_is_none_to_start_from(trained, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    settings = (trained / "config.json").read_text()
    (begun / "config.json").write_text(settings)
    flags = ("--rem", "--start-from", begun, "--out", tmp_path / "run")
    assert "no model.keras. Go on with it" in refused(*flags)
    nowhere = tmp_path / "nowhere"
    told = refused("--rem", "--start-from", nowhere)
    assert f"no run in {nowhere}" in told


def test_a_run_goes_on_with_the_backend_it_was_begun_on(tmp_path):
    folder = RunFolder(tmp_path / "run", Config())
    folder.create()
    assert RunFolder.resume(folder.path).config == folder.config
    environment = folder.path / "environment.json"
    begun = json.loads(environment.read_text()) | {"backend": "other"}
    environment.write_text(json.dumps(begun))
    with pytest.raises(UserError, match="begun on other.*KERAS_BACKEND=other"):
        RunFolder.resume(folder.path)
    settings = folder.path / "config.json"
    known = json.loads(settings.read_text())
    del known["levels"]
    settings.write_text(json.dumps(known))
    with pytest.raises(UserError, match="did not have levels; use that, which"):
        RunFolder.resume(folder.path)
    # What is finished may be drawn and exported on any.
    (folder.path / "rem.json").write_text("{}")
    RunFolder.resume(folder.path)


def test_runs_begun_at_once_have_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Config()
    runs = [
        RunFolder(next(starting.free_paths(config)), config) for _ in range(3)
    ]
    for run in runs:
        run.create(starting.free_paths(config))
    names = ["digits", "digits-2", "digits-3"]
    assert [run.path.name for run in runs] == names
    assert sorted(p.name for p in Path("runs").iterdir()) == names
    with pytest.raises(UserError, match="exists and is not overwritten"):
        RunFolder(runs[0].path, config).create()
    assert sorted(p.name for p in Path("runs").iterdir()) == names


def test_a_run_that_another_process_works_on_is_not_resumed(tmp_path):
    folder = RunFolder(tmp_path / "run", Config())
    folder.create()
    writing = folder.path / ".rem.json-a1_b2c3d"
    for _ in range(2):  # also when it was held and no longer is
        with folder.hold():
            writing.touch()
            told = refused("--resume", "--out", folder.path)
            assert "another process is working on the run in" in told
            assert writing.exists()
    folder.save_data("own", ["cafe\u0301", "tea"])
    folder.save_data("own", ["caf\xe9", "tea"])
    with pytest.raises(UserError, match="begun with 2 classes, café, tea; now"):
        folder.save_data("own", ["tea", "cafe\u0301"])
