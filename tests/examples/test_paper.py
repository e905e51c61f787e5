"""Tables of the paper: their runs, what is resumed, and what they show."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from cli import run_command
from examples.paper import experiment, table
from examples.paper import run as paper
from examples.paper.experiment import Experiment, Row
from tests.commands import told_by
from training.configs import Config
from training.tables import Column, read_file

RESULTS = Path(__file__).parents[2] / "results"
KEPT = sorted(path.parent for path in RESULTS.glob("*/experiment.json"))
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
)
# Stands for `training/run.py`: fails, or writes numbers made of the seed.
FAKE = """
import json, sys
from pathlib import Path

run = Path(sys.argv[sys.argv.index("--out") + 1])
config = json.loads((run / "config.json").read_text())
with open(run / "started", "a") as file:
    file.write("once ")
if start := config["start_from"]:
    assert (Path(start) / "rem.json").exists()
if config["dataset"] == "absent":
    sys.exit("there is no such data")
seed = config["seed"]
classes = [2.0, 2 * seed + 2.0][::(-1) ** seed]
models = {"rem": {
    "accuracy_quantized": 0.8 + seed / 100, "entropy_bits": seed + 2.0,
    "per_class": {"entropy_bits": classes},
}}
(run / "environment.json").write_text('{"cpus": 2}')
(run / "rem.json").write_text(json.dumps({"seconds": 7.0, "models": models}))
"""


def row(dataset, cells=(None, None), **changes):
    config = Config(dataset=dataset, **{"rem": True, **changes})
    fields = ("rem.accuracy_quantized", "rem.entropy_bits")
    return Row((dataset,), dataset, config, fields, cells)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Makes every experiment one of a few runs that take no time."""
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(paper, "_COMMAND", tmp_path / "fake.py")
    rows = [row("good", ("82.00 ± 0.50", "3.25 ± 0.10"))]

    def load(name, recipe=None):
        heads, seeds = ("data set",), (0, 1, 2)
        return Experiment("Small", heads, COLUMNS, tuple(rows), seeds)

    for module in (experiment, table):
        monkeypatch.setattr(module, "load", load)
    return rows


def main(argv):
    return run_command(paper.make_parser(), paper.run, argv)


command = partial(told_by, main)


@pytest.fixture
def call(tmp_path, rows):
    return partial(command, "table_1", "--out", tmp_path / "out")


def cells(folder):
    """Returns the rows of a table, of which further columns stand below."""
    texts = (folder / "table.md").read_text("utf-8").split("\n\n")
    first, *others = (
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines()
        ]
        for text in texts
        if text[0] == "|"
    )
    assert all(len(rows[0]) <= 8 for rows in (first, *others))
    return [
        sum((row[1:] for row in more), line)
        for line, *more in zip(first, *others, strict=True)
    ]


def test_a_table_has_ours_published_and_the_difference(call, tmp_path):
    call()
    head, _, line = cells(tmp_path / "out")
    assert head == [
        "data set", "accuracy, %", "published", "difference", "entropy, bits",
        "published", "difference", "seeds done", "epochs",
    ]  # fmt: skip
    # Seeds 0, 1, 2: their deviation is sqrt(2/3). Classes have 2 and
    # 2 * seed + 2 bits, turned round for seed 1: on average 8/3 and 10/3.
    assert line == [
        "good", "81.00 ± 0.82", "82.00 ± 0.50", "-1.00", "3.00 ± 0.82 (0.33)",
        "3.25 ± 0.10", "-0.25", "3 of 3", "8",
    ]  # fmt: skip


def test_seeds_add_up_and_finished_runs_are_not_repeated(call, tmp_path):
    out = tmp_path / "out"
    assert "2 runs, 2 to do" in call("--seeds", 1, 0, 1)
    assert "3 runs, 1 to do" in call()
    starts = [*out.glob("*/*/started")]
    assert {path.read_text() for path in starts} == {"once "}
    assert len(starts) == 3
    # What ended unseen is kept.
    (out / "runs.jsonl").unlink()
    call()
    assert {path.read_text() for path in starts} == {"once "}
    # What is kept makes the same table without the run folders.
    before = (out / "table.md").read_bytes()
    shutil.rmtree(out / "good")
    (out / "table.md").unlink()
    command("--tables", out, tmp_path)
    assert (out / "table.md").read_bytes() == before
    lines = (out / "runs.jsonl").read_text("utf-8").splitlines()
    (out / "runs.jsonl").write_text(f"{lines[2]}\n", "utf-8")
    command("--tables", out)
    assert cells(out)[2][-2] == "1 of 3"


