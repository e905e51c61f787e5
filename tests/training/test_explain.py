"""Own pictures, explained: what is read, asked, counted, drawn and written."""

import json
import re
from functools import partial

import numpy as np
import pytest
from PIL import Image

from cli import UserError
from tests.commands import told_by
from tests.drawings import recorded
from tests.networks import draw_weights, tiny_capsnet
from tfcaps import rem
from training import explain, explain_job
from training.configs import Config
from training.folder import RunFolder
from training.images import resize
from training.pictures import read

NAMES = ["ant", "bee", "cat"]
NOISE = np.round(255 * np.random.default_rng(0).random((40, 8, 8, 1))) / 255


command = partial(told_by, explain.main)
refused = partial(command, status=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of a network that tells its images apart."""
    model = draw_weights(tiny_capsnet(), 0, class_caps=9.0)
    labels = np.random.default_rng(1).integers(0, 3, 40)
    report = rem.evaluate(model, (NOISE.astype("float32"), labels), 2)
    # So few levels that rounded couplings have other trees and other answers.
    path = tmp_path_factory.mktemp("runs") / "run"
    folder = RunFolder(path, Config(levels=2))
    folder.create()
    folder.save_data("noise", NAMES)
    folder.save_model("baseline", model)
    folder.save_reports({"baseline": report}, {"baseline": {}})
    return folder


@pytest.fixture
def photos(tmp_path, rng):
    """Class folders of two pictures each, of several sizes."""
    for name in NAMES:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            pixels = rng.integers(0, 256, (9 + 4 * number, 12), np.uint8)
            path = tmp_path / "photos" / name / f"{number}.png"
            Image.fromarray(pixels).save(path)
        (tmp_path / "photos" / name / "Thumbs.db").write_bytes(b"no picture")
    return tmp_path / "photos"


def save(path, image):
    Image.fromarray(np.round(255 * image).astype(np.uint8)).save(path)
    return path


def records_of(folder):
    text = (folder / "trees.json").read_text("utf-8")
    return json.loads(text)["pictures"]


def answers_of(run, photos):
    """Returns what the network says of the pictures, asked without explain."""
    pictures = sorted(photos.rglob("*.png"))
    pixels = [read(path, "L")[None, ..., None] for path in pictures]
    small = np.concatenate([resize(image, 8) for image in pixels])
    model = run.load_model("baseline")
    return pictures, small, np.asarray(model(small / 255))


def test_pictures_are_named_and_drawn(run, tmp_path):
    path = save(tmp_path / "x.png", NOISE[0, ..., 0])
    other = save(tmp_path / "y.png", np.kron(NOISE[1, ..., 0], np.ones((2, 2))))
    with recorded() as given:
        printed = command("--run", run.path, path, other)
    assert "The network sees pictures of 8x8 pixels." in printed
    model = run.load_model("baseline")
    trees, rounded = (rem.trees(model, NOISE[:2], few) for few in (None, 2))
    assert np.any(trees.in_tree != rounded.in_tree)
    for k, name in enumerate("xy"):
        found = NAMES[trees.predicted[k]], trees.lengths[k].max()
        assert "{}.png: {} (length {:.2f})".format(name, *found) in printed
    # One tree an image: all figures have that which was measured.
    [seen] = given["tree_fields"]
    why = seen["explained"]
    np.testing.assert_array_equal(why.trees.in_tree, trees.in_tree)
    for k, named in enumerate(given["named_tree"]):
        shown = named["explained"].trees
        np.testing.assert_array_equal(shown.in_tree, trees.in_tree)
        assert named["number"] == k
    assert why.aspects == [1, 1]
    assert [one["name"] for one in given["named_tree"]] == ["x.png", "y.png"]
    assert "named_tree-2.png: y.png: why" in printed
    # In pixels of the file, which is twice as large.
    text = (run.path / "explained" / "trees.json").read_text("utf-8")
    records = records_of(run.path / "explained")
    for record, file, size in zip(records, (path, other), (8, 16), strict=True):
        assert record["file"] == str(file) and record["width"] == size
        assert record["drawing"] == f"named_tree-{1 + (file == other)}.png"
        boxes = [leaf["box"] for leaf in record["leaves"]]
        assert boxes and np.max(boxes) >= size - 2
        assert f'"box": {boxes[0]}' in text
    # What an earlier call drew is gone, and nothing else.
    kept = save(
        run.path / "explained" / "named_tree-mine.png", NOISE[0, ..., 0]
    )
    command("--run", run.path, path)
    drawings = {file.name for file in kept.parent.glob("*.png")}
    assert drawings == {"named_tree.png", "tree_fields.png", kept.name}


@pytest.mark.slow
def test_a_folder_becomes_a_page_and_data(run, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(explain_job, "PANELS", 4)
    to = tmp_path / "out"
    with recorded() as given:
        printed = command("--run", run.path, photos, "--out", to)
    paths, small, lengths = answers_of(run, photos)
    order = np.argsort(-lengths, axis=-1)
    page = (to / "index.html").read_text("utf-8")
    for row, path, best, values in zip(
        records_of(to), paths, order[:, :2], lengths, strict=True
    ):
        (first, second), truth = np.array(NAMES)[best], path.parent.name
        found = row["length"], row["runner_up_length"], row["margin"]
        wanted = *values[best], -np.diff(values[best])[0]
        assert found == pytest.approx(wanted, abs=1e-3)
        found = [row[key] for key in ("class", "runner_up", "true_class")]
        assert found == [first, second, truth] and row["file"] == str(path)
        mark = "yes" if first == truth else f"WRONG: {truth}"
        assert f"<td>{truth}/{path.name}</td><td>{first}</td>" in page
        assert f"<td>{mark}</td>" in page
        taken = f"{truth}/{path.name} taken for {first}"
        assert (taken in printed) == (first != truth)
    # Four are drawn, wrong ones first, and each by itself.
    wrong = [k for k in range(6) if NAMES[order[k, 0]] != paths[k].parent.name]
    right = 6 - len(wrong)
    told = f"{right} of the 6 pictures in folders named like classes are right"
    assert 0 < right < 6 and told in printed and told in page
    others = [k for k in range(6) if k not in wrong]
    expected = [*wrong, *others][:4]
    [seen] = given["tree_fields"]
    for image, title, named, k in zip(
        seen["explained"].images, seen["titles"], given["named_tree"], expected,
        strict=True,
    ):  # fmt: skip
        # As in training.
        np.testing.assert_allclose(image, small[k] / 255, atol=1e-6)
        explained, number = named["explained"], named["number"]
        np.testing.assert_array_equal(explained.images[number], image)
        assert ("(WRONG: " in title) == (k in wrong)
        assert NAMES[explained.labels[number]] == paths[k].parent.name
    assert page.count("<figure>") == 4 + 1
    assert "4 of the 6 pictures are drawn, wrong ones first" in page


def test_broken_pictures_are_named_and_may_be_left_out(run, photos, tmp_path):
    (photos / "bee" / "0.png").write_bytes(b"no picture")
    arguments = ("--run", run.path, photos / "bee", "--out", tmp_path / "out")
    error = refused(*arguments)
    assert "0.png is not a readable image. To leave such files out" in error
    assert not (tmp_path / "out").exists()
    assert "left out: " in command(*arguments, "--skip-broken")
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "0.png is not a readable image." in page
    [row] = records_of(tmp_path / "out")
    assert row["file"] == str(photos / "bee" / "1.png")
    assert row["true_class"] is None  # the folder itself tells nothing
    (photos / "bee" / "1.png").write_bytes(b"no picture")
    told = refused(*arguments, "--skip-broken")
    assert "none of the 2 pictures can be read" in told


def test_pictures_are_found_once_and_told_apart(photos, tmp_path):
    other = tmp_path / "other"
    for name in ("bee/0.png", "zoo/x.JPG", "top.gif"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_bytes(b"")
    single = photos / "ant" / "1.png"
    found, _ = explain_job.find([photos, other, single, single], NAMES)
    truths = {picture.name: picture.truth for picture in found}
    assert len(truths) == len(found) == 6 + 3
    assert (
        truths[f"{other}/bee/0.png"] == truths[f"{photos}/bee/0.png"] == "bee"
    )
    assert truths["cat/1.png"] == "cat"
    assert truths["zoo/x.JPG"] is truths["top.gif"] is None
    # A class of one word may have a slash, which no folder has.
    (photos / "a-b").mkdir()
    (photos / "a-b" / "1.png").write_bytes(b"")
    known, _ = explain_job.find([photos], ["a/b", "ant", "c-a/t"])
    assert {picture.truth for picture in known} == {None, "a/b", "ant"}
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="no picture in the folder"):
        explain_job.find([tmp_path / "none"], NAMES)


@pytest.mark.parametrize("suffix", ["heic", "HEIF", "dng"])
def test_pictures_of_kinds_that_are_not_read_are_told(photos, tmp_path, suffix):
    (tmp_path / "phone").mkdir()
    for number in range(30):
        (tmp_path / "phone" / f"{number:02}.{suffix}").write_bytes(b"x")
    told = (
        rf"30 files \(.{suffix.lower()}\), such as .*00.{suffix}, are not "
        "read; save such pictures as PNG or JPEG"
    )
    with pytest.raises(UserError, match=f"no picture in the folder .*{told}"):
        explain_job.find([tmp_path / "phone"], NAMES)
    (tmp_path / "phone").rename(photos / "phone")
    found, [sentence] = explain_job.find([photos], NAMES)
    assert len(found) == 6 and re.match(told, sentence)
    picture = explain_job.Picture(photos / "phone" / f"00.{suffix}", "x")
    with pytest.raises(UserError, match="readable image; save such pictures"):
        explain_job.read([picture], (8, 8, 1))


def test_pictures_get_the_sides_and_channels_of_the_network(photos):
    picture = explain_job.Picture(photos / "ant" / "0.png", "0.png")
    readable, images, _ = explain_job.read([picture], (6, 9, 3))
    assert readable == [picture._replace(size=(9, 12))]
    grey = read(picture.path)[None, ..., None]
    wanted = resize(np.repeat(grey, 3, axis=-1), (6, 9))
    np.testing.assert_array_equal(images.pixels, wanted)
