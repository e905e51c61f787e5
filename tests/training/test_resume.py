"""On what backend a run goes on, and what its hint says."""

import argparse
import json
from pathlib import Path

import keras
import pytest

from cli import UserError
from training import configs
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
    settings = folder.path / "config.json"
    known = settings.read_text()
    settings.write_text(json.dumps(json.loads(known) | {"rounds": 3}))
    with pytest.raises(UserError, match="rounds=3.* nothing but 1; use"):
        RunFolder.resume(folder.path)
    # What is finished may be drawn and exported on any.
    (folder.path / "rem.json").write_text("{}")
    RunFolder.resume(folder.path)


def test_the_hint_has_what_is_no_setting(monkeypatch):
    options = argparse.Namespace(bare=True, force=True)
    command = "python training/run.py --resume --out x --bare --force"
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    assert how_to_resume(options, Path("x")) == command
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    options.bare = False
    assert how_to_resume(options, Path("x")) == (
        "KERAS_BACKEND=jax python training/run.py --resume --out x --force"
    )
