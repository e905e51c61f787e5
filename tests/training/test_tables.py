"""Finished runs, in folders and in one file."""

import json
from functools import partial

from cli import run_command
from tests.commands import told_by
from tests.refusals import assert_user_error
from training import tables


def line(name="x", seed=0, **changes):
    config = {"dataset": "x", "seed": seed, "data_dir": None}
    model = {"accuracy": 0.1 + 0.2}
    rem = {"seconds": 1.0, "models": {"rem": model}}
    return {"name": name, "seed": seed, "config": config, "rem": rem} | changes


def write_run(folder, seed, **changes):
    folder.mkdir()
    parts = line(seed=seed)
    parts["config"] |= changes
    for part in ("config", "rem"):
        (folder / f"{part}.json").write_text(json.dumps(parts[part]))
    return folder


def write_lines(path, *contents):
    path.write_text("".join(json.dumps(each) + "\n" for each in contents))
    return path


def contents(path):
    return [json.loads(text) for text in path.read_text("utf-8").splitlines()]


command = partial(
    told_by, lambda argv: run_command(tables.make_parser(), tables.main, argv)
)


def test_a_measure_that_some_models_do_not_have_is_left_out():
    column = tables.Column("x", "x", 2, optional=True)
    for values, cell in (
        ([1.0], "1.00"),
        ([1.0, 3.0], "2.00 ± 1.00"),
        ([0.0], "0.00"),
        ([None], tables.NOTHING),
        ([1.0, None], tables.NOTHING),
    ):
        assert column.write([{"x": value} for value in values]) == cell


def test_runs_of_folders_and_files_are_kept_together(tmp_path):
    one, three, other = (
        write_run(tmp_path / name, seed)
        for name, seed in (("a", 1), ("b", 3), ("c", 1))
    )
    kept = tmp_path / "all" / "runs.jsonl"
    command(one, three, "--to", kept, "--name", "before c")
    command(other, "--to", kept)
    assert [run.key for run in tables.read(kept)] == [
        ("before c", 1), ("before c", 3), ("c", 1),
    ]  # fmt: skip
    # Files may be put together too.
    command(kept.parent, one, "--to", tmp_path / "more.jsonl")
    assert len(tables.read_file(tmp_path / "more.jsonl")) == 4
    told = command(tmp_path / "gone", "--to", kept, status=2)
    assert "is no finished run: " in told and "config.json" in told


def test_a_line_holds_what_the_files_of_a_run_folder_do(tmp_path):
    folder = write_run(
        tmp_path / "a", 3, data_dir="/me", start_from="/me/runs/b/seed-3"
    )
    (folder / "seconds.json").write_text('{"seconds": 179.4}')
    (folder / "environment.json").write_text('{"cpus": 2}')
    for left_out in ("data.json", "metrics.jsonl"):
        (folder / left_out).write_text("{}")
    path = tmp_path / "runs.jsonl"
    tables.add(path, tables.read(folder))
    (content,) = contents(path)
    assert list(content) == [
        "name", "seed", "config", "environment", "seconds", "rem",
    ]  # fmt: skip
    assert (content["name"], content["seed"]) == ("a", 3)
    for part in tables.PARTS:
        before = json.loads((folder / f"{part}.json").read_text())
        if part == "config":
            # No folder of this machine.
            before |= {"data_dir": None, "start_from": "b/seed-3"}
        # The order is kept too.
        assert json.dumps(content[part]) == json.dumps(before)


def test_lines_are_sorted_and_a_new_run_takes_the_place_of_its_like(tmp_path):
    first, second = line("b", 10), line("a", 2, note="kept")
    path = write_lines(tmp_path / "runs.jsonl", first, second)
    new = line("b", 10, rem={"seconds": 2.0, "models": {"rem": {}}})
    other = write_lines(tmp_path / "other.jsonl", new, line("b", 9))
    for _ in range(2):  # the same once more changes nothing
        tables.add(path, tables.read_file(other))
        assert contents(path) == [second, line("b", 9), new]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_broken_line_is_named_and_nothing_is_written(tmp_path):
    good = tables.read(write_run(tmp_path / "a", 3))
    for broken, message in (
        ("<<<<<<< HEAD", "line 2 must be an object of JSON"),
        ("[]", "line 2 must be an object of JSON with name and seed"),
        ("{}", "line 2 must be an object of JSON with name and seed"),
    ):
        path = write_lines(tmp_path / "runs.jsonl", line())
        path.write_text(f"{path.read_text()}{broken}\n")
        before = path.read_bytes()
        assert_user_error(message, tables.add, path, good)
        assert path.read_bytes() == before


def test_what_is_no_finished_run_is_an_error(tmp_path):
    message = "is no finished run: "
    for name, text in (("config", '{"seed": 0}'), ("rem", "{")):
        assert_user_error(f"{message}.*{name}.json", tables.read, tmp_path)
        (tmp_path / f"{name}.json").write_text(text)
    assert_user_error(message, tables.read, tmp_path)
