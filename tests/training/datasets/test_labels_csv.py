"""A CSV file of pictures: what is read, and what its errors say."""

import pytest

from cli import UserError
from tests.tolerance import assert_all_equal
from tests.training.datasets.test_datasets import write_image
from tests.training.datasets.test_own import counts, load
from training import defaults
from training.datasets import own

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
    found, expected = own.survey(path), own.survey(tmp_path)
    assert found.sizes == expected.sizes
    assert len(found.training) == len(expected.training)
    assert [(p.file, p.label) for p in found.pictures] == [
        (p.file, p.label) for p in expected.pictures
    ]


def test_a_split_decides(table):
    kinds = ["train"] * 5 + ["validation"] * 2 + ["test"] * 3
    rows = [(*row, kind) for row, kind in zip(ROWS, 2 * kinds, strict=True)]
    path = table(rows, "file,label,split")
    data = load(path)
    assert counts(data) == [10, 4, 6]
    assert counts(load(path, validation=0.0)) == [10, 4, 6]
    assert len(own.survey(path).training) == 14
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
        ([("a/1.png", "")], "file,label", "line 2 has no label"),
        ([(" ", "a")], "file,label", "line 2 has no file"),
        ([*ROWS, ("a/1.png", "a;b")], "file,label", "line 22 .* 'a;b'; a"),
        ([("a/1.png", "a|b")], "file,label", "line 2 .* several labels for on"),
        ([("a/1.png", "a", "dev")], "file,label,split", "the split 'dev'"),
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
    with pytest.raises(UserError, match=message):
        load(table(rows, head))


def test_files_that_are_no_csv_or_not_there_are_refused(table, tmp_path):
    path = table(ROWS, encoding="utf-16")
    with pytest.raises(UserError, match="labels.csv is not UTF-8"):
        load(path)
    path.unlink()
    for read in (load, lambda path: defaults.load(str(path))):
        with pytest.raises(UserError, match="there is no file .*labels.csv"):
            read(path)


def test_missing_and_repeated_files_are_left_out_and_told(table):
    path = table([*ROWS, ("a/1.png", "a"), ("b/x.png", "b"), ("a/2.png", "b")])
    data = load(path, skip_broken=True)
    assert sum(counts(data)) == 19
    conflict, twice, missing = data.left_out
    assert "line 22) is the same picture as" in twice
    assert "line 4)" in conflict and "line 24) are the same" in conflict
    assert "line 23: there is no file" in missing
