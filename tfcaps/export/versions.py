"""Versions of a model: complete or not at all, with a hash of each file."""

import contextlib
import errno
import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfcaps.export.runtimes import ExportError
from tfcaps.files import flush

MANIFEST = "manifest.json"
# The server ignores folders whose names are not numbers.
_STAGED = ".publish-"
# Seconds after which nobody writes into a folder any more.
_ABANDONED_AFTER = 3600.0


def publish(
    base: Path, version: int | None, write: Callable[[Path], None]
) -> Path:
    """Makes `<base>/<version>/`, or the next free one, and returns it.

    A folder that `write` fills is made beside it, brought to the disk and
    renamed. What a killed process left is removed an hour later by the next.
    """
    _check_free(base, version)
    made = [path for path in (base, *base.parents) if not path.exists()]
    base.mkdir(parents=True, exist_ok=True)
    for path in base.glob(f"{_STAGED}*"):
        if time.time() - path.stat().st_mtime > _ABANDONED_AFTER:
            shutil.rmtree(path, ignore_errors=True)
    staged = Path(tempfile.mkdtemp(prefix=_STAGED, dir=base))
    try:
        write(staged)
        for path in (*staged.rglob("*"), staged):
            # The server may be another user.
            path.chmod(0o755 if path.is_dir() else 0o644)
            flush(path)
        target = _rename(staged, base, version)
        flush(base)
    except BaseException as error:
        shutil.rmtree(staged, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = error.filename or str(base)
        for path in made:
            with contextlib.suppress(OSError):  # another export may be in it
                path.rmdir()
        raise
    return target


def versions(base: Path) -> list[int]:
    """Returns the versions in a model's folder, ascending."""
    if not base.is_dir():
        return []
    names = [path.name for path in base.iterdir() if path.is_dir()]
    return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))


def _check_free(base: Path, version: int | None) -> None:
    if version in versions(base):
        raise ExportError(
            f"{base / str(version)} exists and is not overwritten; give "
            "another version, or none for the next free one."
        )


def _rename(staged: Path, base: Path, version: int | None) -> Path:
    while True:
        _check_free(base, version)
        number = version or max(versions(base), default=0) + 1
        try:
            return staged.rename(base / str(number))
        except OSError as error:
            # Another export was faster.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """Writes `manifest.json`, with size and SHA-256 of all other files."""
    content = {**about, "files": _files(folder)}
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    (folder / MANIFEST).write_text(text, "utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a folder whose files are those that it names."""
    path = folder / MANIFEST
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        expected = dict(content["files"])
    except FileNotFoundError as error:
        raise ExportError(
            f"manifest: {folder} has no {MANIFEST}, so it is no exported "
            "folder, or not a whole one."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(
            f"manifest: {path} was changed; export the model anew."
        ) from error
    found = _files(folder)
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            problem = "was changed: its SHA-256 is another"
            if name not in found:
                problem = "is missing"
            if name not in expected:
                problem = "does not belong to the export"
            raise ExportError(
                f"manifest: {folder / name} {problem}; export the model anew."
            )
    return content


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
