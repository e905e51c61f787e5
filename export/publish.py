"""Versions of a model, each of which appears complete or not at all."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cli import UserError
from tfcaps.files import flush

# The server ignores folders whose names are not numbers.
_STAGED = ".publish-"
# A folder in which nobody works any more, seconds after it was last touched.
_ABANDONED_AFTER = 60.0


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
        UserError: If the version exists.
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


def _taken(base: Path, version: int) -> UserError:
    return UserError(
        f"{base / str(version)} exists and is not overwritten; give another "
        "--version, or none for the next free one."
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
            if version is not None:
                raise _taken(base, version) from error
            continue
        return target


def _bring_to_disk(folder: Path) -> None:
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            # Readable by the server, which often runs as another user.
            os.chmod(os.path.join(path, name), 0o644)
            flush(Path(path) / name)
        for name in folders:
            os.chmod(os.path.join(path, name), 0o755)
        os.chmod(path, 0o755)
        flush(Path(path))


def _remove_abandoned(base: Path) -> None:
    """Removes what processes left that were killed, and are not at work."""
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
