"""The benchmark of whole steps, and its page."""

import json
import os
import subprocess
import sys
from functools import partial

import keras
import pytest

import tfcaps
from benchmarks import gpu
from benchmarks.common import ROOT, main


def command(*flags):
    return main(gpu.make_parser(), gpu.run, gpu._check, flags)


@pytest.mark.slow
def test_a_quick_run_writes_both_files(tmp_path, monkeypatch):
    small = partial(
        tfcaps.models.dr_capsnet, filters=4, primary_types=2, class_dim=4
    )
    monkeypatch.setattr(tfcaps.models, "dr_capsnet", small)
    out = tmp_path / "new"
    assert command("--quick", "--out", str(out)) == 0
    result = json.loads((out / "gpu.json").read_text("utf-8"))
    assert (out / "gpu.md").read_text("utf-8") == gpu.page(result)
    assert result["settings"] == {
        "models": ["dr_capsnet"], "batch": 2, "rounds": 2, "quick": True,
    }  # fmt: skip
    assert result["machine"]["versions"]["keras"] == keras.__version__
    network, floor = result["rows"]
    assert network["inputs"] == [2, 28, 28, 1]
    for row in (network, floor):
        assert row["forward"]["ms"] > 0 and row["step"]["ms"] > 0


def test_mistakes_are_one_sentence(tmp_path, capsys):
    out = ("--out", str(tmp_path))
    assert command("--models", "dr_capsnet,resnet", *out) == 2
    assert "unknown model 'resnet'; the models are" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        command("--batch", "0", *out)
    assert stopped.value.code == 2
    assert "'0' is not a whole number at least 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_other_backends_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    assert command("--out", str(tmp_path)) == 2
    needs = "needs KERAS_BACKEND=jax or tensorflow, not 'torch'"
    assert needs in capsys.readouterr().err


def test_memory_that_a_process_cannot_tell_is_none(monkeypatch, capsys):
    def fail(target, **arguments):
        raise RuntimeError(f"{target} {arguments} ended with status -9")

    monkeypatch.setattr(gpu, "call_elsewhere", fail)
    assert gpu._peak("dr_capsnet", 3) is None
    assert "'batch': 3} ended with status -9" in capsys.readouterr().out


@pytest.mark.slow
def test_it_is_imported_without_tensorflow():
    code = "import sys; sys.modules['tensorflow'] = None; import benchmarks.gpu"
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=True,
    )


def test_the_page_in_results_is_made_of_its_data():
    folder = ROOT / "results"
    result = json.loads((folder / "gpu.json").read_text("utf-8"))
    page = gpu.page(result)
    assert (folder / "gpu.md").read_text("utf-8") == page
    assert "\nNVIDIA H200, backend jax. 2026-11-27" in page
    result["machine"]["gpu"] = None
    assert "\nA CPU: no GPU was found, backend jax. 2026" in gpu.page(result)
