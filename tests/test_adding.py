"""What CONTRIBUTING says of adding things suffices, tried in a copy."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_ROUTING = (_ROOT / "tfcaps/routing/uniform.py").read_text("utf-8")
_NEW_FILES = {
    "training/datasets/stripes.py": '''
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
''',
    "tfcaps/routing/fading.py": _ROUTING.replace("Uniform", "Fading"),
}
# File, what stands in it, and what is added below that.
_ADDED = (
    (
        "training/sources.toml",
        "# are prepared stands in `recipes.toml`.",
        '[stripes]\nabout = "stripes, made here"\nloader = "stripes:make"',
    ),
    (
        "training/flags.toml",
        'does not need"""',
        'keep_one_of = "of so many weights `few` keeps one"',
    ),
    (
        "training/configs.py",
        "_SMALLEST, _LARGEST = 0.1, 10.0",
        'STRATEGIES += ["few"]',
    ),
    (
        "training/configs.py",
        "    max_searches: int = 12",
        "    keep_one_of: Annotated[int, Limits(2, 9)] = 2",
    ),
    (
        "training/pruning.py",
        "    match config.pruning:",
        """\
        case "few":
            settings["keep"] = 1.0 / config.keep_one_of""",
    ),
    (
        "tfcaps/rem/pruning/prune.py",
        "# About how often the masks of a schedule are rewritten.",
        '_STRATEGIES += ("few",)',
    ),
    (
        "tfcaps/rem/pruning/prune.py",
        "            prune_structured(model, self, **self.settings)",
        """\
        elif self.strategy == "few":
            share = 1.0 - self.settings["keep"]
            prune_low_magnitude(model, lambda step: share)""",
    ),
    (
        "tfcaps/routing/__init__.py",
        "import EMRouting as EMRouting",
        "from tfcaps.routing.fading import FadingRouting as FadingRouting",
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
    for name, before, added in _ADDED:
        text = (copy / name).read_text("utf-8")
        assert text.count(f"{before}\n") == 1
        text = text.replace(f"{before}\n", f"{before}\n{added}\n")
        (copy / name).write_text(text, "utf-8")
    return copy


def python(copy, *arguments):
    arguments = [sys.executable, *map(str, arguments)]
    return subprocess.run(arguments, cwd=copy, capture_output=True, text=True)


@pytest.mark.slow
def test_what_is_added_is_tidy_and_known_before_tensorflow_is_loaded(copy):
    changed = [
        *_NEW_FILES,
        *{name for name, *_ in _ADDED if name.endswith(".py")},
    ]
    linted = python(copy, "-m", "ruff", "check", "--no-cache", *changed)
    assert linted.returncode == 0, linted.stdout
    sources = python(copy, "training/run.py", "--list-datasets").stdout
    assert "stripes, made here" in sources
    for flags, message in (
        (["--keep-one-of", "10"], "10 is not a whole number from 2 to 9"),
        (["--pruning", "many"], "iterative, none, few)"),
        (
            ["--dataset", "digits", "--routing", "many"],
            "dynamic, em, fading, regularized",
        ),
    ):
        refused = python(copy, "training/run.py", *flags)
        assert refused.returncode == 2
        assert message in refused.stderr.replace("'", "")
    program = """
import sys
from training.configs import Config, config_from
print(Config().keep_one_of, config_from({"dataset": "x"}).keep_one_of)
assert "keras" not in sys.modules
"""
    ended = python(copy, "-c", program)
    assert ended.stdout == "2 2\n", ended.stderr


@pytest.mark.slow  # a training
def test_the_main_job_trains_with_all_of_them(copy):
    ended = python(
        copy, "training/run.py", "--rem", "--no-baseline", "--bare",
        "--dataset", "stripes", "--pruning", "few", "--keep-one-of", 4,
        "--routing", "fading", "--epochs", 1, "--batch-size", 8, "--out", "run",
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
