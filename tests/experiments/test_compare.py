"""What all networks cost, measured with a short equal budget."""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cli import run_command
from experiments import compare
from tests.nightly import nightly
from tests.training.test_run import tiny_data
from training.configs import Config
from training.flags import make_parser

_KEPT = Path(__file__).parents[2] / "results"


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


def finish(command):
    """Leaves what a run of `training/run.py` leaves, and trains nothing."""
    flags = vars(make_parser().parse_args(command[2:]))
    names = [field.name for field in dataclasses.fields(Config)]
    given = {n: flags[n] for n in names if flags.get(n) is not None}
    kept = next(
        result
        for result in json.loads((_KEPT / "networks.json").read_text())
        if result["config"]["model"] == given["model"]
    )
    metrics = [
        {
            "model": name,
            "loss": kept["models"][name][f"{when}_loss"],
            "seconds_per_step": kept["models"][name]["seconds_per_step"],
        }
        for name in ("baseline", "rem")
        for when in ("first", "last")
    ]
    folder = flags["out"]
    folder.mkdir(parents=True)
    for name, content in (
        ("config.json", dataclasses.asdict(Config(**given))),
        ("environment.json", kept["environment"]),
        ("rem.json", {"models": kept["models"]}),
    ):
        (folder / name).write_text(json.dumps(content))
    lines = [f"{json.dumps(row)}\n" for row in metrics]
    (folder / "metrics.jsonl").write_text("".join(lines))
    return subprocess.CompletedProcess(command, 0)


@pytest.mark.parametrize(
    "trained", [False, pytest.param(True, marks=[pytest.mark.slow, nightly])]
)
def test_table_has_a_row_for_each_network_and_runs_once(
    tmp_path, capsys, monkeypatch, trained
):
    if not trained:
        monkeypatch.setattr(compare.subprocess, "run", finish)
    flags = ("--networks", "dr_capsnet_small")
    assert command(tmp_path, *flags) == 0
    lines = (tmp_path / "networks.md").read_text("utf-8").splitlines()
    assert "1 epochs" in lines[2]
    head, _, row = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[6:]
    ]
    shown = dict(zip(head, row, strict=True))
    assert shown["network"] == "dr_capsnet_small" and shown["images"] == "8"
    (result,) = json.loads((tmp_path / "networks.json").read_text())
    assert result["config"]["data_dir"] is None
    parameters = result["models"]["baseline"]["total_parameters"]
    assert shown["parameters"] == f"{parameters:,}"
    assert shown["MB"] == f"{4 * parameters / 1e6:.1f}"
    left = int(shown["not zero after REM"].replace(",", ""))
    assert 0 < left < parameters
    seconds = result["models"]["rem"]["seconds_per_step"]
    assert seconds > 0
    assert shown["s / step, REM"] == f"{seconds:.3f}"
    # There are but 8 images to a batch.
    assert shown["images / s, REM"] == f"{8 / seconds:.1f}"
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


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_writes_no_table(tmp_path, capfd):
    # Too small for the windows of this network.
    assert command(tmp_path, "--networks", "dr_capsnet") == 2
    assert "dr_capsnet failed, see above." in capfd.readouterr().err
    assert not (tmp_path / "networks.md").exists()


def test_a_page_shows_no_more_than_a_short_budget_can():
    page = compare.page(json.loads((_KEPT / "networks.json").read_text()))
    head = next(line for line in page.splitlines() if line.startswith("|"))
    for word in ("accuracy", "entropy", "loss", "T-score", "uniform"):
        assert word not in head
    assert "There are no accuracies or entropies here: after so few" in page


def test_a_page_is_written_from_its_json_alone(tmp_path, capsys):
    shutil.copyfile(_KEPT / "networks.json", tmp_path / "networks.json")
    assert command(tmp_path, "--page") == 0
    page = (tmp_path / "networks.md").read_bytes()
    assert page == (_KEPT / "networks.md").read_bytes()
    assert not (tmp_path / "runs").exists()
    (tmp_path / "networks.json").write_text("{")
    assert command(tmp_path, "--page") == 2
    assert "networks.json is not JSON" in capsys.readouterr().err
    (tmp_path / "networks.json").unlink()
    assert command(tmp_path, "--page") == 2
    assert "networks.json: run without --page" in capsys.readouterr().err
    assert (tmp_path / "networks.md").read_bytes() == page
