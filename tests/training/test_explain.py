"""Own images, explained by the model of a run."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.commands import status_of
from tests.networks import draw_weights, tiny_capsnet
from tests.training.test_run import tiny_data
from tfcaps import rem
from training import explain, run
from training.configs import Config
from training.folder import RunFolder


def command(*arguments):
    return status_of(explain.main, *arguments)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained")
    data = tiny_data(folder / "tiny.npz")
    flags = (
        "--rem", "--no-baseline", "--bare", "--dataset", data, "--epochs", "1",
        "--batch-size", "8", "--out", str(folder / "run"),
    )  # fmt: skip
    assert run.main(flags) == 0
    with np.load(data) as arrays:
        return folder / "run", arrays["x_test"]


def save(path, image):
    Image.fromarray(np.round(255 * image).astype(np.uint8)).save(path)
    return path


@pytest.mark.slow
def test_images_get_their_parse_trees(finished, tmp_path, capsys):
    folder, images = finished
    # A test image is in the dictionary, a larger one is resized.
    paths = [
        save(tmp_path / "a.png", images[0]),
        save(tmp_path / "b.png", np.kron(images[1], np.ones((2, 2)))),
    ]
    assert command("--run", folder, *paths) == 0
    printed = capsys.readouterr().out
    assert "b.png is resized from 16x16 to 8x8 pixels" in printed
    assert "a.png: " in printed and " of " in printed
    counts = [
        [int(word) for word in re.findall(r"(\d+)(?: test| have| the)", line)]
        for line in printed.splitlines()
        if "the very same tree" in line
    ]
    assert len(counts) == 2
    assert all(total >= lines >= same for total, lines, same in counts)
    data = json.loads((folder / "explained/parse_trees.json").read_text())
    titles = list(data)
    assert [title.split(":")[0] for title in titles] == ["a.png", "b.png"]
    seen = json.loads((folder / "explained/tree_fields.json").read_text())
    assert [len(shown["children"]) for shown in seen["images"]] == [
        len(tree["edges"]) for tree in data.values()
    ]
    with Image.open(folder / "explained/parse_trees.png") as picture:
        assert picture.width > 200


def test_the_count_is_that_of_the_dictionary(finished, tmp_path, capsys):
    folder, images = finished
    paths = [
        save(tmp_path / f"{k}.png", image) for k, image in enumerate(images)
    ]
    assert command("--run", folder, *paths, "--out", tmp_path / "out") == 0
    lines = [x for x in capsys.readouterr().out.splitlines() if "; " in x]
    known = sum(not line.endswith(" 0 the very same tree") for line in lines)
    # Pictures have 256 levels of grey, so that a code may change at the edge.
    assert known >= len(images) - 2
    assert (tmp_path / "out/parse_trees.json").exists()


def test_trees_of_types_are_counted_where_capsules_have_places(
    tmp_path, capsys
):
    model = draw_weights(tiny_capsnet(), 0, class_caps=9.0)
    rng = np.random.default_rng(0)
    images = np.round(255 * rng.random((40, 8, 8, 1))) / 255
    report = rem.evaluate(
        model, (images.astype("float32"), rng.integers(0, 3, 40))
    )
    folder = RunFolder(tmp_path / "run", Config())
    folder.create()
    folder.save_data("noise", ["a", "b", "c"])
    folder.save_model("baseline", model)
    folder.save_reports({"baseline": report}, {"baseline": {}})
    path = save(tmp_path / "x.png", images[0, ..., 0])
    assert command("--run", folder.path, path) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "; " in x]
    trees = rem.trees(model, images, 11)
    counts = {"same children": trees.codes, "same types": trees.type_codes}
    for name, keys in counts.items():
        own = trees.predicted == trees.predicted[0]
        uniform = int(rem.quantize(1 / 3, 11))
        strong = np.all((keys > uniform) == (keys[0] > uniform), axis=1)
        same = np.all(keys == keys[0], axis=1)
        text = f" {np.sum(strong & own)} have lines to the {name}"
        assert text in line
        assert f", {np.sum(same & own)} the very same" in line
    assert line.endswith("the very same tree of types")


def test_inverting_swaps_dark_and_bright(finished, tmp_path):
    folder, images = finished
    plain = save(tmp_path / "x.png", images[2])
    swapped = save(tmp_path / "y.png", 1 - np.round(255 * images[2]) / 255)
    out = [tmp_path / "a", tmp_path / "b"]
    assert command("--run", folder, plain, "--out", out[0]) == 0
    assert command("--run", folder, swapped, "--invert", "--out", out[1]) == 0
    first, second = (
        (o / "parse_trees.json").read_text().replace("y.png", "x.png")
        for o in out
    )
    assert first == second


def test_mistakes_are_one_line(finished, tmp_path, capsys):
    folder, images = finished
    good = save(tmp_path / "good.png", images[0])
    (tmp_path / "bad.png").write_bytes(b"no picture")
    (tmp_path / "none").mkdir()
    for arguments, message in (
        (["--run", tmp_path, good], "there is no run in"),
        (["--run", folder, tmp_path / "bad.png"], "is not a readable image"),
        (["--run", folder, tmp_path / "gone.png"], "there is no file"),
        (
            ["--run", folder, tmp_path / "none"],
            "there is no picture in the folder",
        ),
    ):
        out = tmp_path / "out"
        assert command(*arguments, "--out", out) == 2
        assert message in capsys.readouterr().err
        assert not out.exists()
