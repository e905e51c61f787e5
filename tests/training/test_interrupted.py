"""Real runs, killed at random moments, end with the bits of one that was not.

`NIGHTLY=1` kills 100 times and draws and exports too, otherwise it is 2 kills
of bare runs. The seed of the moments is printed; `KILL_SEED` repeats them.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest

import tfcaps  # noqa: F401 (registers the layers)
from tests.nightly import NIGHTLY
from tests.training.test_run import metrics, tiny_data
from tfcaps.rem import CouplingDictionary

_COMMAND = Path(__file__).parents[2] / "training" / "run.py"
_KILLS = 100 if NIGHTLY else 2
# Kills of one run before it is left alone to the end.
_KILLS_OF_A_RUN = 5
_FLAGS = (
    "--rem", "--deterministic", "--epochs", "6", "--batch-size", "4",
    "--seed", "3", "--final-sparsity", "0.6", "--decay", "0.01",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was not stopped, its data, and how long it took."""
    folder = tmp_path_factory.mktemp("interrupted")
    data = tiny_data(folder / "tiny.npz")
    started = time.monotonic()
    assert start(data, folder / "whole").wait() == 0
    return folder / "whole", data, time.monotonic() - started


def start(data, out):
    flags = ["--resume"] if out.exists() else [*_FLAGS, "--dataset", data]
    flags += [] if NIGHTLY else ["--bare"]
    return subprocess.Popen(
        [sys.executable, str(_COMMAND), *flags, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # the export, too, is killed
    )


def contents(folder):
    """Returns what must be the same, bit for bit."""
    reports = json.loads((folder / "rem.json").read_text("utf-8"))["models"]
    rows = {(row["model"], row["epoch"]): row for row in metrics(folder)}
    for row in rows.values():
        del row["seconds_per_step"]
    weights = [
        array.tolist()
        for name in ("model.keras", "baseline.keras")
        for array in keras.models.load_model(folder / name).get_weights()
    ]
    trees = CouplingDictionary.load(folder / "dictionary.npz")
    return {
        "reports": reports,
        "metrics": [rows[key] for key in sorted(rows)],
        "weights": weights,
        "keys": trees.summary(),
        # Pictures may hold fonts and dates; that they are there is enough.
        "files": sorted(
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.is_file()
        ),
    }


@pytest.mark.slow
def test_killed_runs_end_like_one_that_was_not(whole, tmp_path):
    reference, data, seconds = whole
    expected = contents(reference)
    assert ("report.html" in expected["files"]) == NIGHTLY
    seed = int(os.environ.get("KILL_SEED", random.randrange(10**6)))
    print(f"KILL_SEED={seed}")
    moments = random.Random(seed)
    kills = number = 0
    while kills < _KILLS:
        number += 1
        out = tmp_path / f"run-{number}"
        for _ in range(min(_KILLS_OF_A_RUN, _KILLS - kills)):
            process = start(data, out)
            try:
                process.wait(moments.uniform(0.0, seconds))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                kills += 1
            else:
                assert process.returncode == 0
        assert start(data, out).wait() == 0
        assert contents(out) == expected
        print(f"{kills} kills, run {number} is the same", flush=True)
