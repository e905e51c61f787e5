"""The guide "Your own photos": its commands in their order, on drawn shapes."""

import re
import shlex

import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from export import client
from tests import serving
from tests.nightly import nightly
from tests.pictures import KINDS, write_shapes
from tests.test_docs import PAGES, commands_of
from training import explain, run

# Below them it says how what is shown was made.
COMMANDS = commands_of(
    PAGES["docs/guides/photos.md"].partition("## How to repeat")[0]
)

pytestmark = pytest.mark.usefixtures("no_proxy")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shapes(tmp_path / "photos", dict.fromkeys(KINDS, 8), seed=1)
    counts = {"bar": 1, "cross": 1, "ring": 2}
    write_shapes(tmp_path / "new-photos", counts, seed=2)
    return tmp_path


def follow(module, arguments, *more):
    argv = [*shlex.split(arguments, comments=True), *map(str, more)]
    if module == "export.client":
        return client.main(argv)
    command = {
        "training.run": run.main,
        "training.explain": explain.main,
    }
    return command[module](argv)


def assert_explained(folder, printed):
    assert re.search(r"\d of the 4 pictures in folders named like", printed)
    page = (folder / "index.html").read_text("utf-8")
    # A drawing of each picture, and one of all.
    assert page.count("data:image/png;base64,") == 4 + 1
    lines = (folder / "predictions.csv").read_text().splitlines()
    assert len(lines) == 5 and lines[1].startswith("new-photos/bar/0.jpg,")


def assert_answered(printed):
    names = "|".join([*KINDS, "none"])
    lengths = ", ".join([rf"({names}) 0\.\d+"] * 3)
    assert re.fullmatch(rf"new-photos/ring/1\.png: {lengths}\n", printed)


def test_the_guide_shows_every_step():
    modules = [module for module, _ in COMMANDS]
    assert modules == [
        "training.run", "training.run", "training.explain", "export.client",
    ]  # fmt: skip
    assert "--dry-run" in COMMANDS[0][1]


@nightly
def test_the_guide_from_the_folder_to_the_answer(photos, capsys):
    (plan, first), (train, second), explained, asked = COMMANDS
    assert follow(plan, first) == 0
    assert "pictures  24, sides of" in capsys.readouterr().out
    assert not (photos / "runs").exists()
    assert follow(train, second, "--epochs", 2, "--force") == 0
    folder = photos / "runs" / "photos"
    page = (folder / "report.html").read_text("utf-8")
    assert "Right and wrong images, and their trees" in page
    capsys.readouterr()
    assert follow(*explained) == 0
    assert_explained(folder / "explained", capsys.readouterr().out)
    with serving.serve_rest(folder / "served") as url:
        assert follow(*asked, "--url", url) == 0
    assert_answered(capsys.readouterr().out)
