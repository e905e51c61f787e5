"""Figures that are made of parts: what tells a class is how parts are arranged.

An image shows one figure. It has five slots, two above three, and in each
stands a bar, a disc, a ring, a triangle or a square. All figures have the same
five parts; `designs.toml` says which one stands where. So the parts that are
there do not tell the class at all, and a part at its slot leaves three classes
or four. Parts differ a little in place, size, angle and brightness, and the
figure stands anywhere. One to three loose parts of the same kinds lie around
it, at least `LOOSE_GAP` pixels away; they mean nothing.

Centres of the parts and of the loose parts come with the test images. A class
is called by its upper row and its lower one, such as `bar disc / triangle ring
square`. What was chosen on `figures` is tried on `figures_of_four`, of other
slots and kinds. In `figures_repeated` every class has a kind twice, and slots
are empty.

Source: after SynDaCaTE, Levi and van der Wilk, 2025, arXiv 2506.17558.
"""

import dataclasses
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from training.datasets.data import Arrays, Data, checked
from training.images import Array

SIZE = 32


class Design(NamedTuple):
    """A set of figures."""

    kinds: tuple[str, ...]  # of parts
    # Row and column in pixels, from the middle of the upper row.
    slots: tuple[tuple[float, float], ...]
    # The kind at each slot, for each class, "" for none.
    figures: tuple[tuple[str, ...], ...]
    scale: float = 1.0  # of parts
    ground: str = "plain"  # or "ramp", "clouds", "grain" or "bright"
    side: int = SIZE  # of an image, in pixels


def _design(kinds: str, slots: list[list[float]], figures: str) -> Design:
    """Returns what an entry of `designs.toml` says."""
    rows = [tuple(k.strip("-") for k in f.split()) for f in figures.split("\n")]
    places = tuple((row, column) for row, column in slots)
    return Design(tuple(kinds.split()), places, tuple(rows))


_FILE = Path(__file__).with_name("designs.toml").read_text("utf-8")
DESIGNS = {name: _design(**each) for name, each in tomllib.loads(_FILE).items()}
LOOSE_GAP = 3.0  # pixels between a figure and a loose part, about

_MOST_LOOSE = 3
_RADIUS = 3.5  # of a part in pixels, about
_REACH = 3.7  # from a part's middle to its furthest corner, about
_JITTER = 0.3  # pixels that a part moves from its slot, to each side
_SCALES = (0.94, 1.06)
_ANGLE = np.deg2rad(12.0)
_TRIES = 60  # places that are tried for a loose part
_GROUND = (0.02, 0.10)  # brightness, of 1
_INK = (0.65, 0.95)
_NOISE = 0.025
_CHUNK = 500  # images drawn at a time


def draw(
    count: int, seed: int, design: str | Design = "figures"
) -> tuple[Arrays, Any]:
    """Draws images of all classes, equally many, in random order.

    What is drawn depends on count, seed and design alone: images `[n, side,
    side, 1]`, uint8, and labels `[n]`; their parts, as `tfcaps.rem.PartMasks`.
    """
    from tfcaps.rem import PartMasks  # it takes long to load

    chosen = DESIGNS[design] if isinstance(design, str) else design
    slots, side = len(chosen.slots), chosen.side
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % len(chosen.figures))
    kinds, centres, present = _arranged(labels, chosen, rng)
    each = kinds.shape
    scales = chosen.scale * rng.uniform(*_SCALES, each)
    angles = rng.uniform(-_ANGLE, _ANGLE, each)
    inks = np.where(present, rng.uniform(*_INK, each), 0.0)[..., None, None]
    grounds = rng.uniform(*_GROUND, (count, 1, 1))
    noise = rng.normal(0.0, _NOISE, (count, side, side))
    noise += _uneven(chosen, count, rng)
    images = np.empty((count, side, side, 1), np.uint8)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        covered = np.zeros((*kinds[part].shape, side, side))
        for number, kind in enumerate(chosen.kinds):
            some = (kinds[part] == number) & present[part]
            covered[some] = _coverage(
                kind,
                centres[part][some],
                scales[part][some],
                angles[part][some],
                side,
            )
        lit = covered * (inks[part] - grounds[part, np.newaxis])
        shown = np.clip(grounds[part] + lit.max(axis=1) + noise[part], 0, 1)
        shown = 1.0 - shown if chosen.ground == "bright" else shown
        images[part, ..., 0] = np.rint(255.0 * shown)
    kinds = np.where(present, kinds, -1)
    centres = np.where(present[..., np.newaxis], centres, np.nan)
    return (images, labels), PartMasks(
        centres[:, :slots],
        centres[:, slots:],
        kinds[:, :slots],
        kinds[:, slots:],
        chosen.kinds,
    )


