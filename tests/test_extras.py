"""A missing extra is one sentence, with the command that installs it."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from cli import UserError
from training import datasets

ROOT = Path(__file__).parents[1]
# Runs a command as if some modules were not installed.
_WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
sys.argv = sys.argv[2:]
sys.path.insert(0, "replaced by the command")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def without(modules, command, **more):
    script, *flags = command.split()
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT, modules, ROOT / script, *flags],
        capture_output=True,
        text=True,
        **more,
    )


@pytest.mark.parametrize(
    ("command", "missing", "extras"),
    [
        ("training/run.py --rem", "matplotlib", "viz"),
        ("training/run.py", "PIL,matplotlib", "data,viz"),
        ("training/run.py", "tensorflow", "tensorflow"),
        ("training/run.py --bare", "PIL", "data"),
        ("training/run.py --bare", "tensorflow", "tensorflow"),
        ("training/explain.py --run run picture", "matplotlib", "viz"),
        ("export/run.py --run model.keras --to s", "tensorflow", "tensorflow"),
        ("export/run.py --run model.keras --to s --format onnx",
         "tensorflow,onnx", "tensorflow,onnx"),
        ("export/run.py --run model.keras --to s --format openvino --int8 "
         "picture", "nncf", "openvino"),
        ("export/check.py run", "tensorflow", "tensorflow"),
    ],
)  # fmt: skip
def test_commands_say_at_once_what_is_missing(
    command, missing, extras, tmp_path
):
    (tmp_path / "run").mkdir()
    for name in ("run/config.json", "model.keras", "picture"):
        (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    done = without(missing, command, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == (
        f"{command.split()[0]}: error: this needs "
        f"{missing.replace(',', ', ')}, not installed here. In the folder of "
        f'tfcaps run: pip install --editable ".[{extras}]"\n'
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_other_things_that_are_missing(monkeypatch):
    done = without("keras", "training/run.py --rem")
    assert done.returncode == 2
    assert "first: source .venv/bin/activate" in done.stderr
    # Training and measuring load nothing to draw.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in list(sys.modules):
        if name.startswith(("training", "tfcaps.viz")):
            monkeypatch.delitem(sys.modules, name)
    for name in ("training.train", "training.results"):
        importlib.import_module(name)
    with pytest.raises(ImportError, match=r'Run: pip install "tfcaps\[viz\]"'):
        import tfcaps.viz  # noqa: F401


@pytest.mark.parametrize(
    ("dataset", "module", "extra"),
    [
        ("digits", "sklearn", "data"),
        ("mnist", "tensorflow_datasets", "tfds"),
        ("affine_mnist", "tensorflow_datasets", "tfds"),
    ],
)
def test_data_sets_say_what_they_lack(dataset, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf'{module}, .* "\.\[{extra}\]"'):
        datasets.load(dataset)
