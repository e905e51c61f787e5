"""The table of runs, and the one that stands in the guide."""

import json
from pathlib import Path

import pytest

from tfcaps.cli import UserError
from training import tables

_ROOT = Path(__file__).parents[1]


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
            write_run(tmp_path / "c", 1, 0.5, epochs=9),
        ]
    ).splitlines()
    assert len(lines) == 4
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines
    ]
    assert rows[2] == [
        "x", "REM", "0.01", "–", "2", "3", "98.00 ± 1.00", "98.00 ± 1.00",
        "2.00 ± 0.00", "6.00 ± 0.00", "8 ± 0", "–", "25.0 ± 0.0",
        "0.125 ± 0.000", "25.0 ± 0.0", "75.0 ± 0.0", "50.0 ± 0.0",
        "12.5 ± 0.0", "87.5 ± 0.0", "37.5 ± 0.0", "0.50 ± 0.00", "–",
        "80.0 ± 0.0", "12,345 ± 0", "20",
    ]  # fmt: skip
    assert rows[3][4:8] == ["1", "9", "50.00", "50.00"]


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


def test_the_guide_shows_what_the_command_prints():
    page = _ROOT / "docs" / "guides" / "results.md"
    guide = page.read_text("utf-8")
    _, block = guide.split("<!-- results: python training/tables.py")
    block = block.split("-->\n", 1)[1].split("<!-- end of results -->")[0]
    folders = sorted((_ROOT / "results").glob("*/seed-*"))
    assert folders
    assert block.strip() == tables.table(folders)
