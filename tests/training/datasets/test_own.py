"""A user's folder or CSV file of pictures: what counts, and what is told."""

import shutil

import pytest
from PIL import Image

from cli import UserError
from tests.refusals import assert_user_error
from tests.tolerance import assert_all_equal
from tests.training.datasets.test_datasets import write_image
from training import datasets, defaults
from training.datasets import own


def load(folder, **options):
    return datasets.load(str(folder), **options)


def counts(data):
    parts = (data.train, data.validation, data.test)
    return [len(labels) for _, labels in parts]


def test_hidden_files_and_folders_are_no_pictures(photos):
    (photos / ".DS_Store").write_bytes(b"of macOS")
    (photos / "cats" / "._1.png").write_bytes(b"of macOS")
    (photos / "cats" / "Thumbs.db").write_bytes(b"of Windows")
    (photos / "dogs" / "1.png").rename(photos / "dogs" / "1.PNG")
    for name in (".git", "__MACOSX", "dogs/.thumbnails"):
        (photos / name).mkdir()
        (photos / name / "1.png").write_bytes(b"no picture")
    data = load(photos)
    assert data.class_names == ("cats", "dogs") and not data.left_out
    assert counts(data) == [14, 2, 4]


def test_what_is_not_read_gets_a_sentence(photos):
    for number in range(3):
        (photos / "dogs" / f"IMG_{number}.HEIC").write_bytes(b"x")
    deep = photos / "cats" / "old" / "1.png"
    write_image(deep)
    kinds, deeper = load(photos).left_out
    assert kinds.startswith(f"3 files (.heic), such as {photos / 'dogs'}")
    assert str(deep) in deeper
    (photos / "ants").mkdir()
    assert_user_error("ants must .*; it has 0 besides those left", load, photos)
    (photos / "ants" / "1.dng").write_bytes(b"x")
    message = r"ants must .*; it has 0 besides .*ants/1.dng is not read; save"
    assert_user_error(message, load, photos)


def test_few_folders_and_different_sizes_get_a_sentence(photos):
    write_image(photos / "dogs" / "3.png", size=(6, 6))
    assert_user_error("must have one size.*6x6x3", load, photos)
    assert load(photos, resize=4).image_shape == (4, 4, 3)
    (photos / "emus").mkdir()
    assert_user_error(r"emus must .*; it has 0 \(.png, .jpg", load, photos)
    (photos / "emus").rmdir()
    shutil.rmtree(photos / "cats")
    assert_user_error("at least two folders", load, photos)


def test_broken_files_among_good_ones_are_listed(photos):
    (photos / "cats" / "3.png").write_bytes(b"")
    whole = (photos / "dogs" / "4.png").read_bytes()
    (photos / "dogs" / "4.png").write_bytes(whole[:-30])
    Image.new("F", (5, 6)).save(photos / "dogs" / "deep.tif")
    # The same broken bytes twice are broken, and no pictures.
    for name in ("cats", "dogs"):
        (photos / name / "404.jpg").write_bytes(b"<html>not found</html>")
    assert_user_error("add --skip-broken", load, photos)
    data = load(photos, skip_broken=True)
    assert sum(counts(data)) == 18
    names = ("3.png", "404.jpg", "4.png", "404.jpg", "deep.tif")
    for name, told in zip(names, data.left_out, strict=True):
        assert name in told


def test_a_class_that_loses_a_part_is_split_again(photos):
    # Whichever are good, each part gets one.
    for path in sorted((photos / "cats").iterdir())[:7]:
        path.write_bytes(b"no picture")
    data = load(photos, skip_broken=True)
    for _, labels in (data.train, data.validation, data.test):
        assert set(labels) == {0, 1}
    for path in sorted((photos / "cats").iterdir())[7:9]:
        path.write_bytes(b"nor this one")
    with pytest.raises(UserError, match="cats must have at least two images"):
        load(photos, skip_broken=True)


def test_the_same_picture_in_two_classes_gets_a_sentence(photos):
    shutil.copy(photos / "cats" / "3.png", photos / "dogs" / "copy.png")
    with pytest.raises(UserError) as refused:
        load(photos)
    told = (
        f"{photos / 'cats' / '3.png'} and {photos / 'dogs' / 'copy.png'} are "
        "the same picture in two classes, 'cats' and 'dogs'."
    )
    assert str(refused.value).startswith(told)
    assert "several labels for one are not supported" in str(refused.value)
    data = load(photos, skip_broken=True)
    assert sum(counts(data)) == 19
    assert [sentence.startswith(told) for sentence in data.left_out] == [True]


