"""What commands tell before they do anything, and load what takes long."""

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.test_run import command, tiny_data
from training import devices, models, recipes, sources
from training.configs import SETTINGS, Config, config_from


def test_names_are_listed_with_what_they_are():
    for flag, known in (
        ("--list-models", models.MODELS),
        ("--list-datasets", sources.SOURCES),
    ):
        printed = command(flag).splitlines()
        assert [line.split()[0] for line in printed] == list(known)
        assert all(len(line.split()) > 3 for line in printed)


def test_what_is_listed_is_there():
    variants = {"cats_vs_dogs_128px_subset", "imagenette_128px"}
    assert recipes.IMAGES.keys() - variants <= sources.SOURCES.keys()
    for source in sources.SOURCES.values():
        if source.loader is not None:
            module, _, name = source.loader.partition(":")
            found = importlib.import_module(f"training.datasets.{module}")
            assert callable(getattr(found, name))
    assert set(SETTINGS["strategy"].choices) == set(devices.STRATEGIES)


def test_help_has_groups_and_examples():
    printed = command("--help")
    for heading in ("data:", "network:", "training:", "the run:", "examples:"):
        assert f"\n{heading}\n" in printed
    assert max(map(len, printed.splitlines())) <= 100


@pytest.mark.slow
def test_a_dry_run_tells_the_plan_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_data("tiny.npz")
    flags = ("--rem", "--dataset", "tiny.npz", "--batch-size", 8)
    printed = command(*flags, "--epochs", 5, "--dry-run")
    assert "16 training, 3 validation, 8 test images of 8x8x1" in printed
    assert "Baseline: 5 epochs of 2 steps of 8 images" in printed
    assert "at most" not in printed
    assert "REM: 5 epochs of 2 steps" in printed
    assert re.search(r"figures and export about \d+ (s|min) more\.", printed)
    assert re.search(r"parameters, [\d,]+ multiply-adds an image", printed)
    assert "No run folder has been made." in printed
    printed = command(*flags, "--epochs", 60, "--rem-epochs", 3, "--dry-run")
    assert "REM: 3 epochs (--rem-epochs; --epochs is the" in printed
    printed = command(*flags, "--recipe", "paper", "--dry-run")
    assert "Training takes at most about" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.npz"]


def test_settings_are_read_as_they_were_or_refused():
    saved = dataclasses.asdict(Config())
    assert config_from(json.loads(json.dumps(saved))) == Config()
    # As every run of version 0.3 has them.
    gone = {"shared_parts": False, "width_start": 6.0}
    assert config_from({**saved, **gone}) == Config()
    for name, value, message in (
        ("warp", 9, "the settings warp, which this version"),
        ("shared_parts", True, "the settings shared_parts, which this"),
        ("epochs", 0, "epochs: '0' is not a number at least 1"),
        ("epochs", "two", "epochs is 'two'"),
        ("epochs", 1e9, "epochs is 1000000000.0"),
        ("dataset", None, "dataset is None"),
        ("learning_rate", float("nan"), "learning_rate: 'nan'"),
        ("validation", 0.9, "validation: '0.9'"),
        ("pruning", "everything", "pruning is 'everything'"),
        ("decoder", True, "decoder is True"),
        ("rem", "yes", "rem is 'yes'"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            config_from({**saved, name: value})


_ROOT = Path(__file__).parents[2]
_HEAVY = ("keras", "tensorflow", "jax", "numpy", "tfcaps", "matplotlib")
# Says what a command had loaded when it ended.
_PROBE = """
import runpy, sys
path, heavy = sys.argv[1], sys.argv[2].split(",")
sys.argv = sys.argv[1:2] + sys.argv[3:]
sys.path.insert(0, "replaced by the command")
try:
    runpy.run_path(path, run_name="__main__")
except SystemExit as stopped:
    status = stopped.code
print("loaded:", *(name for name in heavy if name in sys.modules))
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("training/run.py --help", ""),
        ("training/run.py --list-models", ""),
        ("training/run.py --list-datasets", ""),
        ("training/run.py --epochs two", "'two' is not a whole number at leas"),
        ("training/run.py --model resnet", "unknown model 'resnet'; the mode"),
        ("training/run.py --dataset nowhere/", "neither a folder nor an .npz"),
        ("training/run.py --data-dir nowhere", "'nowhere' is not a folder"),
        ("training/run.py --resume --out nowhere", "there is no run in nowhe"),
        ("training/explain.py --help", ""),
        ("training/explain.py --run nowhere a.png", "there is no run in nowh"),
        ("export/run.py --help", ""),
        ("export/run.py --run nowhere --to served", "is neither a run folder"),
        ("export/check.py --help", ""),
        ("export/check.py nowhere", "nowhere is not a folder"),
        ("training/tables.py --help", ""),
        ("training/tables.py nowhere --to file", "is no finished run"),
        ("training/pretrained.py --help", ""),
        ("training/pretrained.py nowhere", "[Errno 2] No such file"),
        ("benchmarks/run.py --help", ""),
        ("benchmarks/run.py --only speed", "invalid choice: 'speed'"),
        # An example for machines without tfcaps, with NumPy.
        ("export/client.py --help", ""),
        ("export/client.py --model m --url m a.png", "must begin with http"),
    ],
)
def test_mistakes_are_answered_before_tensorflow_is_loaded(
    line, said, tmp_path
):
    command, *flags = line.split()
    light = {"numpy"} if command == "export/client.py" else set()
    ended = subprocess.run(
        [
            sys.executable, "-OO", "-c", _PROBE, str(_ROOT / command),
            ",".join(name for name in _HEAVY if name not in light), *flags,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert ended.returncode == (2 if said else 0), ended.stderr
    assert ended.stdout.splitlines()[-1] == "loaded:"
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == bool(said)
    assert not [*tmp_path.iterdir()]
