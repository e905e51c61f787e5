"""Texts beside points, where there is room for them."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Directions in which a text may lie from its point, the best first.
_DIRECTIONS = np.array(
    [(0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1)]
)
# Pixels between a point and its text, in steps.
_DISTANCES = (11, 18, 28, 40)
# What it costs to lie beyond the panel, on a text or a point, and on a line.
_BEYOND, _ON_OTHERS, _ON_LINES = 40.0, 20.0, 3.0
# Half the side of a point in pixels.
_POINT = 9.0


class Labels:
    """Puts texts into a panel, none on another one if that can be helped.

    Args:
        panel: The panel, whose limits and size are final.
        points: What texts must not hide, `[n, 2]`, x and y.
        lines: Ends of lines that they should not hide, `[m, 2, 2]`.
    """

    def __init__(self, panel: Axes, points: Array, lines: Array):
        self._panel = panel
        panel.apply_aspect()
        self._inside = panel.get_window_extent()
        at = panel.transData.transform(np.reshape(points, (-1, 2)))
        self._taken = np.hstack([at - _POINT, at + _POINT])
        at = panel.transData.transform(np.reshape(lines, (-1, 2)))
        ends: Array = np.reshape(at, (-1, 2, 2))
        along = np.linspace(0, 1, 40)[:, np.newaxis, np.newaxis]
        on_lines = ends[:, 0] + along * (ends[:, 1] - ends[:, 0])
        self._on_lines = on_lines.reshape(-1, 2)

    def add(self, point: Array, text: str, *, edge: str, size: float) -> None:
        """Puts a text beside a point.

        Args:
            point: x and y.
            text: The text.
            edge: Colour of the frame around it.
            size: Size of the letters.
        """
        shown = self._panel.annotate(
            text,
            (0, 0),
            xycoords="figure pixels",
            ha="center",
            va="center",
            fontsize=size,
            linespacing=1.0,
            color="#222222",
            bbox={
                "boxstyle": "round,pad=0.18",
                "fc": (1, 1, 1, 0.9),
                "ec": edge,
                "lw": 1.3,
            },
            zorder=6,
            annotation_clip=False,
        )
        half = np.array(shown.get_window_extent().size) / 2 + 4
        start = self._panel.transData.transform(point)
        # The figure's own pixels, from the lower left corner.
        middles = np.array(
            [
                start + toward * (distance + half * np.abs(toward))
                for distance in _DISTANCES
                for toward in _DIRECTIONS
            ]
        )
        costs = [
            self._cost(middle, half) + 0.4 * k
            for k, middle in enumerate(middles)
        ]
        best = middles[int(np.argmin(costs))]
        shown.xy = shown.xyann = tuple(best)
        box = np.concatenate([best - half, best + half])
        self._taken = np.vstack([self._taken, box])

    def _cost(self, middle: Array, half: Array) -> float:
        low, high = middle - half, middle + half
        box = Bbox([low, high])
        inside = Bbox.intersection(box, self._inside)
        area = box.width * box.height
        seen = 0.0 if inside is None else inside.width * inside.height
        across = np.minimum(high, self._taken[:, 2:]) - np.maximum(
            low, self._taken[:, :2]
        )
        hidden = np.prod(np.maximum(across, 0), axis=1).sum() / area
        on_lines = (
            np.all(
                (self._on_lines > low) & (self._on_lines < high), axis=1
            ).mean()
            if len(self._on_lines)
            else 0.0
        )
        return float(
            _BEYOND * (1 - seen / area)
            + _ON_OTHERS * hidden
            + _ON_LINES * on_lines * 10
        )