def test_a_crash_loses_no_other_run_and_patterns_choose(call, rows, tmp_path):
    rows[:] = [row("absent"), row("good")]
    error = call("--seeds", 0, status=2)
    assert "1 of 2 runs failed, and said above why: absent, seed 0" in error
    done = [line[-2] for line in cells(tmp_path / "out")[2:]]
    assert done == ["0 of 1", "1 of 1"]
    assert "1 runs, 0 to do" in call("--only", "go*", "--seeds", 0)
    message = call("--only", "nope", status=2)
    assert "no run 'nope'; it has absent, good" in message


def test_a_run_begins_when_that_which_it_starts_from_is_done(
    call, rows, tmp_path
):
    rows[:] = [row("good"), row("later", start_from="good")]
    call("--seeds", 0)
    done = [line[-2] for line in cells(tmp_path / "out")[2:]]
    assert done == ["1 of 1"] * 2
    rows[1] = row("later", start_from="other")
    message = command("--tables", tmp_path / "out", status=2)
    assert "start_from='good'" in message


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"epochs": 9}, "epochs=8, but the experiment's run good has epochs=9"),
        # Those of REM do not matter without it.
        ({"coupling_spread": 9.0}, None),
    ],
)
def test_a_run_with_other_settings_is_an_error(call, rows, wanted, said):
    without = {"rem": False, "baseline": True}
    rows[:] = [row("good", **without)]
    call("--seeds", 0)
    rows[:] = [row("good", **without, **wanted)]
    message = call("--seeds", 0, status=2 if said else 0)
    assert not said or f"out/runs.jsonl, line 1 has {said}" in message


def test_mistakes_are_one_line_and_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = json.dumps({"recipe": None, "seeds": [0], "name": "table_99"})
    for name, text in (("old", old), ("broken", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.json").write_text(text)
    before = sorted(tmp_path.rglob("*"))
    for flags, message in (
        ("", "give one of: an experiment, --tables"),
        ("table_99", "invalid choice: 'table_99'"),
        ("table_1 --seeds -1", "is not a whole number from 0"),
        ("table_1 --data-dir nowhere", "'nowhere' is not a folder"),
        ("--tables nowhere", "no folder of --tables has an experiment.json"),
        ("--tables broken", "is not that of an experiment"),
        ("--tables old", "unknown experiment 'table_99'"),
        ("strategies --recipe short", "has settings of its own"),
        ("table_10 --only a", "no run 'a'; it has tiny_imagenet"),
    ):
        error = command(*flags.split(), status=2)
        assert message in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_printed_numbers_are_read_and_nothing_else():
    for text, value in (("92.76 ± 0.21", 92.76), ("0", 0.0), ("6.8M", 6.8e6)):
        assert table.parse(text) == value
    for text in ("", "-", "about 3", "3 ±", "3%"):
        with pytest.raises(ValueError, match="must be a printed number"):
            table.parse(text)


def test_tables_that_share_a_run_agree_on_its_settings():
    configs = {}
    for name, recipe in ALL:
        for run, shown in experiment.load(name, recipe).runs.items():
            if name in experiment.TABLES_OF_THE_PAPER:
                config = configs.setdefault((run, recipe), shown.config)
                assert config == shown.config
    # Tables 6 and 11 have no runs of their own.
    assert len(configs) == 2 * (16 + 2 + 2 + 6 + 3 + 4 + 1 + 1)


def test_recipes_are_those_of_the_paper():
    short, full = (
        experiment.load("table_1", recipe).runs["cifar10-dr_capsnet"].config
        for recipe in ("short", "paper")
    )
    assert short.final_sparsity == pytest.approx(0.8117)
    assert (full.pruning, full.decay, full.patience) == ("iterative", 1e-4, 200)
    assert full.learning_rate == 1e-3 and full.learning_rate_decay == 0.99
    assert full.batch_size == 128 and full.model == "dr_capsnet_64"
    gamma = experiment.load("table_1").runs["svhn_cropped-gamma_capsnet"]
    assert gamma.config.levels == (11, 6)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_tables_in_the_repository_are_those_of_its_runs(path, tmp_path):
    for name in ("experiment.json", "runs.jsonl"):
        shutil.copy(path / name, tmp_path)
    table.write(tmp_path)
    of_runs = (tmp_path / "table.md").read_bytes()
    assert (path / "table.md").read_bytes() == of_runs
    name, recipe, seeds = table.about(path)
    known = experiment.load(name, recipe).runs
    for run in read_file(path / "runs.jsonl"):
        assert run.name in known and run.seed in seeds
