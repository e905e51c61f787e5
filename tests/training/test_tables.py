"""The table of runs, and the one that stands in the guide."""

import json
from pathlib import Path

import pytest

from cli import UserError, run_command
from training import runs_file, tables

_ROOT = Path(__file__).parents[2]


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


def test_seeds_are_averaged_and_settings_kept_apart(tmp_path):
    lines = tables.table(
        [
            write_run(tmp_path / "a", 1, 0.97),
            write_run(tmp_path / "b", 3, 0.99),
            write_run(
                tmp_path / "c",
                1,
                0.5,
                epochs=9,
                counterfactual_necessity=1.0,
                coupling_ramp=1.0,
            ),
        ]
    ).splitlines()
    assert len(lines) == 4
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines
    ]
    assert rows[2] == [
        "x", "REM", "0.01", "–", "–", "2", "3", "98.00 ± 1.00", "98.00 ± 1.00",
        "2.00 ± 0.00", "6.00 ± 0.00", "8 ± 0", "–", "25.0 ± 0.0",
        "0.125 ± 0.000", "25.0 ± 0.0", "75.0 ± 0.0", "50.0 ± 0.0",
        "12.5 ± 0.0", "87.5 ± 0.0", "37.5 ± 0.0", "0.50 ± 0.00", "–",
        "80.0 ± 0.0", "12,345 ± 0", "20",
    ]  # fmt: skip
    assert rows[3][3:9] == ["–", "1, 0, ramp", "1", "9", "50.00", "50.00"]


def of_types(*values):
    """Returns the cell of models with these entropies of types."""
    (column,) = [c for c in tables.COLUMNS if c.optional and "types" in c.title]
    return column.write([{"type_entropy_bits": value} for value in values])


def test_a_measure_that_some_models_do_not_have_is_left_out():
    assert of_types(1.0) == "1.00"
    assert of_types(1.0, 3.0) == "2.00 ± 1.00"
    assert of_types(0.0) == "0.00"
    assert of_types(None) == of_types(1.0, None) == tables.NOTHING


def test_a_run_of_an_older_version_is_named(tmp_path):
    folder = write_run(tmp_path / "a", 1, 0.97)
    result = json.loads((folder / "rem.json").read_text())
    del result["models"]["rem"]["t_score"]
    (folder / "rem.json").write_text(json.dumps(result))
    with pytest.raises(UserError, match="rem.json has no 't_score'"):
        tables.table([folder])
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="config.json is not that of a run"):
        tables.table([folder])


def test_runs_of_folders_and_files_make_the_same_table(tmp_path):
    runs = [
        write_run(tmp_path / "a", 1, 0.97),
        write_run(tmp_path / "b", 3, 0.99),
        write_run(tmp_path / "c", 1, 0.5, epochs=9),
    ]
    text = tables.table(runs)
    kept = tmp_path / "all" / "runs.jsonl"
    tables.keep(runs[:2], kept, "before c")
    assert tables.table([kept, runs[2]]) == text
    tables.keep(runs[2:], kept)
    assert tables.table([kept]) == tables.table([kept.parent]) == text
    assert [run.key for run in runs_file.read_file(kept)] == [
        ("before c", 1), ("before c", 3), ("c", 1),
    ]  # fmt: skip
    # Files may be put together too.
    tables.keep([kept, runs[0]], tmp_path / "more.jsonl")
    assert len(runs_file.read_file(tmp_path / "more.jsonl")) == 4


def test_a_run_that_is_kept_twice_is_an_error(tmp_path):
    runs = [write_run(tmp_path / "a", 1, 0.9), write_run(tmp_path / "b", 1, 1)]
    with pytest.raises(UserError, match="b and .*a are both x with seed 1"):
        tables.keep(runs, tmp_path / "runs.jsonl", "x")
    assert not (tmp_path / "runs.jsonl").exists()


def command(*arguments):
    return run_command(tables.make_parser(), tables.main, map(str, arguments))


def test_the_command_prints_the_table_and_keeps_the_runs(tmp_path, capsys):
    run, kept = write_run(tmp_path / "a", 1, 0.97), tmp_path / "runs.jsonl"
    assert command(run, "--to", kept, "--name", "x") == 0
    assert capsys.readouterr().out.strip() == tables.table([run])
    assert [one.key for one in runs_file.read(kept)] == [("x", 1)]
    assert command(run, "--name", "x") == 2
    assert "--name needs --to" in capsys.readouterr().err
    assert command(tmp_path / "gone") == 2
    assert "is no finished run: it has no config" in capsys.readouterr().err


def test_the_guide_shows_what_the_command_prints():
    page = _ROOT / "docs" / "guides" / "results.md"
    guide = page.read_text("utf-8")
    command = "<!-- results: python training/tables.py results/data_sets -->"
    block = guide.split(command)[1].split("<!-- end of results -->")[0]
    assert block.strip() == tables.table([_ROOT / "results" / "data_sets"])
