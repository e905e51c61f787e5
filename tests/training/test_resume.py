"""On what backend a run goes on, and what its hint says."""

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest

from cli import UserError
from training import configs, results, run, train
from training.folder import RunFolder
from training.starting import how_to_resume


def test_a_run_goes_on_with_the_backend_it_was_begun_on(tmp_path):
    folder = RunFolder(tmp_path / "run", configs.Config())
    folder.create()
    assert RunFolder.resume(folder.path).config == folder.config
    environment = folder.path / "environment.json"
    begun = json.loads(environment.read_text()) | {"backend": "other"}
    environment.write_text(json.dumps(begun))
    with pytest.raises(UserError, match="begun on other.*KERAS_BACKEND=other"):
        RunFolder.resume(folder.path)
    # What is finished may be drawn and exported on any.
    (folder.path / "rem.json").write_text("{}")
    RunFolder.resume(folder.path)


def test_the_hint_has_what_is_no_setting(monkeypatch):
    options = argparse.Namespace(bare=True, force=True, tensorboard=False)
    command = "python training/run.py --resume --out x --bare --force"
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    assert how_to_resume(options, Path("x")) == command
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    options.bare = options.force = False
    options.tensorboard = True
    assert how_to_resume(options, Path("x")) == (
        "KERAS_BACKEND=jax python training/run.py --resume --out x "
        "--tensorboard"
    )


def test_the_result_is_written_once_before_what_reads_it(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path, configs.Config())
    path, written = tmp_path / "rem.json", []
    write = RunFolder.write_json
    monkeypatch.setattr(
        RunFolder,
        "write_json",
        lambda *given: (written.append(given[1]), write(*given)),
    )
    monkeypatch.setattr(train, "train_model", lambda *given, **how: None)
    monkeypatch.setattr(results, "measure", lambda *given: ({}, {}))
    monkeypatch.setattr(results, "tell", lambda *given, **how: None)
    shown = []
    monkeypatch.setattr(
        results, "show", lambda *given: shown.append(path.read_text())
    )
    options = argparse.Namespace(bare=False, force=True, tensorboard=False)
    data = SimpleNamespace(name="none")
    begun = time.monotonic() - 100.0
    run.train_and_measure(options, folder, data, None, begun)
    assert written == ["rem.json"] and shown == [path.read_text()]
    seconds = json.loads(shown[0])["seconds"]
    assert 100.0 <= seconds < 200.0
    # A resumed run does not know its own time, but one that was finished does.
    run.train_and_measure(options, folder, data, None, None)
    assert json.loads(path.read_text())["seconds"] == seconds
    path.unlink()
    run.train_and_measure(options, folder, data, None, None)
    assert json.loads(path.read_text())["seconds"] is None
