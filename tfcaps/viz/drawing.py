"""One look for all figures, and the data that belongs to each."""

import io
import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tfcaps.files import write_atomically

# Okabe and Ito, 2008; the first two also differ in lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")

_LINE = 20  # letters of a class's name side by side
Array = NDArray[Any]


class Drawing(NamedTuple):
    """A figure and the numbers that it shows.

    Attributes:
        figure: What `savefig` writes, and a notebook shows of the drawing.
        data: The same as numbers and text, ready for JSON, so that it can be
            drawn in another way.
    """

    figure: Figure
    data: dict[str, Any]

    def _repr_png_(self) -> bytes:
        """Returns the picture that a notebook shows."""
        with io.BytesIO() as file:
            self.figure.savefig(file, format="png")
            return file.getvalue()

    def save(self, path: str | Path) -> Path:
        """Writes the figure and, beside it, the data.

        Args:
            path: Where both shall appear, with or without `.png`.

        Returns:
            Path of the picture, which ends in `.png`; the data's in `.json`.
        """
        path = Path(path)
        name = path.name.removesuffix(".png")
        picture = path.with_name(f"{name}.png")
        with write_atomically(picture) as file:
            self.figure.savefig(file, format="png")
        with write_atomically(path.with_name(f"{name}.json"), "w") as file:
            json.dump(self.data, file, allow_nan=False)
            file.write("\n")
        return picture


def for_json(value: Any) -> Any:
    """Turns arrays and numpy's numbers, also in dicts and lists, into JSON's.

    Numbers that are not finite become `None`.
    """
    if isinstance(value, dict):
        return {str(name): for_json(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [for_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


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


def picture(image: Array) -> Array:
    """Returns an image as it is shown: uint8, `[h, w]` or `[h, w, 3]`.

    Args:
        image: `[h, w, c]`, uint8, or float. Floats beyond [0, 1], such as those
            of a standardised data set, are stretched to it. Two views, as in
            smallNORB, are shown side by side.
    """
    image = side_by_side(np.asarray(image))
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        if low < -1e-3 or high > 1 + 1e-3:
            image = (image - low) / ((high - low) or 1.0)
        image = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    return image[..., 0] if image.shape[-1] == 1 else image


def side_by_side(image: Array) -> Array:
    """Returns `[h, 2w, 1]` of an image `[h, w, 2]`, and others as they are."""
    if image.shape[-1] == 2:
        return np.concatenate([image[..., :1], image[..., 1:]], axis=1)
    return image


def show(panel: Axes, shown: Array) -> None:
    """Draws what `picture` returns, without axes."""
    panel.imshow(shown, cmap="gray", vmin=0, vmax=255)
    without_ticks(panel)


def without_ticks(panel: Axes) -> None:
    """Leaves a panel its frame and its labels."""
    panel.set_xticks([])
    panel.set_yticks([])


def stretched(values: Array) -> Array:
    """Returns a map from 0 to 1; one that is constant is 0."""
    low, high = values.min(), values.max()
    # Below float32's noise there is nothing to see.
    if high - low <= 1e-6 * max(abs(high), 1e-12):
        return np.zeros_like(values)
    return (values - low) / (high - low)
