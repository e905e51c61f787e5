"""Several starts of a baseline, of which the best is trained on."""

import json

import pytest

from tests.training.test_run import command, metrics, tiny_data
from training import train

_FLAGS = (
    "--model constellation_capsnet --part-types 2 --bare --epochs 3".split()
)


@pytest.mark.slow
def test_half_of_the_starts_go_on_also_after_a_stop(
    tmp_path, capsys, monkeypatch
):
    data = tiny_data(tmp_path / "data.npz", size=16)
    flags = ["--dataset", data, "--trials", "5", *_FLAGS]
    assert command(*flags, "--out", tmp_path / "whole") == 0
    losses = json.loads((tmp_path / "whole" / "trials.json").read_text())
    assert set(losses["epoch 1"]) == {"1", "2", "3", "4", "5"}
    best = sorted(losses["epoch 1"], key=losses["epoch 1"].get)
    assert set(losses["epoch 2"]) == set(best[:2])
    chosen = min(losses["epoch 2"], key=losses["epoch 2"].get)
    assert f"start {chosen} is trained on" in capsys.readouterr().out

    measure, calls = train._loss_of_start, []

    def stopped(setup):
        calls.append(setup)
        if len(calls) == 6:  # in the second epoch, trained but not measured
            raise KeyboardInterrupt
        return measure(setup)

    monkeypatch.setattr(train, "_loss_of_start", stopped)
    assert command(*flags, "--out", tmp_path / "stopped") == 130
    assert command("--resume", "--bare", "--out", tmp_path / "stopped") == 0
    resumed = json.loads((tmp_path / "stopped" / "trials.json").read_text())
    for epoch, of_starts in losses.items():
        assert resumed[epoch] == pytest.approx(of_starts, rel=1e-4)
    last, again = (metrics(tmp_path / n)[-1] for n in ("whole", "stopped"))
    assert again["loss"] == pytest.approx(last["loss"], rel=1e-4)
