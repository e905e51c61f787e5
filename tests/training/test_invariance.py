"""Whether a change of pictures seems to leave their classes."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.pictures import KINDS, write_shapes
from training import images as pixels
from training.datasets.own import Picture
from training.pictures import unchanged_by


def of_folder(folder):
    return unchanged_by(
        [
            Picture(file, path.name)
            for path in sorted(folder.iterdir())
            for file in pixels.files_in(path)
        ]
    )


def write(folder, draw_one, count):
    draw = np.random.default_rng(0)
    for label in (0, 1):
        (folder / str(label)).mkdir(parents=True)
        for number in range(count):
            picture = draw_one(label, draw)
            picture.save(folder / str(label) / f"{number}.png")


def apple(label, draw):
    """A red disc, or a green one, anywhere."""
    picture = Image.new("RGB", (60, 60), "white")
    radius, x, y = draw.uniform([10, 22, 22], [20, 38, 38])
    colour = draw.integers([200, 0, 0], [256, 80, 80])
    colour = colour if label else colour[[1, 0, 2]]
    ImageDraw.Draw(picture).ellipse(
        [x - radius, y - radius, x + radius, y + radius],
        fill=tuple(map(int, colour)),
    )
    return picture


def arrow(label, draw):
    """An arrow of any colour, to the left or to the right."""
    ground, ink = (tuple(map(int, draw.integers(0, 256, 3))) for _ in range(2))
    picture = Image.new("RGB", (60, 60), ground)
    x, y, size = draw.uniform([26, 26, 14], [34, 34, 22])
    tip = size if label else -size
    pen = ImageDraw.Draw(picture)
    pen.line([(x - size, y), (x + size, y)], fill=ink, width=5)
    back = x + 0.2 * tip
    corners = [(x + tip, y), (back, y - 0.6 * size), (back, y + 0.6 * size)]
    pen.polygon(corners, fill=ink)
    return picture


@pytest.mark.parametrize("count", [15, 100])
@pytest.mark.parametrize(
    ("draw_one", "matters"), [(apple, "recolour"), (arrow, "flip")]
)
def test_what_tells_classes_apart_is_not_changed(
    tmp_path, draw_one, matters, count
):
    write(tmp_path, draw_one, count)
    expected = {"flip": True, "recolour": True, matters: False}
    assert of_folder(tmp_path) == expected


@pytest.mark.parametrize("count", [15, 100])
def test_shapes_of_any_colour_may_be_changed(tmp_path, count):
    write_shapes(tmp_path / "shapes", dict.fromkeys(KINDS, count), seed=3)
    (tmp_path / "shapes" / "ring" / "1.png").write_bytes(b"broken")
    assert of_folder(tmp_path / "shapes") == {"flip": True, "recolour": True}
    one_class = {"ring": 3}
    write_shapes(tmp_path / "one", one_class)
    assert of_folder(tmp_path / "one") == {"flip": True, "recolour": True}