def _uneven(design: Design, count: int, rng: np.random.Generator) -> Any:
    """Draws what makes grounds uneven, `[n, side, side]`, or nothing."""
    side = design.side
    if design.ground == "ramp":
        across = np.linspace(-0.5, 0.5, side)
        down, right = rng.uniform(-0.25, 0.25, (2, count, 1, 1))
        return 0.15 + down * across[:, np.newaxis] + right * across
    if design.ground == "clouds":
        clouds = rng.normal(size=(count, side, side))
        clouds = gaussian_filter(clouds, (0, 4, 4), mode="wrap")
        return 0.15 + 0.08 * clouds / clouds.std()
    if design.ground == "grain":
        return rng.normal(0.1, 0.08, (count, side, side))
    return 0.0


def _generate(
    design: str,
    data_dir: str | None = None,
    validation: float = 0.1,
    *,
    seed: int = 0,
    train: int = 8000,
    test: int = 2000,
) -> Data:
    """Makes a data set of so many images, with parts of the test images."""
    figures = [[kind or "-" for kind in f] for f in DESIGNS[design].figures]
    names = [" / ".join((" ".join(f[:2]), " ".join(f[2:]))) for f in figures]
    first = 21 + 1000 * seed
    (seen, _), (unseen, masks) = (
        draw(count, first + k, design) for k, count in enumerate((train, test))
    )
    data = checked(design, seen, unseen, names)
    return dataclasses.replace(data, masks=masks).with_validation(validation)


generate, generate_of_four, generate_repeated = (
    partial(_generate, design) for design in DESIGNS
)


