"""Names that users give, as they can be drawn."""

import functools
import unicodedata
import warnings
from collections.abc import Iterable

from matplotlib import rcParams
from matplotlib.font_manager import findfont, fontManager, get_font

# It comes with matplotlib.
FAMILY = "DejaVu Sans"
# Its boxes stand for all letters.
_BOXES = "Last Resort"
_LONGEST = 40  # letters of a name
_NAMELESS = "(no name)"


def one_line(text: str, most: int = _LONGEST, *, empty: str = _NAMELESS) -> str:
    """Returns a text on one line; of a long one both ends are kept."""
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    kinds = {c: unicodedata.category(c) for c in text}
    # Half of a pair stands for a byte that is no UTF-8.
    text = "".join("?" if kinds[c] == "Cs" else c for c in text)
    text = "".join(c for c in text if kinds.get(c, "")[:1] != "C")
    if len(text) > most:
        half = (most - 3) // 2
        text = f"{text[:half]}...{text[-half:]}"
    return text or empty


def drawable(text: str, most: int = _LONGEST, *, empty: str = _NAMELESS) -> str:
    """Returns `one_line` of a text, in letters of fonts that are installed.

    Texts that are drawn next use these fonts. A letter that no font has is
    written by its code, and the user is warned once.
    """
    text = one_line(text, most, empty=empty)
    foreign = {c for c in text if ord(c) not in _letters(findfont(FAMILY))}
    if not foreign:
        return text
    families, missing = _families(frozenset(foreign))
    known = rcParams["font.family"]
    rcParams["font.family"] = [*known, *(f for f in families if f not in known)]
    if missing:
        _warn(missing)
    return "".join(f"\\u{ord(c):04x}" if c in missing else c for c in text)


@functools.cache
def _letters(path: str) -> frozenset[int]:
    return frozenset(get_font(path).get_charmap())


@functools.cache
def _families(letters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Returns families of fonts that have letters, and those that none has."""
    left, families = set(letters), []
    for font in sorted(
        fontManager.ttflist, key=lambda f: (f.weight != 400, f.name)
    ):
        if not left:
            break
        if _BOXES in font.name or not (has := _among(font.fname, left)):
            continue
        # Of a family that font is drawn which `findfont` takes.
        if has & _among(findfont(font.name), left):
            families.append(font.name)
            left -= has
    return families, frozenset(left)


def _among(path: str, letters: Iterable[str]) -> set[str]:
    """Returns which letters a font has that can be drawn at any size."""
    try:
        font = get_font(path)
        if not font.scalable:
            return set()
    except (RuntimeError, OSError):  # such as one of coloured bitmaps
        return set()
    return {c for c in letters if ord(c) in _letters(path)}


_told: set[str] = set()


def _warn(missing: frozenset[str]) -> None:
    """Says once which letters are missing."""
    if new := missing - _told:
        _told.update(new)
        warnings.warn(
            f"No installed font has {len(new)} of the letters in names: "
            f"{''.join(sorted(new)[:20])}. They are drawn by their codes; "
            "install a font that has them, such as fonts-noto-cjk.",
            stacklevel=3,
        )
