"""Finished runs, in their folders and in one file."""

import json

import pytest

from cli import UserError
from tests.training.test_tables import write_run
from training import runs_file


def contents(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def line(name="x", seed=0, **changes):
    config = {"dataset": "x", "seed": seed, "epochs": 1, "decay": 0.0}
    rem = {"seconds": 1.0, "models": {}}
    return {"name": name, "seed": seed, "config": config, "rem": rem} | changes


def test_a_line_holds_what_the_files_of_a_run_folder_do(tmp_path):
    folder = write_run(
        tmp_path / "a",
        3,
        0.1 + 0.2,
        data_dir="/home/me",
        start_from="/home/me/runs/b/seed-3",
    )
    (folder / "seconds.json").write_text('{"seconds": 179.4}')
    (folder / "environment.json").write_text('{"cpus": 2}')
    (folder / "data.json").write_text("{}")
    (folder / "metrics.jsonl").write_text("{}")
    path = tmp_path / "runs.jsonl"
    runs_file.add(path, runs_file.read(folder))
    (content,) = contents(path)
    assert list(content) == [
        "name", "seed", "config", "environment", "seconds", "rem",
    ]  # fmt: skip
    assert (content["name"], content["seed"]) == ("a", 3)
    assert content["rem"]["models"]["rem"]["accuracy"] == 0.1 + 0.2
    for part in runs_file.PARTS:
        before = json.loads((folder / f"{part}.json").read_text())
        if part == "config":
            # No folder of this machine.
            before["data_dir"] = None
            before["start_from"] = "b/seed-3"
        # The order is kept too.
        assert json.dumps(content[part]) == json.dumps(before)


def test_lines_are_sorted_and_a_new_run_takes_the_place_of_its_like(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(
        "".join(
            json.dumps(content) + "\n"
            for content in (line("b", 10), line("a", 2, note="kept"))
        )
    )
    before = {run.key: run for run in runs_file.read_file(path)}
    assert [run.line for run in before.values()] == [1, 2]
    new = line("b", 10, rem={"seconds": 2.0, "models": {"rem": {}}})
    other = tmp_path / "other.jsonl"
    other.write_text(f"{json.dumps(new)}\n{json.dumps(line('b', 9))}\n")
    runs_file.add(path, runs_file.read_file(other))
    assert contents(path) == [
        {
            **content,
            "config": {**content["config"], "data_dir": None},
        }
        for content in (line("a", 2, note="kept"), line("b", 9), new)
    ]
    # The same once more changes nothing.
    text = path.read_bytes()
    runs_file.add(path, runs_file.read_file(other))
    assert path.read_bytes() == text
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "other.jsonl", "runs.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("{", "line 2 is not JSON: Expecting"),
        ("", "line 2 is not JSON"),
        ("<<<<<<< HEAD", "line 2 is not JSON"),
        ("[]", "line 2 must be an object with name and seed"),
        ("{}", "line 2 must have a name, a string, and a seed, .*name=None"),
        (line(seed="1"), "Received: name='x', seed='1'"),
        (line(seed=True), "whole number. Received: name='x', seed=True"),
        (line(config=None), "line 2, config must be an object"),
        (line(config={"dataset": "x"}), "line 2, config .* it has no seed"),
        (line(rem={"models": {}}), "line 2, rem .* it has no seconds"),
        (line("first"), "line 2: first with seed 0 is in line 1 already"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_line_is_named_and_nothing_is_written(
    tmp_path, broken, message
):
    path = tmp_path / "runs.jsonl"
    text = broken if isinstance(broken, str) else json.dumps(broken)
    path.write_text(f"{json.dumps(line('first'))}\n{text}\n")
    before = path.read_bytes()
    with pytest.raises(UserError, match=message) as error:
        runs_file.read(path)
    assert "runs.jsonl, line 2" in str(error.value)
    good = runs_file.read(write_run(tmp_path / "a", 3, 0.5))
    with pytest.raises(UserError):
        runs_file.add(path, good)
    assert path.read_bytes() == before


def test_what_is_no_finished_run_is_an_error(tmp_path):
    with pytest.raises(UserError, match="there is no .*gone.jsonl"):
        runs_file.read_file(tmp_path / "gone.jsonl")
    with pytest.raises(UserError, match="gone is no finished run"):
        runs_file.read(tmp_path / "gone")
    folder = write_run(tmp_path / "a", 0, 0.5)
    (folder / "config.json").write_text("[]")
    with pytest.raises(UserError, match="config.json must be an object"):
        runs_file.read(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json is not JSON"):
        runs_file.read(folder)
    (folder / "rem.json").unlink()
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="it has no rem.json"):
        runs_file.read(folder)
    # Nor is one whose parts were taken away.
    lacking = runs_file.FinishedRun("x", 0, {}, folder)
    with pytest.raises(UserError, match="a/config.json must be an object"):
        runs_file.add(tmp_path / "runs.jsonl", [lacking])
    assert not (tmp_path / "runs.jsonl").exists()
