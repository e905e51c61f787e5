"""One look for all figures."""

import io
import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike

from tfcaps.files import write_atomically
from tfcaps.labels import names_of
from tfcaps.ops import Array
from tfcaps.viz.letters import FAMILIES, one_line

# Okabe and Ito, 2008; the first two also differ in lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")

# What the tiles of a drawing are called in its PNG file.
TILES = "tiles"
_ROOM = 4  # pixels around a tile
_LINE = 20  # letters of a class's name side by side
# Where a label may lie from its point, the best first: pixels, and x and y.
_AWAY = (11, 18, 28, 40, 56, 76)
_SIDES = np.array(
    [(0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1)]
)
# A decorator of each function that draws. Names may have dollars, which are no
# formulas.
with_our_look = rc_context(
    {
        "axes.titlesize": 8,
        "axes.labelsize": 9,
        "legend.fontsize": 9,
        "font.family": FAMILIES,
        "text.parse_math": False,
    }
)


class Drawing(Figure):
    """A matplotlib figure, which a notebook shows.

    Attributes:
        tiles: Rows of boxes `[left, top, right, bottom]`, in pixels of its
            picture: panels that may stand below each other where a row is too
            wide. Empty if it stays as it is.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.tiles: list[list[list[int]]] = []

    def _repr_png_(self) -> bytes:
        """Returns what a notebook shows."""
        with io.BytesIO() as file:
            self.savefig(file, format="png")
            return file.getvalue()

    def show(self, warn: bool = True) -> None:
        """Shows it: in a notebook, or else in a window."""
        del warn  # of the class above
        notebook: Any = sys.modules.get("IPython")
        if notebook is not None and notebook.get_ipython() is not None:
            notebook.display.display(self)
            return
        from matplotlib import pyplot

        with io.BytesIO(self._repr_png_()) as file:
            pixels = pyplot.imread(file)
        window = pyplot.figure(figsize=self.get_size_inches())
        window.figimage(pixels, resize=True)
        pyplot.show()

    def save(self, path: str | Path) -> Path:
        """Writes a picture, which appears complete or not at all.

        Args:
            path: Where it shall appear, with or without `.png`.

        Returns:
            Its path, which ends in `.png`.
        """
        path = Path(path)
        path = path.with_name(f"{path.name.removesuffix('.png')}.png")
        with write_atomically(path) as file:
            # The report finds the tiles in the picture.
            note = {TILES: json.dumps(self.tiles)}
            self.savefig(file, format="png", metadata=note)
        return path

    def cut(self, *rows: Sequence[Any]) -> None:
        """Makes tiles of rows of panels, each a box or a list of artists."""
        self.draw_without_rendering()
        wide, high = self.canvas.get_width_height()
        for row in rows:
            boxes = [
                Bbox.union([artist.get_tightbbox() for artist in panel])
                if isinstance(panel, list)
                else panel
                for panel in row
            ]
            # The tiles of a row are equally high.
            whole = Bbox.union(boxes).padded(_ROOM)
            down = high - whole.y1, high - whole.y0
            tiles = [
                (box.x0 - _ROOM, down[0], box.x1 + _ROOM, down[1])
                for box in boxes
            ]
            limits = [wide, high] * 2
            pixels = np.clip(np.rint(tiles).astype(int), 0, limits)
            self.tiles.append(pixels.tolist())


def colour(index: int) -> str:
    """Returns the colour of the model at `index`."""
    return COLOURS[index % len(COLOURS)]


def figure(
    width: float,
    height: float,
    rows: int = 1,
    columns: int = 1,
    *,
    grid: bool = False,
    **options: Any,
) -> tuple[Drawing, Any]:
    """Returns an empty drawing, inches large, and its `[rows, columns]` panels.

    A grid has thin lines behind curves; options are of `Figure.subplots`.
    """
    page = Drawing(figsize=(width, height), layout="constrained", dpi=120)
    panels = page.subplots(rows, columns, squeeze=False, **options)
    for panel in panels.ravel() if grid else ():
        panel.grid(alpha=0.3)
    return page, panels


def in_rows(
    count: int, width: float, above: float, high: float, most: int, **more: Any
) -> tuple[Drawing, list[Axes], list[list[list[Axes]]]]:
    """Returns a drawing, so many panels, and their rows, to be cut."""
    columns = min(count, most)
    rows = -(-count // columns)
    page, panels = figure(width, above + high * rows, rows, columns, **more)
    for panel in panels.ravel()[count:]:
        panel.remove()
    some = list(panels.ravel()[:count])
    starts = range(0, count, columns)
    return page, some, [[[p] for p in some[k : k + columns]] for k in starts]


def draw_lines(
    panel: Axes,
    starts: ArrayLike,
    ends: ArrayLike,
    couplings: Array,
    *,
    hue: str = COLOURS[0],
    thin: float = 1.0,
    pale: float = 1.0,
) -> None:
    """Draws lines whose width and opacity grow with the couplings."""
    both = np.stack([np.reshape(e, (-1, 2)) for e in (starts, ends)], axis=1)
    lines = LineCollection(
        list(both),
        linewidths=thin * (0.5 + 3.5 * couplings),
        colors=[to_rgba(hue, pale * (0.2 + 0.8 * c)) for c in couplings],
        zorder=1,
    )
    panel.add_collection(lines)


def class_labels(
    names: Sequence[str] | None, count: int, **more: str
) -> list[str]:
    """Returns names of classes or types as they are drawn, see `names_of`."""
    return [one_line(label) for label in names_of(names, count, **more)]


def in_lines(name: str) -> str:
    """Returns a long name as it is drawn, on several lines."""
    return textwrap.fill(one_line(name, empty=""), _LINE)


def picture(image: Array) -> Array:
    """Returns an image as it is shown: uint8, `[h, w]` or `[h, w, 3]`.

    Args:
        image: `[h, w, c]`, uint8, or float. Floats beyond [0, 1], such as those
            of a standardised data set, are stretched to it. Two views, as in
            smallNORB, are shown side by side.
    """
    image = np.asarray(image)
    if image.shape[-1] == 2:
        image = np.concatenate([image[..., :1], image[..., 1:]], axis=1)
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        if low < -1e-3 or high > 1 + 1e-3:
            image = (image - low) / ((high - low) or 1.0)
        image = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    return image[..., 0] if image.shape[-1] == 1 else image


def show(panel: Axes, shown: Array, aspect: float = 1.0) -> None:
    """Draws what `picture` returns, without axes.

    The aspect is the height of a pixel by its width.
    """
    panel.imshow(shown, cmap="gray", vmin=0, vmax=255, aspect=aspect)
    without_ticks(panel)


def without_ticks(panel: Axes) -> None:
    """Leaves a panel its frame and its labels."""
    panel.set_xticks([])
    panel.set_yticks([])


def add_labels(
    panel: Axes,
    places: Array,
    texts: Sequence[str],
    edges: Sequence[str],
    end: Array,
) -> None:
    """Puts a text beside each place `[n, 2]`, with an edge of a colour.

    If that can be helped, none hides another one, a place, or a line from a
    place to the end. Limits and size of the panel are final.
    """
    panel.apply_aspect()
    frame, to_pixels = panel.get_window_extent(), panel.transData.transform
    along = np.linspace(0.0, 1.0, 20)[:, np.newaxis, np.newaxis]
    shown = to_pixels((places + along * (end - places)).reshape(-1, 2))
    taken: list[Bbox] = []

    def cost(box: Bbox) -> float:
        beyond = frame.count_contains(box.get_points()) < 2
        hidden = box.padded(6).count_contains(shown)
        return 40 * beyond + 20 * box.count_overlaps(taken) + 2 * hidden

    for place, text, edge in zip(places, texts, edges, strict=True):
        label = panel.annotate(
            text,
            tuple(place),
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            color="#222222",
            bbox={"boxstyle": "round,pad=0.2", "fc": "w", "ec": edge},
            zorder=6,
            annotation_clip=False,
        )
        half = np.array(label.get_window_extent().size) / 2 + 4
        start = to_pixels(place)
        moves = [side * (away + half) for away in _AWAY for side in _SIDES]
        boxes = [Bbox([start + m - half, start + m + half]) for m in moves]
        costs = [0.4 * k + cost(box) for k, box in enumerate(boxes)]
        best = int(np.argmin(costs))
        taken.append(boxes[best])
        label.set_position(tuple(moves[best] * 72 / panel.figure.dpi))
