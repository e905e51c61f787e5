"""Finished runs, in folders and in one file."""

import json

import pytest

from cli import UserError, run_command
from training import tables


def write_run(folder, seed, accuracy, **changes):
    folder.mkdir()
    config = {
        "dataset": "x.npz",
        "epochs": 3,
        "seed": seed,
        "data_dir": None,
        "decay": 0.01,
    }
    model = {
        "accuracy": accuracy, "accuracy_quantized": accuracy,
        "entropy_bits": 2.0, "ceiling_bits": 6.0, "median_keys": 7.5,
        "nonuniform_share": 0.25, "t_score": 0.125, "sparsity": 0.8,
        "nonzero_parameters": 12345, "necessity": {"zero": 0.25, "mean": 0.5},
        "necessity_random": {"zero": 0.75, "mean": 0.125}, "size": 0.375,
        "sufficiency": {"zero": 0.875, "mean": 0.0}, "class_share": 0.5,
        "stability": None,
    }  # fmt: skip
    result = {"seconds": 10.0 * seed, "models": {"rem": model}}
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    (folder / "rem.json").write_text(json.dumps(result))
    return folder


def keep(paths, to, *name):
    flags = ("--to", to, *(("--name", *name) if name else ()))
    tables.main(tables.make_parser().parse_args([*map(str, [*paths, *flags])]))


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
    runs = [
        write_run(tmp_path / "a", 1, 0.97),
        write_run(tmp_path / "b", 3, 0.99),
        write_run(tmp_path / "c", 1, 0.5, epochs=9),
    ]
    kept = tmp_path / "all" / "runs.jsonl"
    keep(runs[:2], kept, "before c")
    keep(runs[2:], kept)
    assert [run.key for run in tables.read_file(kept)] == [
        ("before c", 1), ("before c", 3), ("c", 1),
    ]  # fmt: skip
    # Files may be put together too.
    keep([kept.parent, runs[0]], tmp_path / "more.jsonl")
    assert len(tables.read_file(tmp_path / "more.jsonl")) == 4


def command(*arguments):
    return run_command(tables.make_parser(), tables.main, map(str, arguments))


def test_the_command_keeps_the_runs(tmp_path, capsys):
    run, kept = write_run(tmp_path / "a", 1, 0.97), tmp_path / "runs.jsonl"
    assert command(run, "--to", kept, "--name", "x") == 0
    assert [one.key for one in tables.read(kept)] == [("x", 1)]
    assert command(tmp_path / "gone", "--to", kept) == 2
    assert "is no finished run: it has no config" in capsys.readouterr().err


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
    tables.add(path, tables.read(folder))
    (content,) = contents(path)
    assert list(content) == [
        "name", "seed", "config", "environment", "seconds", "rem",
    ]  # fmt: skip
    assert (content["name"], content["seed"]) == ("a", 3)
    assert content["rem"]["models"]["rem"]["accuracy"] == 0.1 + 0.2
    for part in tables.PARTS:
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
    new = line("b", 10, rem={"seconds": 2.0, "models": {"rem": {}}})
    other = tmp_path / "other.jsonl"
    other.write_text(f"{json.dumps(new)}\n{json.dumps(line('b', 9))}\n")
    tables.add(path, tables.read_file(other))
    assert contents(path) == [
        {
            **content,
            "config": {**content["config"], "data_dir": None},
        }
        for content in (line("a", 2, note="kept"), line("b", 9), new)
    ]
    # The same once more changes nothing.
    text = path.read_bytes()
    tables.add(path, tables.read_file(other))
    assert path.read_bytes() == text
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "other.jsonl", "runs.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("<<<<<<< HEAD", "line 2 is not JSON"),
        ("[]", "line 2 must be an object with name and seed"),
        ("{}", "line 2 must be an object with name and seed"),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_written(
    tmp_path, broken, message
):
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{json.dumps(line('first'))}\n{broken}\n")
    before = path.read_bytes()
    with pytest.raises(UserError, match=message):
        tables.read(path)
    good = tables.read(write_run(tmp_path / "a", 3, 0.5))
    with pytest.raises(UserError):
        tables.add(path, good)
    assert path.read_bytes() == before


def test_what_is_no_finished_run_is_an_error(tmp_path):
    for name, text in (("config", "{"), ("rem", "{}")):
        with pytest.raises(UserError, match=f"it has no {name}.json"):
            tables.read(tmp_path)
        (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(UserError, match="config.json is not JSON"):
        tables.read(tmp_path)
