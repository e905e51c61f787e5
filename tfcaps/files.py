"""Writing files that appear complete or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def put_in_place(staged: Path, path: Path) -> None:
    """Renames a file that is complete, also if the power fails next."""
    flush(staged)
    os.replace(staged, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Brings a file, or what a folder lists, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Opens a file that takes the place of `path` when the block ends well.

    Args:
        path: Where the file shall appear. Its folder must exist.
        mode: `"wb"` or `"w"` (UTF-8). Defaults to `"wb"`.
    """
    encoding = None if "b" in mode else "utf-8"
    descriptor, staged = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}-"
    )
    try:
        with open(descriptor, mode, encoding=encoding) as file:
            yield file
        os.chmod(staged, 0o644)  # mkstemp makes files private
        put_in_place(Path(staged), path)
    except BaseException:
        Path(staged).unlink(missing_ok=True)
        raise
