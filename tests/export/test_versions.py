"""Versions appear complete or not at all, whatever happens meanwhile."""

import errno
import os
import time
from pathlib import Path

import pytest

from tfcaps.export.runtimes import ExportError
from tfcaps.export.versions import publish, versions, write_manifest


def write(folder):
    (folder / "variables").mkdir()
    (folder / "variables" / "data").write_bytes(b"x" * 1000)
    write_manifest(folder, {})


def names(base):
    return sorted(path.name for path in base.iterdir())


def test_versions_count_up_and_are_never_overwritten(tmp_path):
    base = tmp_path / "served" / "m"
    targets = [publish(base, None, write) for _ in range(2)]
    assert targets == [base / "1", base / "2"]
    publish(base, 7, write)
    assert publish(base, None, write) == base / "8"
    for version in (1, 7):
        with pytest.raises(ExportError, match=f"{version} exists and is not"):
            publish(base, version, lambda folder: pytest.fail("written"))
    assert names(base) == ["1", "2", "7", "8"]


def test_a_version_with_leading_zeros_is_that_version(tmp_path):
    (tmp_path / "0004").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "9").write_text("a file")
    assert versions(tmp_path) == [4]
    with pytest.raises(ExportError, match="4 exists"):
        publish(tmp_path, 4, write)
    assert publish(tmp_path, None, write).name == "5"


def test_another_user_can_read_a_version(tmp_path):
    folder = publish(tmp_path, None, write)
    assert folder.stat().st_mode & 0o777 == 0o755
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o777 == (
            0o755 if path.is_dir() else 0o644
        )


def test_a_failure_leaves_nothing_behind(tmp_path):
    def fail(folder):
        write(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left.*new/m"):
        publish(tmp_path / "new" / "m", None, fail)
    assert names(tmp_path) == []
    publish(tmp_path, None, write)
    with pytest.raises(OSError, match="No space left"):
        publish(tmp_path, None, fail)
    assert names(tmp_path) == ["1"]


def test_a_rename_that_loses_the_race_tries_the_next_version(
    tmp_path, monkeypatch
):
    rename = os.rename

    def slower(source, target):
        monkeypatch.setattr(os, "rename", rename)
        (Path(target) / "of_another").mkdir(parents=True)
        rename(source, target)

    monkeypatch.setattr(os, "rename", slower)
    assert publish(tmp_path, None, write) == tmp_path / "2"
    monkeypatch.setattr(os, "rename", slower)
    with pytest.raises(ExportError, match="5 exists and is not overwritten"):
        publish(tmp_path, 5, write)
    assert names(tmp_path) == ["1", "2", "5"]


def test_everything_is_on_the_disk_before_it_appears(tmp_path, monkeypatch):
    synced, rename = [], os.rename
    fsync = os.fsync

    def note(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def check(source, target):
        staged = Path(source)
        every = {str(path) for path in (staged, *staged.rglob("*"))}
        assert every <= set(synced)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "rename", check)
    publish(tmp_path, None, write)
    assert synced[-1] == str(tmp_path)


def test_what_a_killed_export_left_is_removed(tmp_path):
    left, at_work = tmp_path / ".publish-left", tmp_path / ".publish-busy"
    for folder in (left, at_work):
        (folder / "x").mkdir(parents=True)
    os.utime(left, (time.time() - 4000,) * 2)
    publish(tmp_path, None, write)
    assert names(tmp_path) == [".publish-busy", "1"]
