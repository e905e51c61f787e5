"""The table of all networks after a short equal budget."""

import json
from pathlib import Path

from tests.test_run import tiny_data
from tfcaps.cli import run_command
from training import compare


def command(tmp_path, *flags):
    return run_command(
        compare.make_parser(),
        compare.compare,
        [
            "--dataset", tiny_data(tmp_path / "tiny.npz"), "--epochs", "1",
            "--samples", "8", "--runs", str(tmp_path / "runs"),
            "--to", str(tmp_path / "networks"), *flags,
        ],
    )  # fmt: skip


def test_table_has_two_rows_for_each_network_and_runs_once(tmp_path, capsys):
    flags = ("--networks", "dr_capsnet_small")
    assert command(tmp_path, *flags) == 0
    lines = (tmp_path / "networks.md").read_text("utf-8").splitlines()
    assert "1 epochs" in lines[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[4:]
    ]
    assert [row[2:4] for row in rows[2:]] == [["8", "Baseline"], ["8", "REM"]]
    assert {row[0] for row in rows[2:]} == {"dr_capsnet_small"}
    (result,) = json.loads((tmp_path / "networks.json").read_text())
    assert result["models"]["rem"]["seconds_per_step"] > 0
    assert result["config"]["data_dir"] is None
    before = (tmp_path / "networks.md").stat().st_mtime_ns
    metrics = tmp_path / "runs" / "dr_capsnet_small" / "metrics.jsonl"
    written = metrics.stat().st_mtime_ns
    assert command(tmp_path, *flags) == 0
    assert metrics.stat().st_mtime_ns == written
    assert (tmp_path / "networks.md").stat().st_mtime_ns > before
    assert command(tmp_path, *flags, "--samples", "7") == 2
    assert "has samples=8, not 7; give another" in capsys.readouterr().err
    assert command(tmp_path, *flags, "--dataset", "mnist") == 2
    assert "not mnist; give another" in capsys.readouterr().err
    # One that was stopped is not gone on with under another budget either.
    (tmp_path / "runs" / "dr_capsnet_small" / "rem.json").unlink()
    assert command(tmp_path, *flags, "--epochs", "2") == 2
    assert "has epochs=1, not 2; give another" in capsys.readouterr().err


def test_a_run_that_fails_is_named_and_writes_no_table(tmp_path, capfd):
    # Too small for the windows of this network.
    assert command(tmp_path, "--networks", "dr_capsnet") == 2
    assert "dr_capsnet failed, see above." in capfd.readouterr().err
    assert not (tmp_path / "networks.md").exists()


def test_the_table_in_the_repository_is_that_of_its_json():
    results = Path(__file__).parents[1] / "results"
    kept = json.loads((results / "networks.json").read_text("utf-8"))
    text = (results / "networks.md").read_text("utf-8")
    assert compare.page(kept) == text
