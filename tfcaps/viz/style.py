"""One look for all figures: colours that colour-blind people can tell apart."""

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

# Okabe and Ito, 2008; the first two also differ in lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")

_LINE = 20  # letters of a class's name side by side


def colour(index: int) -> str:
    """Returns the colour of the model at `index`."""
    return COLOURS[index % len(COLOURS)]


def figure(width: float, height: float) -> Figure:
    """Returns an empty figure of a size in inches."""
    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def class_labels(names: Sequence[str] | None, count: int) -> list[str]:
    """Returns the names of the classes, or their numbers."""
    return list(names) if names else [str(j) for j in range(count)]


def in_lines(name: str) -> str:
    """Returns a long name as it is drawn, on several lines."""
    return textwrap.fill(name, _LINE, break_long_words=False)
