"""What a run folder says of the types of capsules."""

import argparse
import json

import pytest

from cli import UserError
from training import explain_job
from training.configs import Config
from training.folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run", Config(rem=True))
    folder.create()
    return folder


def write(folder, given):
    text = given if isinstance(given, str) else json.dumps(given)
    (folder.path / "names.json").write_text(text)


def test_names_are_by_hand_else_kinds_else_numbers(folder):
    assert folder.type_names(2) == ["type 0", "type 1"]
    # Older runs know no kinds.
    for known in (None, {}, {"names": None}, {"names": ["bar", None, "disc"]}):
        measured = {"models": {"rem": {"named_parts": known}}}
        folder.write_json("rem.json", measured)
        first = (known and known["names"] or ["type 0"])[0]
        assert folder.type_names(1) == [first]
    assert folder.type_names(3) == ["bar", "type 1", "disc"]
    write(folder, {"1": " wheel ", "2": "door"})
    assert folder.type_names(3) == ["bar", "wheel", "door"]
    with pytest.raises(UserError, match="names type 2, .* types are 0 to 1"):
        folder.type_names(2)
    # A broken file is not one of an older run.
    (folder.path / "rem.json").write_text("{")
    with pytest.raises(UserError, match="rem.json cannot be read"):
        folder.type_names(3)


@pytest.mark.parametrize(
    "given",
    ["{", "[]", '"wheel"', {"wheel": 0}, {"0": 1}, {"0": " "}, {"-1": "x"}],
    ids=str,
)
def test_a_mistake_is_one_sentence_before_the_work(folder, given):
    write(folder, given)
    message = "names.json must give names of types by their numbers, such as"
    with pytest.raises(UserError, match=message):
        explain_job.explain(argparse.Namespace(run=folder.path))
