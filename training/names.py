"""Names of files and classes, in whatever letters and bytes they are written.

A letter with an accent is one character or two (Unicode's composed and
decomposed forms, NFC and NFD); keyboards write the first, archives of macOS the
second. A file name may also have bytes that are no UTF-8.
"""

import os
import unicodedata
from pathlib import Path


def as_text(name: str) -> str:
    r"""Returns a name as text to show and compare: composed, in UTF-8.

    A byte that is no UTF-8 becomes an escape, such as `\xe9`.
    """
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", text)


def existing(path: str | Path) -> Path:
    """Returns a path, spelt as it is on the disk if it is there."""
    path = Path(path)
    if path.exists() or path == path.parent:
        return path
    folder = existing(path.parent)
    for form in ("NFC", "NFD"):
        other = folder / unicodedata.normalize(form, path.name)
        if other.exists():
            return other
    return folder / path.name
