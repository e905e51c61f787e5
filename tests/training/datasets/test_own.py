"""A user's folder of pictures: what counts, and what is told."""

import shutil

import pytest
from PIL import Image

from cli import UserError
from tests.refusals import assert_user_error
from tests.training.datasets.test_datasets import write_image
from training import datasets


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
