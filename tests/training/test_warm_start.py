"""REM that begins with the weights of the baseline."""

import keras
import numpy as np
import pytest

from tests.training.test_run import command, tiny_data
from training import objectives
from training.folder import RunFolder


def weights(path):
    return keras.models.load_model(path, compile=False).get_weights()


@pytest.mark.slow
@pytest.mark.parametrize("warm", [True, False])
def test_rem_begins_where_the_baseline_ended(tmp_path, monkeypatch, warm):
    begun = {}
    compiled = objectives.compile_model

    def note(model, name, config, steps, network):
        begun[name] = network.get_weights()
        compiled(model, name, config, steps, network)

    monkeypatch.setattr(objectives, "compile_model", note)
    data = tiny_data(tmp_path / "tiny.npz")
    flag = "--warm-start" if warm else "--no-warm-start"
    flags = ("--rem", "--dataset", data, "--epochs", 1, "--bare", "--force")
    assert command(*flags, flag, "--out", tmp_path / "run") == 0
    expected = begun["baseline"]
    if warm:
        expected = weights(tmp_path / "run" / "baseline.keras")
        assert not np.array_equal(expected[0], begun["baseline"][0])
    for mine, theirs in zip(begun["rem"], expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_without_a_baseline_there_is_nothing_to_begin_with(tmp_path):
    data = tiny_data(tmp_path / "tiny.npz")
    flags = ("--rem", "--dataset", data, "--epochs", 1, "--bare")
    out = tmp_path / "run"
    assert command(*flags, "--warm-start", "--no-baseline", "--out", out) == 0
    assert RunFolder.open(out).config.warm_start


def test_a_warm_start_needs_rem(tmp_path, capsys):
    data = tiny_data(tmp_path / "tiny.npz")
    out = tmp_path / "run"
    assert command("--dataset", data, "--warm-start", "--out", out) == 2
    assert "--warm-start need --rem" in capsys.readouterr().err
