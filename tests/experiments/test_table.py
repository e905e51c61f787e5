"""What the table of an experiment says, and which experiments there are."""

import json
import shutil
from pathlib import Path

import pytest

from experiments import experiment
from experiments.folder import ExperimentFolder, parse
from tests.experiment_runs import ALL, call, cells, row
from tests.small_data import noise
from training import networks, results
from training.configs import Config
from training.folder import RunFolder
from training.tables import look_up, read_file

RESULTS = Path(__file__).parents[2] / "results"
KEPT = sorted(path.parent for path in RESULTS.glob("*/experiment.json"))


def test_a_table_has_ours_published_and_the_difference(tmp_path, fake):
    call(tmp_path)
    head, _, q, rem = cells(tmp_path)
    assert head == [
        "data set", "model", "accuracy, %", "published", "difference",
        "entropy, bits", "published", "difference", "sparsity, %",
        "published", "difference", "seeds", "epochs", "seconds", "device",
        "status",
    ]  # fmt: skip
    # Seeds 0, 1, 2: their deviation is sqrt(2/3). Classes of +Q have 2 and
    # 2 * seed + 2 bits, turned round for seed 1: on average 8/3 and 10/3.
    assert q[:11] == [
        "good", "+Q", "81.00 ± 0.82", "82.00 ± 0.50", "-1.00",
        "3.00 ± 0.82 (0.33)", "3.25 ± 0.10", "-0.25", "50.0", "–", "–",
    ]  # fmt: skip
    assert rem[2:11] == [
        "81.00 ± 0.82", "–", "–", "1.00 ± 0.82 (0.33)", "0.50", "+0.50",
        "50.0", "55.0", "-5.0",
    ]  # fmt: skip
    assert q[11:13] == ["3", "8"] and q[14:] == ["2 CPU cores", "done"]
    text = (tmp_path / "out" / "table.md").read_text("utf-8")
    assert text.startswith("# Small\n") and "\n- A note.\n" in text
    assert "Reduced budget" not in text


def test_vanilla_has_no_trees_and_a_single_seed_no_deviation(tmp_path, fake):
    fake[:] = [row("good", "vanilla"), row("good", "pruned"), row("good")]
    call(tmp_path, "--seeds", 2)
    vanilla, pruned, rem = cells(tmp_path)[2:]
    assert vanilla[2:5] == pruned[2:5] == ["92.00", "–", "90.0"]
    assert rem[2:5] == ["82.00", "2.00 (2.00)", "90.0"]


def test_printed_numbers_are_read_and_nothing_else():
    for text, value in (
        ("92.76 ± 0.21", 92.76), ("0", 0.0), ("6.8M", 6.8e6), ("161k", 161e3),
    ):  # fmt: skip
        assert parse(text) == value
    for text in ("", "-", "about 3", "3 ±", "3%"):
        with pytest.raises(ValueError, match="must be a printed number"):
            parse(text)


@pytest.mark.parametrize(("name", "recipe"), ALL)
def test_every_experiment_makes_an_empty_table(name, recipe, tmp_path):
    folder = ExperimentFolder(tmp_path, name, recipe)
    text = folder.write_table()
    assert folder.experiment.title in text
    statuses = {row[-1] for row in cells(tmp_path.parent, tmp_path.name)[2:]}
    assert statuses == {"not run yet"}
    for shown in folder.experiment.rows:
        assert shown.config == folder.experiment.runs[shown.run].config
        models = {f.partition(".")[0] for f in shown.fields if f}
        assert models <= set(shown.config.model_names)


def test_tables_that_share_a_run_agree_on_its_settings():
    for recipe in experiment.RECIPES:
        configs = {}
        for name in experiment.TABLES_OF_THE_PAPER:
            for run, shown in experiment.load(name, recipe).runs.items():
                assert configs.setdefault(run, shown.config) == shown.config
        # Tables 6 and 11 have no runs of their own.
        assert len(configs) == 16 + 2 + 2 + 6 + 3 + 4 + 1 + 1


