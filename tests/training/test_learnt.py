"""Whether a network has learnt anything, and what a run then does."""

import keras
import numpy as np
import pytest

from cli import UserError
from tests.rem.evaluation.test_evaluate import report_of
from tests.training.test_run import command, metrics
from tfcaps import rem
from training import results


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


def test_only_a_baseline_that_has_learnt_nothing_ends_a_run():
    for rows in (
        [],
        ROWS[:1],
        [{"loss": 1.0}],  # of an older version
        [*ROWS, {**ROWS[1], "learnt": True}],
    ):
        results.check_learnt(rows)
    for compared, expected in (
        (None, r"48\.0% .* 50\.0%.*--epochs.*--force"),
        (0.66, r"dense head .* 66\.0% are right"),
    ):
        with pytest.raises(UserError, match=expected):
            results.check_learnt(ROWS, compared)


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
    assert "What to try: " in printed
    assert printed.count("the network has learnt nothing") == 2
