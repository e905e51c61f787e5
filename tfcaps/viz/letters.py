"""Names that users give, as they can be drawn."""

import unicodedata

from matplotlib.font_manager import fontManager

# The first comes with matplotlib. Letters that it lacks are of the others, as
# far as they are installed.
FAMILIES = [
    "DejaVu Sans",
    *(
        name
        for name in (
            *("Noto Sans CJK JP", "Noto Sans CJK SC", "Microsoft YaHei"),
            *("Arial Unicode MS", "Malgun Gothic", "WenQuanYi Micro Hei"),
        )
        if name in fontManager.get_font_names()
    ),
]
_LONGEST = 40  # letters of a name


def one_line(
    text: str, most: int = _LONGEST, *, empty: str = "(no name)"
) -> str:
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
