"""Versions appear complete or not at all, whatever happens meanwhile."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.networks import tiny_capsnet
from tests.nightly import NIGHTLY
from tfcaps.export.runtimes import ExportError
from tfcaps.export.versions import (
    publish,
    read_manifest,
    versions,
    write_manifest,
)

ROOT = Path(__file__).parents[2]
# Kills of a whole export: a few here, 50 and more with NIGHTLY=1.
KILLS = 60 if NIGHTLY else 2


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

    with pytest.raises(OSError, match="No space left"):
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


# ------------------------------------------------------- with whole exports


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    tiny_capsnet().save(path)
    return path


def start(model, to, **options):
    """Starts the command that exports the model."""
    return subprocess.Popen(
        [sys.executable, ROOT / "export" / "run.py"]
        + ["--run", str(model), "--to", str(to)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def until_staged(process, base):
    """Waits until an export begins to write; the start-up writes nothing."""
    before = set(base.glob(".publish-*"))
    while process.poll() is None:
        if set(base.glob(".publish-*")) - before:
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_a_kill_at_any_moment_shows_no_half_version(model, tmp_path):
    to = tmp_path / "served"
    base = to / "dr_capsnet"
    draw = np.random.default_rng()
    process = start(model, to)
    until_staged(process, base)
    began = time.monotonic()
    _, error = process.communicate()
    assert process.returncode == 0, error
    takes = time.monotonic() - began
    for _ in range(KILLS):
        process = start(model, to)
        until_staged(process, base)
        time.sleep(draw.uniform(0, takes))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for version in versions(base):
            read_manifest(base / str(version))
    left = list(base.glob(".publish-*"))
    # The next export is not disturbed, and tidies up.
    for folder in left:
        os.utime(folder, (time.time() - 4000,) * 2)
    process = start(model, to)
    output, error = process.communicate()
    assert process.returncode == 0, error
    assert not list(base.glob(".publish-*"))
    assert f"exported to {base}" in output
