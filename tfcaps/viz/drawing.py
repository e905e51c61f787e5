"""Result of every figure function: the figure and its data."""

import io
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from tfcaps.files import write_atomically


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
        """Returns what a notebook shows of it."""
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
