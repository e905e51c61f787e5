"""Experiments whose runs take no time, for the tests of what is around them."""

from functools import partial

from experiments import experiment
from experiments import folder as experiment_folder
from experiments import run as experiments
from experiments.experiment import Experiment, Row
from tests.commands import told_by
from training.configs import Config
from training.tables import Column

# Every experiment, by every recipe.
ALL = [
    (name, recipe)
    for name in experiment.NAMES
    for recipe in (
        experiment.RECIPES if name in experiment.TABLES_OF_THE_PAPER else [None]
    )
]
COLUMNS = (
    Column("accuracy, %", "accuracy", 2, 100),
    Column("entropy, bits", "entropy_bits", 2),
    Column("sparsity, %", "sparsity", 1, 100, "median"),
)
# Where rows find what these ask for, without trees unless quantised.
FIELDS = {
    shown: (f"{model}.{accuracy}", trees and f"{model}.entropy_bits",
            f"{model}.sparsity")
    for shown, model, accuracy, trees in (
        ("vanilla", "baseline", "accuracy", None),
        ("+Q", "baseline", "accuracy_quantized", True),
        ("+REM", "rem", "accuracy_quantized", True),
        ("pruned", "rem", "accuracy", None),
    )
}  # fmt: skip
# Stands for `training/run.py`: fails, or writes numbers made of the seed.
FAKE = """
import json, sys
from pathlib import Path

run = Path(sys.argv[sys.argv.index("--out") + 1])
config = json.loads((run / "config.json").read_text())
with open(run / "started", "a") as file:
    file.write("once ")
if config["dataset"] == "absent":
    print("training/run.py: error: absent is not in", config["data_dir"])
    sys.exit(2)
if start := config["start_from"]:
    assert (Path(start) / "rem.json").exists()
if config["dataset"] == "broken":
    raise RuntimeError("it | broke")
if config["dataset"] == "diverged":
    (run / "data.json").write_text("{}")
    print("training/run.py: error: loss became nan", file=sys.stderr)
    sys.exit(2)
seed = config["seed"]

def model(shift):
    return {
        "accuracy": 0.9 + seed / 100, "accuracy_quantized": 0.8 + seed / 100,
        "entropy_bits": seed + shift, "sparsity": [0, 0.5, 0.9][seed % 3],
        "per_class": {"entropy_bits": [shift, 2 * seed + shift][::(-1) ** seed],
                      "num_keys": [seed, 10 * seed]},
    }

(run / "environment.json").write_text('{"devices": ["cpu:0"], "cpus": 2}')
models = {"baseline": model(2.0), "rem": model(0.0)}
(run / "rem.json").write_text(json.dumps({"seconds": None, "models": models}))
"""


def row(dataset, shown="+REM", cells=(), gone=None, **changes):
    return Row(
        (dataset, shown),
        dataset,
        Config(dataset=dataset, **{"rem": True, **changes}),
        FIELDS[shown],
        cells or (None,) * len(COLUMNS),
        gone,
    )


def small(*rows, seeds=(0, 1, 2)):
    return Experiment(
        "Small", ("data set", "model"), COLUMNS, rows, seeds, ("A note.",)
    )


def install(tmp_path, monkeypatch):
    """Makes every experiment a small one whose runs take no time.

    Returns its rows, a list that a test may change.
    """
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(experiments, "_COMMAND", script)
    (tmp_path / "data").mkdir()
    rows = [
        row("good", "+Q", ("82.00 ± 0.50", "3.25 ± 0.10", None)),
        row("good", "+REM", (None, "0.50", "55.0")),
    ]

    def load(name, recipe=None):
        return small(*rows)

    monkeypatch.setattr(experiment_folder, "load", load)
    return rows


command = partial(told_by, experiments.main)


def call(tmp_path, *flags, status=0):
    return command(
        "table_1", "--out", tmp_path / "out", "--data-dir", tmp_path / "data",
        *flags, status=status,
    )  # fmt: skip


def cells(tmp_path, name="out"):
    lines = (tmp_path / name / "table.md").read_text("utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]


def starts(tmp_path):
    return {
        f"{path.parents[1].name}/{path.parent.name}": len(
            path.read_text().split()
        )
        for path in (tmp_path / "out").glob("*/*/started")
    }
