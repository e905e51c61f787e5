"""Kanji that are made of components: written characters with true trees.

An image shows one of 100 characters of two or three of 30 components, such as
`tree` and `stone`. A component is in at least three characters, and in at most
three quarters of them at one place; none holds another. `UNSEEN` are further
characters of the same components, which nobody is trained on: a network that
knows the components can name them there.

Strokes come from KanjiVG (Ulrich Apel, https://kanjivg.tagaini.net, CC BY-SA
3.0), the package `kanjivg`; so does the tree, its groups of strokes. What is
drawn of it is a derived work under the same licence. Strokes, components and
the character are moved, turned and resized a little; pens are broad or thin,
and the character stands anywhere. Images are drawn by a fixed seed, the same on
every machine.

The mask of a component is not its ink but the box around it, where two boxes
overlap that of the nearest ink, as what lies between its strokes is the
component, too.
"""

import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from scipy import ndimage

from cli import UserError
from training.datasets.data import Arrays
from training.images import Array

# Found by a random search for components of at most six strokes that have many
# characters, stand at several places and do not hold each other.
_SIGNS = "⺌⺤乍亻今勿古土壬女子寸屰山工心攵方旦月木氵牛皮火石示立穴覀"
_NAMES = (
    "little claw sudden person now never old earth stem woman "
    "child inch reverse mountain work heart strike side dawn moon "
    "tree water cow skin fire stone altar stand hole west"
)
COMPONENTS = dict(zip(_SIGNS, _NAMES.split(), strict=True))
CHARACTERS = (
    "仔件任休但位価俘倣倥做圭圸坊坡坦坿埒塑好妊妥妨妲妾姑姙姦婆婬嫖孚孜寺"
    "岑峙峭念忽怎恁恷惣攻放昜朋朔李杜杢杣林枯柆柎柘柞栗桴梢棯椄楊楜槊標樮"
    "汝汢沁沐沽溯炙煙煬牡物特破硝碆碍祚票空窄肖肘肚肛肪胙胡腔腰腸要采"
)
UNSEEN = "付仙估作侍妬岩愬故村杠枋枚椌汕江波泣浮淫湮湯漂炸牧矼胆"
SIZE = 48

_PLACES = ("left", "right", "top", "bottom", "middle")
_MOST = 3  # components of a character
_STEP = 1.0  # from point to point of a stroke, in units of KanjiVG

_SCALES = (0.34, 0.40)  # pixels of a unit; a character has 109
_ASPECT = (0.95, 1.05)  # of rows, and of columns
_ANGLE = np.deg2rad(7.0)
# What components and strokes are changed by: factors, radians, pixels.
_COMPONENT = ((0.94, 1.06), np.deg2rad(4.0), 0.7)
_STROKE = ((0.95, 1.05), np.deg2rad(4.0), 0.35)
_PEN = (1.65, 2.35)  # width of strokes in pixels
_PRESSURE = (0.92, 1.06)  # of one of them
_REACH = 2  # pixels from a stroke's middle to where it ends, at most
_MARGIN = 2.0  # pixels between strokes' middles and the border
_GROUND = (0.02, 0.10)  # brightness, of 1
_INK = (0.65, 0.95)
_NOISE = 0.025
_CHUNK = 200  # images of a character drawn at a time


class Character(NamedTuple):
    """The strokes of a character, and what they belong to.

    Its name has its components, in the order of writing. Strokes are row and
    column of points along them, `[points, 2]`, in units of KanjiVG.
    """

    name: str
    kinds: tuple[int, ...]  # of its components, which index `COMPONENTS`
    strokes: tuple[Array, ...]
    owners: tuple[int, ...]  # the component of each stroke


def draw(
    count: int, seed: int, characters: str = CHARACTERS
) -> tuple[Arrays, Any]:
    """Draws images of all characters, equally many, in random order.

    What is drawn depends on count, seed and characters alone: images `[n, 48,
    48, 1]`, uint8, and labels `[n]`, which index `characters`; masks of the
    components, three at most, as `tfcaps.rem.PartMasks`.
    """
    from tfcaps.rem import PartMasks  # it takes long to load

    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % len(characters))
    each = map(read, characters)
    images = np.empty((count, SIZE, SIZE, 1), np.uint8)
    parts = np.zeros((count, _MOST, SIZE, SIZE), bool)
    kinds = np.full((count, _MOST), -1)
    for label, character in enumerate(each):
        rows = np.flatnonzero(labels == label)
        there = slice(len(character.kinds))
        kinds[rows, there] = character.kinds
        for start in range(0, len(rows), _CHUNK):
            some = rows[start : start + _CHUNK]
            images[some, ..., 0], parts[some, there] = _drawn(
                character, len(some), rng
            )
    names = tuple(COMPONENTS.values())
    masks = PartMasks(parts, kinds=kinds, kind_names=names, reach=None)
    return (images, labels), masks