def test_recipes_are_those_of_the_paper():
    short, full = (
        experiment.load("table_1", recipe).runs["cifar10-dr_capsnet"].config
        for recipe in ("short", "paper")
    )
    assert short.final_sparsity == pytest.approx(0.8117)
    assert (full.pruning, full.decay, full.decay_factor) == (
        "iterative", 1e-4, 0.99,
    )  # fmt: skip
    assert full.learning_rate == 1e-3 and full.learning_rate_decay == 0.99
    assert full.batch_size == 128 and full.patience == 200
    assert full.model == "dr_capsnet_64"
    gamma = experiment.load("table_1").runs["svhn_cropped-gamma_capsnet"]
    assert gamma.config.levels == (11, 6)
    (tiny,) = (row.config for row in experiment.load("table_10").runs.values())
    assert (tiny.model, tiny.backbone) == ("dr_capsnet", "resnet18.keras")
    assert (tiny.levels, tiny.mode, tiny.resize) == (128, "midrise", None)
    assert tiny.final_sparsity == pytest.approx(0.4427)


def test_a_line_without_a_run_shows_that_above_and_settings_add_up(monkeypatch):
    about = {
        "title": "x", "labels": ["data set", "model"], "seeds": [0],
        "columns": ["accuracy", "entropy"], "notes": "- One\n  line.\n- Two.",
        "rows": """
            data set | model   | accuracy | run | settings
            digits   | vanilla | 99.1     | a   | short epochs=3
            digits   | +REM    |          |     |
            digits   | +Q      |          | b   | levels=[11,6]
        """,
        "settings": {"all": "dataset=digits", "short": "epochs=2 mode=midrise"},
    }  # fmt: skip
    read = experiment._read
    monkeypatch.setattr(
        experiment, "_read", lambda n: read(n) if n == "shared" else about
    )
    loaded = experiment.load("ablation")
    vanilla, rem, q = loaded.rows
    assert loaded.notes[:2] == ("One line.", "Two.")
    assert (vanilla.run, rem.run, q.run) == ("a", "a", "b")
    assert vanilla.published == ("99.1", None) and not any(rem.published)
    assert vanilla.fields == ("baseline.accuracy", None)
    assert rem.fields == ("rem.accuracy_quantized", "rem.entropy_bits")
    assert vanilla.config == rem.config
    assert (rem.config.epochs, rem.config.mode) == (3, "midrise")
    assert q.config.levels == (11, 6) and q.config.mode == "midtread"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The report in the `rem.json` of a network that was not trained."""
    data, config = noise(), Config(rem=True, baseline=False)
    folder = RunFolder(tmp_path_factory.mktemp("measured") / "run", config)
    folder.create()
    model = networks.build_for(data, config, decoder=False)
    measured = results.measure(config, data, {"rem": model})
    folder.save_reports(measured.reports, measured.tests)
    saved = json.loads((folder.path / "rem.json").read_text())
    return saved["models"]["rem"]


@pytest.mark.parametrize(("name", "recipe"), ALL)
def test_what_tables_show_is_what_runs_leave(measured, name, recipe):
    # Maps and shares on parts were measured by former versions.
    maps = ("relevance_mass", "relevance_mass_uniform", "pointing")
    model = {
        **measured,
        "parts": dict.fromkeys(("own", "loose", "parts_found"), 0.5),
        "tests": {
            "familiar": measured,
            "expanded": measured,
            "maps": dict.fromkeys(maps, 0.5),
            "pairs": {"pointing": 0.5},
        },
    }
    classes = {"per_class": {"num_keys": [1] * 10}}
    for shown in experiment.load(name, recipe).rows:
        for field in filter(None, shown.fields):
            known = {**model, **classes} if "num_keys" in field else model
            look_up({"baseline": known, "rem": known}, field)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_tables_in_the_repository_are_those_of_its_runs(path, tmp_path):
    for name in ("experiment.json", "runs.jsonl"):
        shutil.copy(path / name, tmp_path)
    folder = ExperimentFolder.open(tmp_path)
    folder.write_table()
    of_runs = (tmp_path / "table.md").read_bytes()
    assert (path / "table.md").read_bytes() == of_runs
    runs = {(run.name, run.config.seed) for run in folder.runs()}
    assert {run.key for run in read_file(path / "runs.jsonl")} <= runs