def _arranged(
    labels: Array, design: Design, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Draws kinds `[n, parts]` of all parts; the figure's come first.

    With their middles `[n, parts, 2]`, row and column, and which are there.
    """
    count, slots = len(labels), len(design.slots)
    known = {"": -1, **{kind: k for k, kind in enumerate(design.kinds)}}
    numbers = np.array([[known[k] for k in f] for f in design.figures])
    random = rng.integers(len(design.kinds), size=(count, _MOST_LOOSE))
    kinds = np.concatenate([numbers[labels], random], axis=1)
    most = rng.integers(1, _MOST_LOOSE + 1, size=count)
    centres = np.zeros((count, kinds.shape[1], 2))
    present = np.zeros(kinds.shape, bool)
    again = np.arange(count)
    while len(again):  # those that had no room for a loose part
        placed = _placed(most[again], design, rng)
        centres[again], present[again] = placed
        again = again[~present[again, slots]]
    return kinds, centres, present & (kinds >= 0)


def _placed(
    most: Array, design: Design, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws places for a figure and for up to so many loose parts."""
    slots, side = np.array(design.slots), design.side
    edge = _REACH * design.scale + _JITTER - 0.5  # pixel 0 begins at -0.5
    lowest = edge - slots.min(axis=0)
    highest = side - 1 - edge - slots.max(axis=0)
    middle = rng.uniform(lowest, highest, (len(most), 1, 2))
    moved = rng.uniform(-_JITTER, _JITTER, (len(most), len(slots), 2))
    centres = middle + slots + moved
    present = [np.ones((len(most), len(slots)), bool)]
    for number in range(_MOST_LOOSE):
        places = rng.uniform(edge, side - 1 - edge, (len(most), _TRIES, 2))
        apart = np.linalg.norm(
            places[:, :, np.newaxis] - centres[:, np.newaxis], axis=-1
        )
        gap = 2 * _RADIUS * design.scale + LOOSE_GAP
        free = (apart >= gap).all(axis=-1)
        first = free.argmax(axis=1)[:, np.newaxis, np.newaxis]
        there = free.any(axis=1) & (number < most)
        # A part that is not there keeps no other away.
        free_place = np.where(
            there[:, np.newaxis, np.newaxis],
            np.take_along_axis(places, first, axis=1),
            -side,
        )
        centres = np.concatenate([centres, free_place], axis=1)
        present.append(there[:, np.newaxis])
    return centres, np.concatenate(present, axis=1)


def _coverage(
    kind: str, centres: Array, scales: Array, angles: Array, side: int
) -> Array:
    """Returns the share of each pixel that parts cover, `[n, h, w]`."""
    grid = np.arange(side)
    down = (grid - centres[:, :1])[:, :, np.newaxis]
    right = (grid - centres[:, 1:])[:, np.newaxis]
    scale, angle = (x[:, np.newaxis, np.newaxis] for x in (scales, angles))
    sine, cosine = np.sin(angle), np.cos(angle)
    outside = scale * _OUTSIDE[kind](
        (cosine * down - sine * right) / scale,
        (sine * down + cosine * right) / scale,
    )
    return np.clip(0.5 - outside, 0.0, 1.0)


def _box(down: Array, right: Array, height: float, width: float) -> Array:
    """Returns how far points are outside a box of twice this height, width."""
    return np.maximum(np.abs(down) - height, np.abs(right) - width)


def _turned(down: Array, right: Array) -> tuple[Array, Array]:
    """Returns the coordinates of a part that stands at 45 degrees."""
    return (down - right) / np.sqrt(2.0), (down + right) / np.sqrt(2.0)


# How far points are outside a part, in pixels; inside, below 0.
_OUTSIDE: dict[str, Callable[[Array, Array], Array]] = {
    "bar": lambda down, right: _box(down, right, 1.2, 3.3),
    "post": lambda down, right: _box(down, right, 3.3, 1.2),
    "square": lambda down, right: _box(down, right, 2.8, 2.8),
    "frame": lambda down, right: np.abs(_box(down, right, 2.3, 2.3)) - 0.7,
    "disc": lambda down, right: np.hypot(down, right) - 3.1,
    "ring": lambda down, right: np.abs(np.hypot(down, right) - 2.45) - 0.8,
    "diamond": lambda down, right: (
        (np.abs(down) + np.abs(right)) / np.sqrt(2.0) - 2.3
    ),
    # Upright, its middle is that of its height.
    "triangle": lambda down, right: np.maximum(
        0.866 * np.abs(right) - 0.5 * down - 1.55, down - 2.7
    ),
    "plus": lambda down, right: np.minimum(
        _box(down, right, 1.0, 3.2), _box(down, right, 3.2, 1.0)
    ),
    "ell": lambda down, right: np.minimum(
        _box(down, right + 2.1, 3.0, 0.9), _box(down - 2.1, right, 0.9, 3.0)
    ),
    # The upper half of a disc.
    "moon": lambda down, right: np.maximum(
        np.hypot(down - 1.3, right) - 3.2, down - 1.3
    ),
    # Kinds of `examples/generators.py` alone.
    "cross": lambda down, right: np.minimum(
        _box(*_turned(down, right), 0.9, 3.4),
        _box(*_turned(down, right), 3.4, 0.9),
    ),
    "tee": lambda down, right: np.minimum(
        _box(down + 2.2, right, 0.9, 3.1), _box(down, right, 3.1, 0.9)
    ),
    "stairs": lambda down, right: np.minimum(
        _box(down - 1.5, right + 1.5, 1.5, 1.5),
        _box(down + 1.5, right - 1.5, 1.5, 1.5),
    ),
    "cup": lambda down, right: np.maximum(
        np.abs(_box(down, right, 2.4, 2.4)) - 0.8, -1.4 - down
    ),
    "stripe": lambda down, right: _box(*_turned(down, right), 1.1, 3.4),
    "pair": lambda down, right: _box(np.abs(down) - 2.1, right, 0.9, 2.8),
    "dot": lambda down, right: np.hypot(down, right) - 1.9,
    "arch": lambda down, right: np.maximum(
        np.abs(np.hypot(down - 1.2, right) - 2.6) - 0.9, down - 1.8
    ),
}