def read(character: str) -> Character:
    """Returns a character of KanjiVG, which consists of `COMPONENTS` alone."""
    try:
        package = metadata.distribution("kanjivg")
    except metadata.PackageNotFoundError:
        raise UserError(
            "kanji are drawn from the package kanjivg, not installed here; in "
            'the folder of tfcaps run pip install --editable ".[kanji]".'
        ) from None
    path = package.locate_file(f"kanji/{ord(character):05x}.svg")
    root = ElementTree.parse(str(path)).getroot()[0][0]
    groups = list(_components(root))
    strokes = [
        (_points(path), owner)
        for owner, (_, group) in enumerate(groups)
        for path in group.iter()
        if path.tag.endswith("path")
    ]
    kinds, _ = zip(*groups, strict=True)
    points, owners = zip(*strokes, strict=True)
    names = [*COMPONENTS.values()]
    name = " ".join(names[kind] for kind in kinds)
    return Character(name, kinds, points, owners)


def _components(
    group: ElementTree.Element,
) -> Iterator[tuple[int, ElementTree.Element]]:
    """Yields the kind of each component, and its group of strokes."""
    for part in group:
        placed = _attribute(part, "position") in _PLACES
        element = _attribute(part, "element")
        if placed and element in COMPONENTS:
            yield list(COMPONENTS).index(element), part
        else:
            yield from _components(part)


def _attribute(node: ElementTree.Element, name: str) -> str | None:
    # Its namespace has two spellings.
    for key, value in node.attrib.items():
        if key.endswith(f"}}{name}"):
            return value
    return None


def _points(path: ElementTree.Element) -> Array:
    """Returns points along a path of cubic curves, as row and column."""
    text = path.get("d", "")
    points: list[Array] = []
    here = handle = np.zeros(2)
    for command, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", text):
        values = re.findall(r"-?(?:\d+\.?\d*|\.\d+)", numbers)
        given = np.array(values, float).reshape(-1, 2)
        if command in "Mm" and len(given) == 1:
            here = handle = given[0] + (here if command == "m" else 0.0)
            continue
        each = {"c": 3, "s": 2}[command.lower()]
        for corners in given.reshape(-1, each, 2):
            if command.islower():
                corners = corners + here
            if each == 2:  # goes on smoothly
                corners = np.concatenate([[2.0 * here - handle], corners])
            points.append(_curve(np.concatenate([[here], corners])))
            handle, here = corners[1:]
    return np.concatenate(points)[:, ::-1]


def _curve(corners: Array) -> Array:
    """Returns points along a cubic Bézier curve, at most a step apart."""
    length = np.linalg.norm(np.diff(corners, axis=0), axis=1).sum()
    along = np.linspace(0.0, 1.0, int(np.ceil(length / _STEP)) + 1)[:, None]
    back = 1.0 - along
    weights = [back**3, 3.0 * along * back**2, 3.0 * along**2 * back, along**3]
    return np.hstack(weights) @ corners


