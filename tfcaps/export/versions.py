"""Versions of a model: complete or not at all, with a hash of each file."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfcaps.files import flush

MANIFEST = "manifest.json"
# The server ignores folders whose names are not numbers.
_STAGED = ".publish-"
# A folder in which nobody works any more, seconds after it was last touched.
_ABANDONED_AFTER = 60.0


class ExportError(Exception):
    """A model that cannot be exported, or an export that fails a check."""


def publish(
    base: Path, version: int | None, write: Callable[[Path], None]
) -> Path:
    """Makes `<base>/<version>/` of what `write` leaves in a folder.

    The folder is made beside its target, brought to the disk and renamed. If
    anything fails, it is removed; what a killed process left is removed by the
    next one.

    Args:
        base: Folder of the model. It is made if need be.
        version: Int, at least 1, or `None` for the next free one.
        write: Function that fills the folder it is given.

    Returns:
        The folder of the version.

    Raises:
        ExportError: If the version exists.
        OSError: If it cannot be written.
    """
    if version is not None and version in versions(base):
        raise _taken(base, version)
    made = [path for path in (base, *base.parents) if not path.exists()]
    base.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(base)
    staged = Path(tempfile.mkdtemp(prefix=_STAGED, dir=base))
    lock = os.open(staged, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write(staged)
        _bring_to_disk(staged)
        target = _rename(staged, base, version)
        flush(base)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):  # another export may be in it
                path.rmdir()
        raise
    finally:
        os.close(lock)
    return target


def versions(base: Path) -> list[int]:
    """Returns the versions in a model's folder, ascending."""
    if not base.is_dir():
        return []
    names = [path.name for path in base.iterdir() if path.is_dir()]
    return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))


def _taken(base: Path, version: int) -> ExportError:
    return ExportError(
        f"{base / str(version)} exists and is not overwritten; give another "
        "version, or none for the next free one."
    )


def _rename(staged: Path, base: Path, version: int | None) -> Path:
    while True:
        taken = versions(base)
        number = max(taken, default=0) + 1 if version is None else version
        target = base / str(number)
        if number in taken:
            raise _taken(base, number)
        try:
            os.rename(staged, target)
        except OSError as error:
            # Another export was faster.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            continue
        return target


def _bring_to_disk(folder: Path) -> None:
    """Flushes a folder, which the server may read as another user."""
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o755 if path.is_dir() else 0o644)
        flush(path)


def _remove_abandoned(base: Path) -> None:
    """Removes the folders of processes that were killed."""
    for path in base.glob(f"{_STAGED}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < _ABANDONED_AFTER:
                continue
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """Writes `manifest.json` into a folder in which all other files are.

    Args:
        folder: The folder of a version.
        about: JSON, to which size and SHA-256 of each file are added.
    """
    content = {**about, "files": _files(folder)}
    content["sha256"] = _digest(content)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    (folder / MANIFEST).write_text(text, "utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a folder whose files are those that it names.

    Raises:
        ExportError: If there is none, or it or a file was changed, or a file
            is missing or new.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text("utf-8"))
        expected, digest = content["files"], content.pop("sha256")
        is_whole = isinstance(expected, dict) and digest == _digest(content)
    except FileNotFoundError as error:
        raise ExportError(
            f"manifest: {folder} has no {MANIFEST}, so it is no exported "
            "folder, or not a whole one."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        is_whole = False
    if not is_whole:
        raise ExportError(
            f"manifest: {path} was changed; export the model anew."
        )
    found = _files(folder)
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            problem = _difference(expected.get(name), found.get(name))
            raise ExportError(
                f"manifest: {folder / name} {problem}; export the model anew."
            )
    return dict(content)


def _difference(expected: Any, found: Any) -> str:
    if not found:
        return "is missing"
    if not expected:
        return "does not belong to the export"
    if found["bytes"] != expected["bytes"]:
        return f"has {found['bytes']} bytes instead of {expected['bytes']}"
    return "was changed: its SHA-256 is another"


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns size and hash of every file but the manifest, by its path."""
    return {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST
    }


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
