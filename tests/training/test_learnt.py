"""Whether a network has learnt anything, and what a run then does."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.rem.evaluation.test_evaluate import report_of
from tests.training.test_run import command, metrics
from tfcaps import rem
from training import learnt
from training.configs import Config


def report_with(counts, accuracy):
    """Returns a report of samples whose true classes are so frequent."""
    trees = rem.CouplingDictionary(len(counts))
    trees.update(np.zeros((sum(counts), 1), int), np.zeros(sum(counts), int))
    share = max(counts) / sum(counts)
    return report_of(
        dictionary=trees, majority_share=share, accuracy_quantized=accuracy
    )


@pytest.mark.parametrize(
    ("counts", "accuracy", "expected"),
    [
        # 0.5 + 2.33 * sqrt(0.25 / 100) = 0.6165
        ((50, 50), 0.61, False),
        ((50, 50), 0.62, True),
        # 0.9 + 2.33 * sqrt(0.09 / 100) = 0.9699
        ((10, 90), 0.96, False),
        ((10, 90), 0.98, True),
        ((10, 19), 0.0, None),  # too few
        ((0, 50), 1.0, None),  # one class
    ],
)
def test_accuracy_must_be_clearly_above_one_constant_answer(
    counts, accuracy, expected
):
    report = report_with(counts, accuracy)
    assert report.learnt is expected
    assert report.majority_share == max(counts) / sum(counts)
    saved = report.to_dict()
    assert saved["learnt"] is expected
    assert saved["majority_share"] == report.majority_share
    assert ("learnt nothing" in report.verdict) == (expected is False)
    assert ("trees are" in report.verdict) == (expected is not False)


ROWS = [
    {"loss": 1.0, "learnt": None},
    {
        "loss": 0.97,
        "learnt": False,
        "majority_share": 0.5,
        "test_accuracy_quantized": 0.48,
    },
]


def test_advice_is_of_what_was_seen():
    config = Config(epochs=8, batch_size=128)
    text = learnt.advice(config, 300, ROWS)
    assert "24 steps are few" in text
    assert "the loss hardly fell" in text
    fallen = [ROWS[0], {**ROWS[1], "loss": 0.5}]
    config = dataclasses.replace(config, epochs=500)
    assert learnt.advice(config, 300, fallen) == (
        "What to try: look whether the labels can be told from the images."
    )


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        (0.66, "is right for 66.0% too, so look whether the labels"),
        (0.68, "is right for 68.0%, so the labels can be told"),
    ],
)
def test_advice_looks_at_what_a_dense_head_learns(compared, expected):
    assert expected in learnt.advice(Config(), 300, ROWS, compared)
    with pytest.raises(learnt.UserError, match=expected):
        learnt.check(Config(), 300, ROWS, compared)


def test_only_a_baseline_that_has_learnt_nothing_ends_a_run():
    config = Config()
    learnt.check(config, 300, [])
    learnt.check(config, 300, ROWS[:1])
    learnt.check(config, 300, [{"loss": 1.0}])  # of an older version
    learnt.check(config, 300, [*ROWS, {**ROWS[1], "learnt": True}])
    with pytest.raises(learnt.UserError, match=r"48\.0% .* 50\.0%.*--force"):
        learnt.check(config, 300, ROWS)


@pytest.fixture
def random_labels(tmp_path):
    """Images of noise, and labels that nothing tells."""
    rng = np.random.default_rng(0)
    path = tmp_path / "noise.npz"
    arrays = {
        f"x_{part}": rng.random((40, 8, 8), dtype=np.float32)
        for part in ("train", "test")
    } | {f"y_{part}": np.arange(40) % 2 for part in ("train", "test")}
    np.savez(path, **arrays)
    return path


@pytest.mark.slow
def test_rem_is_not_trained_after_a_baseline_that_has_learnt_nothing(
    random_labels, tmp_path, capsys
):
    out = tmp_path / "run"
    flags = ("--rem", "--dataset", random_labels, "--epochs", 2, "--bare")
    assert command(*flags, "--out", out) == 2
    assert "the baseline has learnt nothing" in capsys.readouterr().err
    assert {row["model"] for row in metrics(out)} == {"baseline"}
    assert metrics(out)[-1]["learnt"] is False
    keras.utils.clear_session()
    assert command("--resume", "--out", out, "--bare", "--force") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "REM: " in printed and "steps are few" in printed
    assert printed.count("the network has learnt nothing") == 2
