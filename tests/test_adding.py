"""What CONTRIBUTING says of adding things suffices, tried in a copy."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]

_DATA_SET = '''
"""Stripes across and upright, made here."""

import numpy as np

from training.datasets.data import Data, checked


def make(data_dir: str | None, validation: float) -> Data:
    """Makes 48 images `[8, 8, 1]` for training and 16 for testing."""
    del data_dir
    labels = np.arange(64) % 2
    across = np.zeros((8, 8, 1), np.float32)
    across[::2] = 1.0
    images = np.stack([across, across.swapaxes(0, 1)])[labels]
    train, test = (images[:48], labels[:48]), (images[48:], labels[48:])
    data = checked("stripes", train, test, ["across", "upright"])
    return data.with_validation(validation)
'''
_STRATEGY = """
def _few(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    sparsity = 1.0 - 1.0 / config.keep_one_of
    rem.prune_low_magnitude(model, lambda step: sparsity)


"""
_SETTING = """
    keep_one_of: int = setting(
        2,
        "of so many weights `few` keeps one",
        limits=(2, 9),
        before=3,
    )
"""
_ROUTING = (
    (_ROOT / "tfcaps/routing/uniform.py")
    .read_text("utf-8")
    .replace("UniformRouting", "FadingRouting")
)
_NEW_FILES = {
    "training/datasets/stripes.py": _DATA_SET,
    "tfcaps/routing/fading.py": _ROUTING,
}
# File, what is added to it, and what stands before that.
_ADDED = (
    (
        "training/sources.py",
        '    "stripes": Source("stripes, made here", "stripes:make"),\n',
        "SOURCES = {\n",
    ),
    (
        "training/configs.py",
        '    "few": "all but the largest weights, see --keep-one-of",\n',
        '    "none": "nothing",\n',
    ),
    (
        "training/configs.py",
        _SETTING.lstrip("\n"),
        '    mode: str = "midtread"\n',
    ),
    (
        "training/pruning.py",
        _STRATEGY.lstrip("\n"),
        "        max_sparsity=config.final_sparsity,\n    )\n\n\n",
    ),
    (
        "training/pruning.py",
        '    "few": _few,\n',
        '    "none": lambda *unused: None,\n',
    ),
    (
        "tfcaps/routing/__init__.py",
        "from tfcaps.routing.fading import FadingRouting as FadingRouting\n",
        "from tfcaps.routing.factored_votes import materialize_votes as "
        "materialize_votes\n",
    ),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The commands and the library with one new thing of each kind."""
    copy = tmp_path_factory.mktemp("repository")
    for name in ("tfcaps", "training", "export"):
        unused = shutil.ignore_patterns("__pycache__", "*.keras")
        shutil.copytree(_ROOT / name, copy / name, ignore=unused)
    for name in ("cli.py", "markdown_table.py", "ruff.toml"):
        shutil.copy(_ROOT / name, copy)
    for name, text in _NEW_FILES.items():
        (copy / name).write_text(text.lstrip("\n"), "utf-8")
    for name, added, before in _ADDED:
        text = (copy / name).read_text("utf-8")
        assert text.count(before) == 1
        (copy / name).write_text(text.replace(before, before + added), "utf-8")
    return copy


def python(copy, *arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=copy,
        capture_output=True,
        text=True,
    )


def main_job(copy, *flags):
    return python(copy, "training/run.py", *flags)


def test_what_is_added_is_tidy(copy):
    changed = [*_NEW_FILES, *{name for name, *_ in _ADDED}]
    for check in (["check"], ["format", "--check"]):
        linted = python(copy, "-m", "ruff", *check, "--no-cache", *changed)
        assert linted.returncode == 0, linted.stdout


def test_commands_know_new_things_before_tensorflow_is_loaded(copy):
    sources = main_job(copy, "--list-datasets").stdout.splitlines()
    assert ["stripes", "stripes, made here"] in [
        line.split(maxsplit=1) for line in sources
    ]
    described = " ".join(main_job(copy, "--help").stdout.split())
    assert "of so many weights `few` keeps one" in described
    for flags, message in (
        (["--keep-one-of", "1"], "1 is not a whole number from 2 to 9"),
        (["--keep-one-of", "10"], "10 is not a whole number from 2 to 9"),
        (["--pruning", "many"], "iterative, none, few)"),
        (["--routing", "many"], "dynamic, em, fading, mean_shift, regularized"),
    ):
        refused = main_job(copy, *flags)
        assert refused.returncode == 2
        assert message in refused.stderr.replace("'", "")


def test_saved_settings_have_the_new_one_within_its_limits(copy):
    program = """
import dataclasses, json, sys
from training.configs import Config, config_from
seven = dataclasses.replace(Config(), keep_one_of=7)
assert config_from(json.loads(json.dumps(dataclasses.asdict(seven)))) == seven
print(Config().keep_one_of, config_from({"dataset": "x"}).keep_one_of)
assert "keras" not in sys.modules
config_from({"dataset": "x", "keep_one_of": 10})
"""
    ended = python(copy, "-c", program)
    assert ended.stdout == "2 3\n", ended.stderr
    assert "keep_one_of: '10' is not a number from 2 to 9" in ended.stderr


@pytest.mark.slow  # a training
def test_the_main_job_trains_with_all_of_them(copy):
    ended = main_job(
        copy, "--rem", "--no-baseline", "--bare", "--dataset", "stripes",
        "--pruning", "few", "--keep-one-of", 4, "--routing", "fading",
        "--epochs", 1, "--batch-size", 8, "--out", "run",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    settings = json.loads((copy / "run/config.json").read_text("utf-8"))
    names = ("dataset", "pruning", "keep_one_of", "routing")
    assert [settings[n] for n in names] == ["stripes", "few", 4, "fading"]
    (measured,) = json.loads((copy / "run/rem.json").read_text("utf-8"))[
        "models"
    ].values()
    assert measured["sparsity"] == pytest.approx(0.75, abs=0.01)
    with zipfile.ZipFile(copy / "run/model.keras") as saved:
        assert b"tfcaps>FadingRouting" in saved.read("config.json")
