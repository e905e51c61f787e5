"""Writing files that appear complete or not at all."""

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def flush(path: Path) -> None:
    """Brings a file, or what a folder lists, to the disk.

    On Windows this is left to the system, which opens no folder and flushes no
    file that is open for reading.
    """
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Opens a file that takes the place of `path` when the block ends well.

    The mode is `"wb"` or `"w"` (UTF-8; of a file name that is not, what UTF-8
    does not have is written as an escape).

    Raises:
        OSError: If it cannot be written, as on a full disk. It names `path`.
    """
    text = ("utf-8", "backslashreplace") if "b" not in mode else (None, None)
    staged = None
    try:
        descriptor, staged = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}-"
        )
        with open(descriptor, mode, -1, *text) as file:
            yield file
        os.chmod(staged, 0o644)  # mkstemp makes files private
        # In this order, so that it is complete also if the power fails.
        flush(Path(staged))
        os.replace(staged, path)
        flush(path.parent)
    except BaseException as error:
        if staged is not None:
            Path(staged).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = error.filename or str(path)
        raise


class _Memory(io.BytesIO):
    """A file in memory that has a name, whose ending Keras wants to see."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def __str__(self) -> str:
        return self.name


def save_atomically(save: Callable[[Any], None], path: Path) -> None:
    """Saves by a model's `save` or `save_weights`, as `write_atomically` does.

    The file is made in memory: HDF5 that runs out of disk ends the process
    with a segmentation fault.
    """
    memory = _Memory(path.name)
    save(memory)
    with write_atomically(path) as file:
        file.write(memory.getbuffer())
