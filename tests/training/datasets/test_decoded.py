"""Decoded pictures in memory or on disk: the same, and made once."""

import mmap
import os
import shutil

import numpy as np
import pytest

from cli import UserError
from tests.training.test_own_pictures import load
from training import images
from training.batches import Batches
from training.datasets import decoded


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder into which all decoded pictures go."""
    monkeypatch.setenv("TFCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(decoded, "LARGEST_IN_MEMORY", 0)
    return tmp_path / "cache"


def assert_same(one, other):
    assert one.left_out == other.left_out
    for name in ("train", "validation", "test"):
        a, b = getattr(one, name), getattr(other, name)
        np.testing.assert_array_equal(a.images.pixels, b.images.pixels)
        np.testing.assert_array_equal(a.labels, b.labels)


def is_on_disk(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def never(*args, **kwargs):
    raise AssertionError("pictures were decoded")


def test_few_pictures_are_in_memory(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("TFCAPS_CACHE", str(tmp_path / "cache"))
    data = load(photos)
    assert (
        not is_on_disk(data.train.images.pixels)
        and not (tmp_path / "cache").exists()
    )


def test_many_are_on_disk_and_decoded_once(photos, cache, monkeypatch, capsys):
    shutil.copy(photos / "cats" / "1.png", photos / "cats" / "x.png")
    (photos / "cats" / "2.png").write_bytes(b"broken")
    options = {"resize": 4, "skip_broken": True}
    first = load(photos, **options)
    assert "pictures are kept in" in capsys.readouterr().out
    monkeypatch.setattr(images, "read", never)
    again = load(photos, **options)
    assert "19 pictures are read from" in capsys.readouterr().out
    monkeypatch.undo()
    in_memory = load(photos, **options)
    for data in (first, again):
        assert_same(data, in_memory)
        for images_of, _ in (data.train, data.validation, data.test):
            assert is_on_disk(images_of.pixels)
    assert is_on_disk(again.resized(4).train.images.pixels)
    batch, _ = Batches(*again.train, 8, seed=1)[0]
    np.testing.assert_array_equal(
        batch, Batches(*in_memory.train, 8, seed=1)[0][0]
    )
    names = sorted(path.suffix for path in cache.iterdir())
    assert names == [".images", ".json"]


@pytest.mark.parametrize(
    "change",
    [
        lambda photos: {"resize": 3},
        lambda photos: {"validation": 0.3},
        lambda photos: {"skip_broken": True},
        lambda photos: (photos / "cats" / "1.png").unlink(),
        lambda photos: os.utime(photos / "cats" / "1.png", (1, 1)),
        lambda photos: os.rename(photos / "dogs", photos / "emus"),
    ],
    ids=["size", "validation", "skip", "gone", "time", "class"],
)
def test_what_is_on_disk_is_of_these_pictures_and_settings(
    photos, cache, monkeypatch, change
):
    options = {"resize": 4}
    load(photos, **options)
    options.update(change(photos) or {})
    monkeypatch.setattr(images, "read", never)
    with pytest.raises(AssertionError, match="pictures were decoded"):
        load(photos, **options)


def test_labels_may_change_while_the_pictures_stay(photos, cache):
    files = [f"{name}/{k}.png" for name in ("cats", "dogs") for k in range(10)]
    path = photos / "labels.csv"
    labels = []
    for classes in ("ab", "ba"):
        rows = [f"{file},{classes[file[0] == 'd']}\n" for file in files]
        path.write_text("file,label\n" + "".join(rows))
        labels.append(load(path, resize=4).train.labels)
    assert (labels[0] == 1 - labels[1]).all()


@pytest.mark.parametrize("suffix", [".images", ".json"])
@pytest.mark.parametrize("content", [None, b""])
def test_spoilt_files_are_written_again(photos, cache, suffix, content):
    expected = load(photos, resize=4)
    (path,) = cache.glob(f"*{suffix}")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert_same(load(photos, resize=4), expected)


def test_a_reading_that_is_stopped_leaves_nothing(photos, cache):
    (photos / "dogs" / "9.png").write_bytes(b"broken")
    with pytest.raises(UserError, match="9.png is not a readable image"):
        load(photos)
    assert not list(cache.iterdir())


def test_a_full_disk_and_a_folder_that_cannot_be_made_are_told(
    photos, cache, monkeypatch
):
    usage = shutil.disk_usage(photos)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match="need 0.0 GiB in .*TFCAPS_CACHE"):
        load(photos)
    cache.rmdir()
    cache.write_bytes(b"a file")
    with pytest.raises(UserError, match="cannot be made: .*TFCAPS_CACHE"):
        load(photos)


def test_the_folder_is_that_of_the_system(tmp_path, monkeypatch):
    monkeypatch.delenv("TFCAPS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert decoded._folder() == tmp_path / "tfcaps" / "pictures"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    expected = tmp_path / "me" / ".cache" / "tfcaps" / "pictures"
    assert decoded._folder() == expected


def test_many_pictures_have_a_progress_bar(photos, monkeypatch, capsys):
    load(photos)
    assert not capsys.readouterr().out
    monkeypatch.setattr(decoded, "_FEWEST_SHOWN", 20)
    load(photos)
    assert "20/20" in capsys.readouterr().out
