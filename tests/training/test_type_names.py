"""What types are called."""

import json

import pytest

from cli import UserError
from training import explain_job, tree_figures
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
    assert tree_figures.names_of_types(folder, 2) == ["type 0", "type 1"]
    measured = {"named_parts": {"names": ["bar", None, "disc"]}}
    folder.write_json("rem.json", {"models": {"rem": measured}})
    assert tree_figures.names_of_types(folder, 3) == ["bar", "type 1", "disc"]
    write(folder, {"1": " wheel ", "2": "door"})
    assert tree_figures.names_of_types(folder, 3) == ["bar", "wheel", "door"]
    kinds = ("ring", None, None)
    assert tree_figures.names_of_types(folder, 3, kinds) == [
        "ring",
        "wheel",
        "door",
    ]


@pytest.mark.parametrize("named_parts", [None, {}, {"names": None}])
def test_older_runs_know_no_kinds(folder, named_parts):
    measured = {"named_parts": named_parts}
    folder.write_json("rem.json", {"models": {"rem": measured}})
    assert tree_figures.names_of_types(folder, 1) == ["type 0"]


@pytest.mark.parametrize(
    "given",
    ["{", "[]", '"wheel"', {"wheel": 0}, {"0": 1}, {"0": " "}, {"-1": "x"}],
    ids=str,
)
def test_a_mistake_is_one_sentence(folder, given):
    write(folder, given)
    message = "names.json must give names of types by their numbers, such as"
    with pytest.raises(UserError, match=message):
        tree_figures.names_of_types(folder, 3)


def test_there_must_be_such_a_type(folder):
    write(folder, {"3": "wheel"})
    message = "names type 3, and the types are 0 to 2"
    with pytest.raises(UserError, match=message):
        tree_figures.names_of_types(folder, 3)


def test_a_mistake_is_told_before_the_work(folder):
    write(folder, "{")

    class Options:
        run = folder.path

    with pytest.raises(UserError, match="names.json must give"):
        explain_job.explain(Options())