def _drawn(
    character: Character, count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws a character, and returns images and masks of its parts."""
    lengths = list(map(len, character.strokes))
    stroke = np.repeat(np.arange(len(lengths)), lengths)
    owner = np.array(character.owners)[stroke]
    points = _moved(
        np.concatenate(character.strokes), stroke, owner, count, rng
    )
    width = rng.uniform(*_PEN, (count, 1))
    width = width * rng.uniform(*_PRESSURE, (count, len(lengths)))
    covered = _coverage(points, 0.5 * width[:, stroke], owner)
    ground = rng.uniform(*_GROUND, (count, 1, 1))
    ink = rng.uniform(*_INK, (count, 1, 1))
    noise = rng.normal(0.0, _NOISE, (count, SIZE, SIZE))
    shown = ground + (ink - ground) * covered.max(axis=1) + noise
    images = np.rint(255.0 * np.clip(shown, 0.0, 1.0)).astype(np.uint8)
    return images, _regions(points, owner, covered >= 0.5)


def _moved(
    points: Array,
    stroke: Array,
    owner: Array,
    count: int,
    rng: np.random.Generator,
) -> Array:
    """Changes strokes, components and characters, and puts them on images.

    Of points along all strokes, `[points, 2]`, with the stroke and component of
    each, it returns row and column in pixels, `[n, points, 2]`.
    """
    moved = np.broadcast_to(points, (count, *points.shape))
    for groups, (scales, angle, shift) in (
        (stroke, _STROKE),
        (owner, _COMPONENT),
    ):
        own = [points[groups == k] for k in np.unique(groups)]
        middles = np.stack([0.5 * (x.min(axis=0) + x.max(axis=0)) for x in own])
        each = (count, len(middles))
        resized = rng.uniform(*scales, (*each, 2))
        turned = rng.uniform(-angle, angle, each)
        moved = _turned(
            moved - middles[groups], resized[:, groups], turned[:, groups]
        )
        shifts = rng.uniform(-shift, shift, (*each, 2)) / np.mean(_SCALES)
        moved = moved + (middles + shifts)[:, groups]
    sizes = rng.uniform(*_SCALES, (count, 1, 1))
    sizes = sizes * rng.uniform(*_ASPECT, (count, 1, 2))
    moved = _turned(moved, sizes, rng.uniform(-_ANGLE, _ANGLE, (count, 1)))
    lowest = _MARGIN - moved.min(axis=1)
    highest = SIZE - 1 - _MARGIN - moved.max(axis=1)
    shift = rng.uniform(lowest, np.maximum(lowest, highest))
    return moved + shift[:, np.newaxis]


def _turned(points: Array, scales: Array, angles: Array) -> Array:
    """Resizes rows and columns of points and turns them about 0."""
    down, right = np.moveaxis(points * scales, -1, 0)
    sine, cosine = np.sin(angles), np.cos(angles)
    return np.stack(
        [cosine * down - sine * right, sine * down + cosine * right], axis=-1
    )


def _coverage(points: Array, radius: Array, part: Array) -> Array:
    """Returns the share of each pixel under each part's strokes.

    These go through points `[n, points, 2]`, where half of their width is the
    radius, `[n, points]`; `part` is the part of each point, `[points]`.
    """
    side, parts = SIZE + 2 * _REACH, part.max() + 1
    nearest = np.rint(points).astype(np.int64)
    row, column = np.moveaxis(nearest + _REACH, -1, 0)
    plane = np.arange(len(points))[:, np.newaxis] * parts + part
    index = (plane * side + row) * side + column
    down, right = np.moveaxis(nearest - points, -1, 0)
    covered = np.zeros((len(points), parts, side, side), np.float32)
    for i, j in np.ndindex(2 * _REACH + 1, 2 * _REACH + 1):
        i, j = i - _REACH, j - _REACH
        apart = np.sqrt((down + i) ** 2 + (right + j) ** 2)
        share = np.clip(radius + 0.5 - apart, 0.0, 1.0)
        np.maximum.at(
            covered.ravel(),  # a view
            (index + i * side + j).ravel(),
            share.ravel().astype(np.float32),
        )
    return covered[:, :, _REACH:-_REACH, _REACH:-_REACH]


def _regions(points: Array, owner: Array, inked: Array) -> Array:
    """Returns the boxes around components, in which no pixel is of two.

    Points are as in `_coverage`, with the component of each, and `inked` the
    pixels of each component's strokes, `[n, parts, h, w]`.
    """
    grid = np.arange(SIZE)
    inside = np.empty(inked.shape, bool)
    edge = 0.5 * _PEN[1] * _PRESSURE[1]
    for part in range(inked.shape[1]):
        own = points[:, owner == part]
        lowest = own.min(axis=1)[..., np.newaxis] - edge
        highest = own.max(axis=1)[..., np.newaxis] + edge
        within = (lowest <= grid) & (grid <= highest)
        inside[:, part] = within[:, 0, :, np.newaxis] & within[:, 1, np.newaxis]
    for image in np.flatnonzero((inside.sum(axis=1) > 1).any(axis=(1, 2))):
        apart = np.stack(
            [ndimage.distance_transform_edt(~ink) for ink in inked[image]]
        )
        nearest = np.where(inside[image], apart, np.inf).argmin(axis=0)
        inside[image] &= nearest == np.arange(len(apart))[:, None, None]
    return inside
