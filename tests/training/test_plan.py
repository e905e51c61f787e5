"""What the main job tells before it does anything, and its logs."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from tests.training.test_run import command, metrics, tiny_data
from training import devices, models, plan, presets, sources, tables
from training.configs import Config, config_from, settings_of


def test_names_are_listed_with_what_they_are(capsys):
    for flag, known in (
        ("--list-models", models.MODELS),
        ("--list-datasets", sources.SOURCES),
    ):
        assert command(flag) == 0
        printed = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in printed] == list(known)
        assert all(len(line.split()) > 3 for line in printed)


def test_every_data_set_with_a_protocol_of_its_own_is_listed():
    variants = {"cats_vs_dogs_128px_subset", "imagenette_128px"}
    assert presets.PROTOCOLS.keys() - variants <= sources.SOURCES.keys()
    for source in sources.SOURCES.values():
        if source.loader is not None:
            module, _, name = source.loader.partition(":")
            found = importlib.import_module(f"training.datasets.{module}")
            assert callable(getattr(found, name))


def test_settings_may_be_what_there_is():
    known = settings_of(Config)
    assert set(known["strategy"].choices) == set(devices.STRATEGIES)
    assert config_from(dataclasses.asdict(Config())) == Config()


def test_settings_of_kept_runs_are_known():
    kept = list((Path(__file__).parents[2] / "results").glob("*/runs.jsonl"))
    for path in kept:
        for run in tables.read_file(path):
            config_from(run.parts["config"])
    assert kept


def test_help_has_groups_and_examples(capsys):
    assert command("--help") == 0
    printed = capsys.readouterr().out
    for heading in ("data:", "network:", "training:", "the run:", "examples:"):
        assert f"\n{heading}\n" in printed
    assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.slow
def test_a_dry_run_tells_the_plan_and_writes_nothing(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    tiny_data("tiny.npz")
    flags = ("--rem", "--dataset", "tiny.npz", "--batch-size", 8)
    assert command(*flags, "--epochs", 5, "--dry-run") == 0
    printed = capsys.readouterr().out
    assert "16 training, 3 validation, 8 test images of 8x8x1" in printed
    assert "Baseline: 5 epochs of 2 steps of 8 images" in printed
    assert "at most" not in printed
    assert "REM: 5 epochs of 2 steps" in printed
    assert re.search(r"parameters, [\d,]+ multiply-adds an image", printed)
    assert "No run folder has been made." in printed
    assert command(*flags, "--recipe", "paper", "--dry-run") == 0
    assert "Training takes at most about" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.npz"]


@pytest.mark.slow
def test_a_long_training_says_first_how_long_it_takes(
    tmp_path, monkeypatch, capsys
):
    data = tiny_data(tmp_path / "tiny.npz")
    flags = ("--bare", "--dataset", data, "--epochs", 2)
    assert command(*flags, "--out", tmp_path / "short") == 0
    assert "Training takes" not in capsys.readouterr().out
    monkeypatch.setattr(plan, "_LONG", 0)
    assert command(*flags, "--out", tmp_path / "long") == 0
    printed = capsys.readouterr().out
    cost = printed.index("Training takes about")
    assert cost < printed.index("Baseline on tiny")
    # What was timed leaves no trace.
    rows = [metrics(tmp_path / name) for name in ("short", "long")]
    losses = [[row["loss"] for row in run] for run in rows]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_files_of_other_versions_are_read_or_refused():
    saved = dataclasses.asdict(Config(coupling_ramp=0.0))
    older = {k: v for k, v in saved.items() if k not in ("seed", "levels")}
    del older["coupling_ramp"]
    gone = {"scope": "tensor", "rounds": 3, "trials": 5, "dense_head": True}
    assert config_from({**older, **gone}) == config_from(saved)
    with pytest.raises(ValueError, match="the settings warp, which this"):
        config_from({**saved, "warp": 9})


def test_wrong_settings_are_refused():
    for name, value, message in (
        ("epochs", 0, "epochs: '0' is not a number at least 1"),
        ("epochs", "two", "epochs is 'two'"),
        ("epochs", 1e9, "epochs is 1000000000.0"),
        ("dataset", None, "dataset is None"),
        ("learning_rate", float("nan"), "learning_rate: 'nan'"),
        ("validation", 0.9, "validation: '0.9'"),
        ("pruning", "everything", "pruning is 'everything'"),
        ("levels", [11, 300], "levels: '300'"),
        ("decoder", True, "decoder is True"),
        ("rem", "yes", "rem is 'yes'"),
    ):
        saved = dataclasses.asdict(Config())
        with pytest.raises(ValueError, match=re.escape(message)):
            config_from({**saved, name: value})
