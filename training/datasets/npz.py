"""Opens `.npz` files, of which a clear sentence says what is wrong."""

import contextlib
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from cli import UserError

_BROKEN = (
    *(AttributeError, OSError, ValueError, EOFError, MemoryError),
    *(BadZipFile, zlib.error),
)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Opens a file, whose arrays may be read within."""
    try:
        # Opened here, because numpy leaves a broken file open.
        with open(path, "rb") as file:
            yield np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except _BROKEN as error:
        message = f"{path} is not a readable .npz file: {error}."
        raise UserError(message) from error


def missing(arrays: Any, names: Collection[str]) -> list[str]:
    """Returns the names that a file lacks, in order."""
    return sorted(set(names) - set(getattr(arrays, "files", [])))
