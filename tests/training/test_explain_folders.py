"""Folders of own pictures: what is read, asked, counted, drawn and written."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

from cli import UserError
from tests.networks import draw_weights, tiny_capsnet
from tests.training.test_explain import command
from tfcaps import rem
from training import explain_job, explained, images, own_pictures
from training.configs import Config
from training.explained import Answerer
from training.folder import RunFolder

NAMES = ["ant", "bee", "cat"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of a network that tells its images apart."""
    model = draw_weights(tiny_capsnet(), 0, class_caps=9.0)
    rng = np.random.default_rng(0)
    data = rng.random((40, 8, 8, 1)).astype("float32")
    report = rem.evaluate(model, (data, rng.integers(0, 3, 40)))
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run", Config())
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


def answers_of(run, photos):
    """Returns what the network says of the pictures, asked without explain."""
    pictures = sorted(photos.rglob("*.png"))
    pixels = [images.read(path, "L")[None, ..., None] for path in pictures]
    small = np.concatenate([images.resize(image, 8) for image in pixels])
    model = rem.quantize_couplings(run.load_model("baseline"), 11)
    lengths = np.asarray(rem.capsule_outputs(model)(small / 255)["lengths"])
    return pictures, small, lengths


def rows_of(folder):
    with open(folder / "predictions.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_becomes_a_page_and_a_table(
    run, photos, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(explained, "PANELS", 4)
    assert command("--run", run.path, photos, "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    paths, small, lengths = answers_of(run, photos)
    order = np.argsort(-lengths, axis=-1)
    rows = rows_of(tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    right = 0
    for row, path, (best, second, _), values in zip(
        rows, paths, order, lengths, strict=True
    ):
        assert row["file"] == str(path)
        assert row["class"] == NAMES[best]
        assert row["runner_up"] == NAMES[second]
        assert row["true_class"] == path.parent.name
        assert float(row["length"]) == pytest.approx(values[best], abs=1e-3)
        assert float(row["runner_up_length"]) == pytest.approx(
            values[second], abs=1e-3
        )
        name = f"{path.parent.name}/{path.name}"
        is_right = NAMES[best] == path.parent.name
        mark = "yes" if is_right else f"WRONG: {path.parent.name}"
        assert f"<td>{name}</td><td>{NAMES[best]}</td>" in page
        assert f"<td>{mark}</td>" in page
        if not is_right:
            assert f"{name} taken for {NAMES[best]}" in printed
        right += is_right
    told = f"{right} of the 6 pictures in folders named like classes are right"
    assert 0 < right < 6 and told in printed and told in page
    assert page.count("have lines to the same children") == 6
    # Four panels in a figure, and each with its data.
    shown = []
    for number, count in ((1, 4), (2, 2)):
        for name in ("tree_fields", "parse_trees", "saliency"):
            assert (tmp_path / "out" / f"{name}-{number}.png").exists()
        file = tmp_path / "out" / f"tree_fields-{number}.json"
        pages = json.loads(file.read_text())["images"]
        assert len(pages) == count
        shown += [part["image"] for part in pages]
    # Of the first page each picture has a drawing of its own.
    for number in range(1, 5):
        file = tmp_path / "out" / f"named_tree-{number}.json"
        named = json.loads(file.read_text())
        assert named["image"] == shown[number - 1]
        assert NAMES[named["label"]] == paths[number - 1].parent.name
    assert page.count("data:image/png;base64,") == 6 + 4
    assert "page 2" in page and "picture 4" in page
    # Resized as in training.
    assert shown == small[..., 0].tolist()
    assert "12x9 to 8x8 pixels, width by height (and 5 more)" in printed


@pytest.mark.slow
def test_few_are_in_memory_and_wrong_ones_are_drawn_first(
    run, photos, tmp_path, monkeypatch, capsys
):
    sizes, ask = [], Answerer.ask

    def noted(self, pictures, batch):
        sizes.append(batch.shape)
        return ask(self, pictures, batch)

    monkeypatch.setattr(Answerer, "ask", noted)
    monkeypatch.setattr(explain_job, "_BATCH_SIZE", 4 * 64)
    paths, _, lengths = answers_of(run, photos)
    wrong = [
        path
        for path, best in zip(paths, np.argmax(lengths, axis=-1), strict=True)
        if NAMES[best] != path.parent.name
    ]
    # A right one stands among the first, but is not drawn.
    assert wrong != paths[: len(wrong)]
    flags = ("--draw", len(wrong), "--out", tmp_path / "out")
    assert command("--run", run.path, photos, *flags) == 0
    assert sizes == [(4, 8, 8, 1), (2, 8, 8, 1)]
    assert "4 of 6 pictures\n6 of 6 pictures\n" in capsys.readouterr().out
    drawn = json.loads((tmp_path / "out" / "tree_fields.json").read_text())
    for part, path in zip(drawn["images"], wrong, strict=True):
        assert f"(WRONG: {path.parent.name})" in part["title"]
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert f"{len(wrong)} of the 6 pictures are drawn, wrong ones first" in page
    assert page.count("<td>yes</td>") + page.count("<td>WRONG") == 6


def test_broken_pictures_are_named_and_may_be_left_out(
    run, photos, tmp_path, capsys
):
    (photos / "bee" / "0.png").write_bytes(b"no picture")
    arguments = ("--run", run.path, photos / "bee", "--out", tmp_path / "out")
    assert command(*arguments) == 2
    error = capsys.readouterr().err
    assert "0.png is not a readable image. To leave such files out" in error
    assert not (tmp_path / "out").exists()
    assert command(*arguments, "--skip-broken") == 0
    assert "left out: " in capsys.readouterr().out
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "0.png is not a readable image." in page
    [row] = rows_of(tmp_path / "out")
    assert row["file"] == str(photos / "bee" / "1.png")
    assert "true_class" not in row  # the folder itself tells nothing
    (photos / "bee" / "1.png").write_bytes(b"no picture")
    assert command(*arguments, "--skip-broken") == 2
    assert "none of the 2 pictures can be read" in capsys.readouterr().err


def test_pictures_are_found_and_told_apart(photos, tmp_path):
    other = tmp_path / "other"
    (other / "bee").mkdir(parents=True)
    (other / "zoo").mkdir()
    for name in ("bee/0.png", "zoo/x.JPG", "top.gif"):
        (other / name).write_bytes(b"")
    single = photos / "ant" / "1.png"
    found = own_pictures.find([photos, other, single, single], NAMES)
    names = [picture.name for picture in found]
    assert len({*names}) == len(names) == 6 + 3 + 2
    assert [
        (p.name, p.truth) for p in found if p.path.parent.parent == other
    ] == [(f"{other}/bee/0.png", "bee"), ("zoo/x.JPG", None)]
    by_name = {picture.name: picture for picture in found}
    assert by_name["top.gif"].truth is None
    assert by_name["cat/1.png"].truth == "cat"
    assert [p.name for p in found if p.path == single] == [
        "2 ant/1.png", f"10 {single}", f"11 {single}",
    ]  # fmt: skip
    known = own_pictures.find([photos], ["an/t", "c-a/t", "dog"])
    assert {picture.truth for picture in known} == {None}
    (photos / "a-b").mkdir()
    (photos / "a-b" / "1.png").write_bytes(b"")
    known = own_pictures.find([photos], ["a/b", "ant"])
    assert {picture.truth for picture in known} == {None, "a/b", "ant"}
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="no picture in the folder"):
        own_pictures.find([tmp_path / "none"], NAMES)


def test_pictures_get_the_sides_and_channels_of_the_network(photos):
    picture = own_pictures.Picture(photos / "ant" / "0.png", "0.png")
    reader = own_pictures.Reader((6, 9, 3), False, False)
    readable, read = reader.read([picture])
    assert readable == [picture]
    [image] = read.pixels
    grey = images.read(picture.path)[None, ..., None]
    wanted = images.resize(np.repeat(grey, 3, axis=-1), (6, 9))[0]
    np.testing.assert_array_equal(image, wanted)
    assert image.shape == (6, 9, 3)
    assert np.ptp(image, axis=-1).max() == 0
