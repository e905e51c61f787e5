"""Names that users give, as they can be drawn."""

import functools
import logging
import unicodedata
import warnings

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
    foreign = frozenset(c for c in text if c not in _letters(findfont(FAMILY)))
    if not foreign:
        return text
    families, missing = _families(foreign)
    known = rcParams["font.family"]
    rcParams["font.family"] = [*known, *(f for f in families if f not in known)]
    return "".join(f"\\u{ord(c):04x}" if c in missing else c for c in text)


@functools.cache
def _letters(path: str) -> frozenset[str]:
    """Returns the letters of a font that can be drawn at any size."""
    try:
        font = get_font(path)
        return frozenset(map(chr, font.get_charmap() if font.scalable else ()))
    except (RuntimeError, OSError):  # such as one of coloured bitmaps
        return frozenset()


@functools.cache
def _families(letters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Returns families of fonts that have letters, and those that none has."""
    missing, families = letters, []
    for font in sorted(
        fontManager.ttflist, key=lambda f: (f.weight != 400, f.name)
    ):
        if not missing:
            break
        if _BOXES in font.name or not missing & _letters(font.fname):
            continue
        # Of a family that font is drawn which `findfont` takes.
        if has := missing & _letters(findfont(font.name)):
            families.append(font.name)
            missing -= has
    # They have no bold letters, and the others are as bold as before.
    logging.getLogger("matplotlib.font_manager").addFilter(_is_news)
    _warn(missing)
    return families, missing


def _is_news(record: logging.LogRecord) -> bool:
    return "Failed to find font weight" not in str(record.msg)


_told: set[str] = set()


def _warn(missing: frozenset[str]) -> None:
    """Says once which letters are missing."""
    if new := missing - _told:
        _told.update(new)
        warnings.warn(
            f"No installed font has {len(new)} of the letters in names: "
            f"{''.join(sorted(new)[:20])}. They are drawn by their codes; "
            "install a font that has them, such as fonts-noto-cjk.",
            stacklevel=4,
        )
