"""Experiments: what is run, resumed, skipped, and kept."""

import json
import shutil

import pytest

from experiments import folder
from tests.experiment_runs import call, cells, command, row, starts


def lines(tmp_path):
    text = (tmp_path / "out" / "runs.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_seeds_add_up_and_finished_runs_are_not_repeated(tmp_path, fake):
    out = tmp_path / "out"
    assert "2 runs, 2 to do" in call(tmp_path, "--seeds", 1, 0, 1)
    before = lines(tmp_path)
    assert "3 runs, 1 to do" in call(tmp_path)
    assert set(starts(tmp_path).values()) == {1} and len(starts(tmp_path)) == 3
    assert cells(tmp_path)[2][11] == "3"
    about = json.loads((out / "experiment.json").read_text())
    assert about["seeds"] == [0, 1, 2]
    # What ended unseen is kept.
    (out / "runs.jsonl").unlink()
    call(tmp_path)
    assert set(starts(tmp_path).values()) == {1}
    # What is kept makes the same table without the run folders.
    assert lines(tmp_path)[:2] == before
    first = before[0]
    assert list(first) == ["name", "seed", "config", "environment", "rem"]
    assert first["config"]["data_dir"] is None
    for part in ("environment", "rem"):
        text = (out / f"good/seed-0/{part}.json").read_text()
        assert first[part] == json.loads(text)
    table = (out / "table.md").read_bytes()
    shutil.rmtree(out / "good")
    (out / "table.md").unlink()
    command("--tables", out, tmp_path / "data")
    assert (out / "table.md").read_bytes() == table
    call(tmp_path)
    assert not starts(tmp_path)
    # A row says which seeds it lacks.
    kept = json.dumps(lines(tmp_path)[2])
    (out / "runs.jsonl").write_text(f"{kept}\n", "utf-8")
    command("--tables", out)
    assert cells(tmp_path)[2][-1] == "seeds 0, 1 not run yet"
    assert cells(tmp_path)[2][2] == "82.00"


def test_a_broken_line_is_named(tmp_path, fake):
    call(tmp_path, "--seeds", 0)
    path = tmp_path / "out/runs.jsonl"
    good = path.read_text("utf-8")
    path.write_text(good + "<<<<<<< HEAD\n")
    for again in (("--tables", path.parent), ("table_1", "--out", path.parent)):
        assert "runs.jsonl, line 2 is not JSON" in command(*again, status=2)
    path.write_text(good.replace('"sparsity"', '"scarcity"'))
    message = command("--tables", path.parent, status=2)
    assert "runs.jsonl, line 1, rem has no baseline.sparsity" in message


@pytest.mark.parametrize("dataset", ["absent", "broken", "diverged"])
def test_a_crash_loses_no_other_run(tmp_path, fake, dataset):
    fake[:] = [row(dataset, cells=("1.0", None, None)), row("good")]
    error = call(tmp_path, status=2)
    said = f"3 of 6 runs failed, and said above why: {dataset}, seed 0; "
    assert said in error
    broken, good = cells(tmp_path)[2:]
    assert broken[2:5] == ["–", "1.0", "–"]
    assert broken[-1] == "not run yet"
    assert good[-1] == "done" and good[-5] == "3"


WITHOUT_REM = {"rem": False, "baseline": True}


@pytest.mark.parametrize(
    ("had", "wanted", "said"),
    [
        ({}, {"epochs": 9}, "epochs=8, but the experiment's run good has epo"),
        # Those of REM do not matter without it.
        (WITHOUT_REM, {**WITHOUT_REM, "coupling_spread": 9.0}, None),
        (WITHOUT_REM, {"baseline": True}, "rem=False"),
        # Those that a run did not know were the default.
        ({"mode": None}, {"mode": "midrise"}, "mode='midtread'"),
        ({"mode": None}, {"mode": "midtread"}, None),
    ],
    ids=str,
)
def test_a_run_with_other_settings_is_an_error(
    tmp_path, fake, had, wanted, said
):
    known = {k: v for k, v in had.items() if v is not None}
    fake[:] = [row("good", **known)]
    call(tmp_path, "--seeds", 0)
    (line,) = lines(tmp_path)
    for name in had.keys() - known:
        del line["config"][name]
    (tmp_path / "out/runs.jsonl").write_text(json.dumps(line) + "\n")
    fake[:] = [row("good", **wanted)]
    message = call(tmp_path, "--seeds", 0, status=2 if said else 0)
    assert not said or f"out/runs.jsonl, line 1, has {said}" in message


def test_a_folder_of_another_experiment_is_an_error(tmp_path, fake):
    call(tmp_path)
    message = call(tmp_path, "--recipe", "paper", status=2)
    assert "holds another experiment, {'name': 'table" in message


def test_patterns_choose_runs_and_what_cannot_be_trained_is_left_out(
    tmp_path, fake
):
    fake[:] = [row("good"), row("gone", gone="1a2b3c4"), row("other")]
    printed = call(tmp_path, "--seeds", 0, "--only", "go*")
    assert set(starts(tmp_path)) == {"good/seed-0"}
    assert cells(tmp_path)[4][-1] == "not run yet"
    assert "gone, seed 0: " in printed
    assert "commit 1a2b3c4 was the last to train it" in printed
    message = call(tmp_path, "--only", "nope", status=2)
    assert "no run 'nope'; it has good, gone, other" in message


def test_a_run_begins_when_that_which_it_starts_from_is_done(tmp_path, fake):
    fake[:] = [row("good", rem=False), row("later", start_from="good")]
    call(tmp_path, "--seeds", 0, 1)
    assert [line[-1] for line in cells(tmp_path)[2:]] == ["done", "done"]
    config = json.loads((tmp_path / "out/later/seed-1/config.json").read_text())
    assert config["start_from"] == str(tmp_path / "out/good/seed-1")
    # The settings are those of the experiment, wherever the folder is.
    command("--tables", tmp_path / "out")
    fake[1] = row("later", start_from="other")
    message = command("--tables", tmp_path / "out", status=2)
    assert "start_from='good'" in message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["table_1", "--tables", "x"], "give one of"),
        (["--tables", "odd"], "is not that of an experiment"),
        (["--tables", "broken"], "is not that of an experiment"),
        (["--tables", "old"], "unknown experiment 'table_99'"),
        (["strategies", "--recipe", "short"], "has settings of its own"),
        (["table_10", "--only", "a"], "no run 'a'; it has tiny_imagenet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_write_nothing(
    tmp_path, monkeypatch, flags, message
):
    monkeypatch.chdir(tmp_path)
    old = {"recipe": None, "seeds": [0], "name": "table_99"}
    for name, text in (
        ("odd", '{"title": 1}'),
        ("old", json.dumps(old)),
        ("broken", "{"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.json").write_text(text)
    before = sorted(map(str, tmp_path.rglob("*")))
    error = command(*flags, status=2)
    assert message in error and error.count("\n") == 1
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_a_mistake_in_a_table_is_not_one_of_the_folder(tmp_path, monkeypatch):
    text = json.dumps({"name": "photos", "recipe": None, "seeds": [0]})
    (tmp_path / "experiment.json").write_text(text)
    monkeypatch.setattr(folder, "load", lambda *_: None + 1)
    with pytest.raises(TypeError, match="unsupported operand"):
        folder.ExperimentFolder.open(tmp_path)