def test_the_same_picture_twice_in_a_class_counts_once(photos):
    for k in range(10):
        shutil.copy(photos / "cats" / f"{k}.png", photos / "cats" / f"x{k}.png")
    data = load(photos)
    assert counts(data) == [14, 2, 4] and len(data.left_out) == 10
    assert data.left_out[0] == (
        f"{photos / 'cats' / 'x0.png'} is the same picture as "
        f"{photos / 'cats' / '0.png'}."
    )
    parts = [data.train, data.validation, data.test]
    every = [image.tobytes() for part in parts for image in part.images.pixels]
    assert len(set(every)) == len(every) == 20


ROWS = [(f"{name}/{k}.png", name) for name in "ab" for k in range(10)]


@pytest.fixture
def table(tmp_path):
    """Returns what writes a CSV file about 20 pictures."""
    for file, _ in ROWS:
        write_image(tmp_path / file, (40, 30))

    def write(rows, head="file,label", encoding="utf-8"):
        path = tmp_path / "labels.csv"
        lines = [head, *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding)
        return path

    return write


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_columns_may_have_any_order_and_others_are_ignored(table, encoding):
    rows = [("ö" + label, 7, f'"{file}"') for file, label in ROWS]
    data = load(table(rows, "label,age, file ", encoding))
    assert data.name == "labels"
    assert data.class_names == ("öa", "öb")
    assert counts(data) == [14, 2, 4] and not data.left_out
    assert data.image_shape == (30, 40, 3)


def test_a_folder_and_its_csv_file_are_the_same(table, tmp_path):
    path = table(ROWS)
    listed, folder = load(path), load(tmp_path)
    for name in ("train", "validation", "test"):
        assert_all_equal(getattr(listed, name), getattr(folder, name))
    assert_all_equal(own.survey(path), own.survey(tmp_path))


def test_a_split_decides(table):
    kinds = ["train"] * 5 + ["validation"] * 2 + ["test"] * 3
    rows = [(*row, kind) for row, kind in zip(ROWS, 2 * kinds, strict=True)]
    path = table(rows, "file,label,split")
    data = load(path)
    assert counts(data) == [10, 4, 6]
    assert counts(load(path, validation=0.0)) == [10, 4, 6]
    assert own.survey(path).training == 14
    held = [(*row[:2], row[2].replace("validation", "train")) for row in rows]
    data = load(table(held, "file,label,split"))
    assert counts(data) == [12, 2, 6]
    only_train = [(*row, "train") for row in ROWS]
    assert counts(load(table(only_train, "file,label,split"))) == [14, 2, 4]


@pytest.mark.parametrize(
    ("rows", "head", "message"),
    [
        (ROWS, "file;label", "in its first line and separated by .* file;lab"),
        (ROWS, "", "must have the columns file and label"),
        ([*ROWS, ("a/1.png",)], "file,label", "line 22 must have 2 cells"),
        ([("a/1.png", "a", "x")], "file,label", "line 2 must have 2 cells"),
        ([("a/1.png", "")], "file,label", "line 2 must have .* a label"),
        ([(" ", "a")], "file,label", "line 2 must have a file"),
        ([*ROWS, ("a/1.png", "a;b")], "file,label", "line 22 .* 'a;b'; a"),
        ([("a/1.png", "a|b")], "file,label", "line 2 .* several labels for on"),
        ([("a/1.png", "a", "dev")], "file,label,split", "line 2 .* and 'dev'"),
        ([("a/1.png", '"a')], "file,label", "not a readable CSV file"),
        ([*ROWS, ("b/x.png", "b")], "file,label", "line 22: there is no file"),
        (ROWS[:10], "file,label", "csv must have at least two labels"),
        (ROWS[:11], "file,label", "csv: the class 'b' must have at least two"),
        (
            [(*row, "train" if row[1] == "a" else "test") for row in ROWS],
            "file,label,split",
            "class 'b' must have images whose split is train",
        ),
        ([*ROWS, ("a/1.png", "b")], "file,label", "line 3.* and .*line 22"),
    ],
    ids=range(15),
)  # fmt: skip
def test_wrong_files_are_refused_and_the_line_is_named(
    table, rows, head, message
):
    assert_user_error(message, load, table(rows, head))


def test_files_that_are_no_csv_or_not_there_are_refused(table, tmp_path):
    path = table(ROWS, encoding="utf-16")
    assert_user_error("not a readable CSV file in UTF-8", load, path)
    path.unlink()
    for read in (load, lambda path: defaults.load(str(path))):
        assert_user_error("there is no file .*labels.csv", read, path)


def test_missing_and_repeated_files_are_left_out_and_told(table):
    path = table([*ROWS, ("a/1.png", "a"), ("b/x.png", "b"), ("a/2.png", "b")])
    data = load(path, skip_broken=True)
    assert sum(counts(data)) == 19
    conflict, twice, missing = data.left_out
    assert "line 22) is the same picture as" in twice
    assert "line 4)" in conflict and "line 24) are the same" in conflict
    assert "line 23: there is no file" in missing
