"""Pictures of shapes on plain ground, as a user's folder may have them.

python -m tests.pictures photos
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

KINDS = ("bar", "cross", "ring")


def write_shapes(folder, counts, *, sides=(40, 121), seed=0):
    """Writes a folder for each shape, of different sizes, colours and types.

    Args:
        folder: Where to.
        counts: How many pictures of each shape, by its name.
        sides: Smallest side in pixels, and the largest plus one.
        seed: Of everything that is drawn at random.
    """
    draw = np.random.default_rng(seed)
    for kind, count in counts.items():
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            suffix = "png" if number % 2 else "jpg"
            path = folder / kind / f"{number}.{suffix}"
            _shape(kind, draw.integers(*sides, 2), draw).save(path)
        (folder / kind / "Thumbs.db").write_bytes(b"no picture")


def _shape(kind, size, draw):
    ground, ink = draw.integers(0, 256, (2, 3))
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
    write_shapes(Path(sys.argv[1]), dict.fromkeys(KINDS, 60), seed=3)
