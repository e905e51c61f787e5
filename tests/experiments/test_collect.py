"""Experiments that are collected for keeping, and those of the repository."""

import json
from pathlib import Path

import pytest

from experiments import figures as experiment_figures
from experiments import named_parts
from experiments import table as experiment_table
from experiments.folder import ExperimentFolder
from tests.experiment_runs import (
    call,
    cells,
    command,
    row,
)

_KEPT = sorted(
    path.parent
    for path in (Path(__file__).parents[2] / "results").glob("*/runs.jsonl")
    if (path.parent / "experiment.json").exists()
)


def collect(tmp_path, out="out"):
    return command("--collect", tmp_path / out, "--to", tmp_path / "kept")


def lines(tmp_path):
    text = (tmp_path / "kept" / "runs.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_collected_makes_the_same_table(tmp_path, fake):
    assert call(tmp_path) == 0
    out, kept = tmp_path / "out", tmp_path / "kept"
    (out / "good/seed-0/metrics.jsonl").write_text("{}\n")
    assert collect(tmp_path) == 0
    assert names(kept) == [
        "experiment.json", "runs.jsonl", "table.md",
    ]  # fmt: skip
    assert [(line["name"], line["seed"]) for line in lines(tmp_path)] == [
        ("good", 0), ("good", 1), ("good", 2),
    ]  # fmt: skip
    first = lines(tmp_path)[0]
    assert list(first) == [
        "name", "seed", "config", "environment", "seconds", "rem",
    ]  # fmt: skip
    assert first["config"]["data_dir"] is None
    for part in ("environment", "seconds", "rem"):
        text = (out / f"good/seed-0/{part}.json").read_text()
        assert first[part] == json.loads(text)
    text = (kept / "table.md").read_bytes()
    assert text == (out / "table.md").read_bytes()
    (kept / "table.md").unlink()
    assert command("--tables", kept, tmp_path / "data") == 0
    assert (kept / "table.md").read_bytes() == text


def test_further_seeds_come_to_those_that_are_kept(tmp_path, fake):
    assert call(tmp_path, "--seeds", 0, 1) == 0
    assert collect(tmp_path) == 0
    before = lines(tmp_path)
    more = ("table_1", "--out", tmp_path / "more", "--seeds", 7, 1)
    assert command(*more) == 0
    again = tmp_path / "more/good/seed-1/rem.json"
    again.write_text(again.read_text().replace("0.91", "0.99"))
    assert collect(tmp_path, "more") == 0
    assert [line["seed"] for line in lines(tmp_path)] == [0, 1, 7]
    assert lines(tmp_path)[0] == before[0]
    assert lines(tmp_path)[1]["rem"] == json.loads(again.read_text())
    assert cells(tmp_path, "kept")[2][11] == "3"
    about = json.loads((tmp_path / "kept/experiment.json").read_text())
    assert about["seeds"] == [0, 1, 7]


def test_nothing_is_run_in_a_folder_for_keeping(tmp_path, fake, capsys):
    assert call(tmp_path, "--seeds", 0, 1) == 0
    assert collect(tmp_path) == 0
    assert command("table_1", "--out", tmp_path / "kept") == 2
    assert "give another --out, and collect" in capsys.readouterr().err


def test_what_is_kept_must_be_of_the_experiment(tmp_path, fake, capsys):
    assert call(tmp_path, "--seeds", 0) == 0
    assert collect(tmp_path) == 0
    before = (tmp_path / "kept/runs.jsonl").read_bytes()
    fake[:] = [row("good", epochs=9)]
    assert command("--tables", tmp_path / "kept") == 2
    message = capsys.readouterr().err
    assert "kept/runs.jsonl, line 1, has epochs=8" in message
    assert "run it anew in another folder, or remove it." in message
    # A run with other settings may replace it, but not stand beside it.
    assert command("table_1", "--out", tmp_path / "b", "--seeds", 1) == 0
    assert collect(tmp_path, "b") == 2
    assert (tmp_path / "kept/runs.jsonl").read_bytes() == before
    assert command("table_1", "--out", tmp_path / "c", "--seeds", 0) == 0
    assert collect(tmp_path, "c") == 0
    assert lines(tmp_path)[0]["config"]["epochs"] == 9


def test_a_broken_line_is_named(tmp_path, fake, capsys):
    assert call(tmp_path, "--seeds", 0) == 0
    assert collect(tmp_path) == 0
    path = tmp_path / "kept/runs.jsonl"
    good = path.read_text("utf-8")
    path.write_text(good + "<<<<<<< HEAD\n")
    for flags in (
        ("--tables", path.parent),
        ("--collect", tmp_path / "out", "--to", path.parent),
    ):
        assert command(*flags) == 2
        assert "runs.jsonl, line 2 is not JSON" in capsys.readouterr().err
    path.write_text(good.replace('"sparsity"', '"scarcity"'))
    assert command("--tables", path.parent) == 2
    message = capsys.readouterr().err
    assert "runs.jsonl, line 1, rem has no baseline.sparsity" in message


def test_nothing_is_collected_into_run_folders(tmp_path, fake, capsys):
    assert call(tmp_path) == 0
    other = ("table_1", "--out", tmp_path / "kept", "--seeds", 0)
    assert command(*other) == 0
    assert collect(tmp_path) == 2
    assert (
        "kept holds run folders; give another --to" in capsys.readouterr().err
    )
    assert not (tmp_path / "kept/runs.jsonl").exists()


@pytest.mark.parametrize("path", _KEPT, ids=lambda path: path.name)
def test_tables_in_the_repository_are_those_of_its_runs(path, tmp_path):
    copy = ExperimentFolder.open(path).collect(tmp_path / "copy")
    experiment_table.write(copy)
    # As many lines: all runs are of the experiment.
    for name in ("runs.jsonl", "table.md"):
        assert (path / name).read_bytes() == (copy.path / name).read_bytes()
    for picture in experiment_figures.write(copy):
        data = Path(picture).with_suffix(".json")
        assert (path / data).read_bytes() == (copy.path / data).read_bytes()


def test_the_table_of_named_parts_is_that_of_its_runs():
    folder = _KEPT[0].parent / "named_parts"
    assert (folder / "table.md").read_text("utf-8") == named_parts.page(folder)
