"""Pictures of shapes on plain ground, as a user's folder may have them.

python -m tests.pictures photos
python -m tests.pictures photos --tinted     # the ground tells the shape
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

KINDS = ("bar", "cross", "ring")
TINTS = {"bar": (200, 60, 60), "cross": (60, 180, 60), "ring": (60, 60, 200)}


def write_shapes(folder, counts, *, sides=(40, 121), seed=0, grounds=None):
    """Writes a folder for each shape, of different sizes, colours and types.

    Args:
        folder: Where to.
        counts: How many pictures of each shape, by its name.
        sides: Smallest side in pixels, and the largest plus one.
        seed: Of everything that is drawn at random.
        grounds: Colour of the ground of each shape. Defaults to any.
    """
    draw = np.random.default_rng(seed)
    for kind, count in counts.items():
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            suffix = "png" if number % 2 else "jpg"
            path = folder / kind / f"{number}.{suffix}"
            size = draw.integers(*sides, 2)
            _shape(kind, size, draw, grounds and grounds[kind]).save(path)
        (folder / kind / "Thumbs.db").write_bytes(b"no picture")


def _shape(kind, size, draw, tint):
    ground, ink = draw.integers(0, 256, (2, 3))
    ground = ground if tint is None else np.array(tint)
    while abs(int(ground.sum()) - int(ink.sum())) < 200:
        ink = draw.integers(0, 256, 3)
    picture = Image.new("RGB", tuple(map(int, size)), tuple(map(int, ground)))
    pen = ImageDraw.Draw(picture)
    radius = draw.uniform(0.2, 0.38) * min(size)
    middle = size / 2 + draw.uniform(-0.1, 0.1, 2) * size
    how = {"fill": tuple(map(int, ink)), "width": max(2, int(0.3 * radius))}
    if kind == "ring":
        corners = [*(middle - radius), *(middle + radius)]
        pen.ellipse(corners, outline=how["fill"], width=how["width"])
        return picture
    angle = draw.uniform(-0.3, 0.3)
    for turned in (0, np.pi / 2)[: 1 if kind == "bar" else 2]:
        arm = np.array([np.cos(angle + turned), np.sin(angle + turned)])
        ends = [*(middle - radius * arm), *(middle + radius * arm)]
        pen.line(ends, **how)
    return picture


if __name__ == "__main__":
    tints = TINTS if "--tinted" in sys.argv else None
    counts = dict.fromkeys(KINDS, 60)
    write_shapes(Path(sys.argv[1]), counts, seed=3, grounds=tints)
