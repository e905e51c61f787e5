"""One image, the parts that its class was told by, and whether they matter."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from tfcaps.ops import Array
from tfcaps.rem import Explanation, Trees
from tfcaps.rem.evaluation.words import margin_text
from tfcaps.viz import drawing
from tfcaps.viz.letters import one_line

# Most children that get a name or a line, and most types in the dictionary.
_NAMED, _OUTSIDE, _LINES, _TYPES = 8, 4, 40, 8
# Letters of a line of the text above, and what lies beyond an image, in [0, 1].
_WIDE, _BEYOND = 66, 0.88
# Classes of which bars are drawn, and letters of their names.
_CLASSES, _LETTERS = 3, 33
_GREY, _DARK = "#777777", "#222222"
_NOT = "not in the tree"
# A class that stays may be less than half as long, as in `Faithfulness`.
_HALF = 0.5
# Pixels: of children nearer to each other one is shown.
_APART = 1.5
_HEAD: Any = {"fontsize": 10, "weight": "bold"}
_CROSS: Any = {"marker": "P", "s": 150, "c": "w", "edgecolors": "k"}
_CROSS |= {"lw": 1.2, "zorder": 5}


@drawing.with_our_look
def named_tree(
    explained: Explanation, number: int = 0, name: str = "this image"
) -> drawing.Drawing:
    """Draws the parts of an image by which a network told its class.

    On the image are the leaves of its tree with the names of their types; lines
    lead to the place of the class, or to its name where there is no blueprint.
    Other active children are hollow. Beside it are the blueprint of the class
    and what the types lie on in other images. Below are the longest classes as
    the image is, without its tree, and with its tree alone.

    Args:
        explained: What `tfcaps.rem.explain` returns.
        number: Which of its images is drawn. Defaults to the first one.
        name: What the image is called, such as its file.

    Returns:
        A figure.

    Raises:
        ValueError: If the children have no places, or there are too few names.
    """
    tree = explained.trees[number : number + 1]
    if not tree.has_places:
        raise ValueError(
            "Children without places cannot be drawn in their image. Print the "
            "explanation, or draw `viz.parse_tree({'image': "
            "explained.trees[:1].parse_tree()})`."
        )
    lengths, predicted = explained.lengths[number], int(tree.predicted[0])
    classes = drawing.class_labels(explained.class_names, lengths.shape[1])
    types = drawing.class_labels(
        explained.type_names,
        tree.num_types,
        word="type ",
        argument="type_names",
    )
    plans, parts = explained.blueprints, _known(explained.parts)
    plan = None if plans is None else _known(plans[predicted])
    label = None if explained.labels is None else explained.labels[number]
    shown = _choose(explained, number, types)
    page = drawing.Drawing(figsize=(9.0, 8.9), layout="constrained", dpi=120)
    bands: Any = page.subfigures(3, 1, height_ratios=(1.5, 5.2, 2.2))
    above, middle, below = bands
    title = f"Answer to {one_line(name)}: {classes[predicted]}"
    if label is not None:
        is_right = label == predicted
        title += " (right)" if is_right else f" (WRONG: {classes[label]})"
    lines = textwrap.wrap(title, _WIDE - 18)[:2]
    style: Any = {"x": 0.02, "va": "top", "color": _DARK}
    head = above.text(
        y=0.95, s="\n".join(lines), size=13, weight="bold", **style
    )
    sentences = (
        _parts_in_words(shown),
        _length_in_words(tree, classes, plan is not None),
    )
    told = [x for text in sentences for x in textwrap.wrap(text, _WIDE)[:3]]
    y = 0.91 - 0.16 * len(lines)
    under = above.text(y=y, s="\n".join(told), size=10.5, **style)
    # What is not known is left out.
    high = [1.3] * (plan is not None) + [1.0] * (parts is not None)
    left, right = middle.subfigures(1, 2, width_ratios=(6, 5))
    panel = left.subplots()
    panel.set_title("1  The parse tree of this image", loc="left", **_HEAD)
    if high:
        rows = right.subfigures(len(high), 1, squeeze=False, height_ratios=high)
    if plan is not None:
        beside = rows[0, 0].subplots()
        text = "2  What it looks for (read from its weights)"
        beside.set_title(text, loc="left", **_HEAD)
    if parts is not None:
        _draw_parts(rows[-1, 0], parts, shown, len(high) + 1)
    title, *shares = _draw_lengths(below, shown, lengths, classes, predicted)
    # Names stand where there is room, which the layout tells.
    page.draw_without_rendering()
    page.set_layout_engine("none")
    _draw_image(panel, shown, plan, classes[predicted])
    if plan is not None:
        _draw_blueprint(beside, plan, types)
    panels = [left.bbox, right.bbox][: 1 + bool(high)]
    page.cut([[head, under]], panels, [title], shares)
    return page


def _known(values: Array | None) -> Array | None:
    """Returns numbers, `None` if none of them is known."""
    return values if values is not None and np.isfinite(values).any() else None


class _Shown(NamedTuple):
    """The image and the children that are drawn."""

    image: Array
    aspect: float
    leaves: Array  # the strongest first
    outside: Array
    places: Array  # x and y of all children
    types: Array
    names: Sequence[str]  # of the types

    def name(self, child: int) -> str:
        return self.names[self.types[child]]

    def colours(self, children: Array) -> list[str]:
        return [drawing.colour(int(k)) for k in self.types[children]]


def _choose(
    explained: Explanation, number: int, types: Sequence[str]
) -> _Shown:
    """Returns the children of an image that are drawn."""
    trees = explained.trees
    places, leaves = trees.places[number][:, ::-1], trees.strongest(number)
    outside: list[int] = []
    near = list(places[leaves])
    for k in np.argsort(-trees.activations[number], kind="stable"):
        if trees.outside[number, k] and all(
            np.hypot(*(places[k] - at)) >= _APART for at in near
        ):
            outside.append(int(k))
            near.append(places[k])
    return _Shown(
        drawing.picture(explained.images[number]),
        explained.aspects[number],
        leaves,
        np.array(outside, int),
        places,
        trees.types,
        types,
    )


def _parts_in_words(shown: _Shown) -> str:
    """Says what is in the tree, and what is active and not in it."""
    count, others = len(shown.leaves), len(shown.outside)
    across = np.argsort(shown.places[shown.leaves, 0], kind="stable")
    if not count:
        text = "Its tree is empty."
    elif count > _NAMED:
        text = f"In its tree: {count:,} of {len(shown.types):,} capsules; "
        text += f"the strongest {_NAMED} have their names."
    else:
        text = f"In its tree: {_listed(shown, shown.leaves[across])}."
    if others > _OUTSIDE:
        text += f" {others:,} others are active."
    elif others:
        text += f" Active, not in it: {_listed(shown, shown.outside)}."
    return text


def _length_in_words(
    tree: Trees, classes: Sequence[str], has_parts: bool
) -> str:
    """Says what the lengths are, and how far the class is before the next."""
    length = tree.lengths[0, tree.predicted[0]]
    text = f"Its length is {length:.2f}"
    if (second := int(tree.runners_up[0])) >= 0:
        other = tree.lengths[0, second]
        text += (
            f", a margin of {margin_text(length, other)} to the next class, "
            f"{_short(classes[second], _LETTERS)}"
        )
    what = "from 0 to 1"
    if has_parts:
        what = "the share of its parts that are where it looks for them"
    return f"{text}. A length is {what}, and no probability."


def _listed(shown: _Shown, children: Array) -> str:
    *names, last = [shown.name(k) for k in children]
    return f"{', '.join(names)} and {last}" if names else last


def _short(text: str, letters: int) -> str:
    return textwrap.shorten(text, letters, placeholder="...")


def _class_place(shown: _Shown, blueprint: Array) -> Array | None:
    """Returns the place of the class by its leaves, x and y."""
    shifts = blueprint[shown.types[shown.leaves], ::-1]
    votes = shown.places[shown.leaves] - shifts
    votes = votes[np.isfinite(votes).all(axis=1)]
    return np.median(votes, axis=0) if len(votes) else None


def _draw_image(
    panel: Axes, shown: _Shown, plan: Array | None, name: str
) -> None:
    """Draws the image and its tree."""
    drawing.show(panel, shown.image, shown.aspect)
    place = None if plan is None else _class_place(shown, plan)
    end = np.array([shown.image.shape[1] / 2 - 0.5, -0.5])
    end = end if place is None else place
    at, few = shown.places, len(shown.leaves) <= _NAMED
    tints, width = shown.colours(shown.leaves), 2.2 if few else 1.2
    for k, tint in list(zip(shown.leaves, tints, strict=True))[:_LINES]:
        line = np.array([at[k], end]).T
        panel.plot(*line, color="w", lw=width + 1.4, zorder=2)
        panel.plot(*line, color=tint, lw=width, zorder=3)
    _draw_points(panel, shown, 95 if few else 40)
    if place is not None:
        panel.scatter(*place, **_CROSS)
    elif len(shown.leaves):
        frame = {"boxstyle": "round,pad=0.3", "fc": "w", "ec": _DARK}
        style: Any = {"ha": "center", "va": "top", "weight": "bold"}
        style |= {"bbox": frame, "zorder": 5}
        panel.text(end[0], end[1], _short(name, _LETTERS), **style)
    inside, outside = shown.leaves[:_NAMED], shown.outside[:_OUTSIDE]
    texts = [shown.name(k) for k in inside]
    texts += [f"{shown.name(k)},\n{_NOT}" for k in outside]
    edges = [*tints[:_NAMED], *[_GREY] * len(outside)]
    drawing.add_labels(panel, at[[*inside, *outside]], texts, edges, end)
    told = "filled: in the tree"
    told += "; hollow: active, not in it" * (len(outside) > 0)
    told += "; cross: where the whole is" * (place is not None)
    panel.set_xlabel(told, fontsize=9, labelpad=5, color=_DARK)


def _draw_points(panel: Axes, shown: _Shown, size: float) -> None:
    """Draws leaves, the strongest over the others, and hollow other ones."""
    leaves, others = shown.leaves[::-1], shown.outside
    look: Any = {"c": shown.colours(leaves), "edgecolors": "w", "zorder": 4}
    look |= {"s": size, "lw": 1.4 if size > 10 else 0}
    panel.scatter(*shown.places[leaves].T, **look)
    for tints, width in (("w", 3.2), (shown.colours(others), 1.8)):
        look = {"fc": "none", "edgecolors": tints, "zorder": 3.5}
        look |= {"s": size, "lw": width}
        panel.scatter(*shown.places[others].T, **look)
    rows, columns = shown.image.shape[:2]
    panel.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))


def _draw_blueprint(
    panel: Axes, blueprint: Array, types: Sequence[str]
) -> None:
    """Draws where the parts of the class are in the weights."""
    known = np.flatnonzero(np.isfinite(blueprint).all(axis=1))
    at = blueprint[known, ::-1]
    # A pixel is as wide as it is high.
    size = np.array(panel.get_window_extent().size)
    reach = np.abs(at).max(axis=0, initial=4.0) + (5.0, 4.5)
    right, down = size * np.max(reach / size)
    panel.set(xlim=(-right, right), ylim=(down, -down))
    drawing.without_ticks(panel)
    tints = [drawing.colour(int(k)) for k in known]
    for (x, y), tint in zip(at, tints, strict=True):
        panel.plot([0, x], [0, y], color=tint, lw=1.6, zorder=1)
        panel.scatter(x, y, s=95, color=tint, zorder=3)
    panel.scatter(0, 0, **_CROSS)
    drawing.add_labels(
        panel, at, [types[int(k)] for k in known], tints, np.zeros(2)
    )


def _draw_parts(page: Any, parts: Array, shown: _Shown, number: int) -> None:
    """Draws what types lie on, those of the tree first, in a frame each."""
    known = np.flatnonzero(np.isfinite(parts).any(axis=(1, 2, 3, 4)))
    used = np.isin(known, shown.types[shown.leaves])
    some = known[np.argsort(~used, kind="stable")][:_TYPES]
    more = f" ({len(some)} of {len(known):,})" * (len(known) > len(some))
    head = f"{number}  Some of what its parts lie on{more}"
    page.suptitle(head, x=0.02, ha="left", **_HEAD)
    low, high = np.nanmin(parts), np.nanmax(parts)
    columns = min(_TYPES // 2, len(some))
    rows = -(-len(some) // columns)
    panels = page.subplots(rows, columns, squeeze=False).ravel()
    for panel, k in zip(panels, some, strict=False):
        windows = (parts[k] - low) / ((high - low) or 1.0)
        drawing.show(
            panel, drawing.picture(_mosaic(np.nan_to_num(windows, nan=_BEYOND)))
        )
        panel.spines[:].set(color=drawing.colour(int(k)), linewidth=3)
        panel.set_xlabel(_short(shown.names[k], 12), fontsize=10)
    for panel in panels[len(some) :]:
        panel.remove()


def _mosaic(pictures: Array) -> Array:
    """Returns pictures `[m, h, w, c]` as one, two side by side."""
    between = [(0, 0), (1, 1), (1, 1), (0, 0)]
    tiles = np.pad(pictures, between, constant_values=1.0)
    if len(tiles) % 2:
        tiles = np.concatenate([tiles, np.full_like(tiles[:1], _BEYOND)])
    _, high, wide, channels = tiles.shape
    rows = tiles.reshape(-1, 2, high, wide, channels).swapaxes(1, 2)
    return rows.reshape(-1, 2 * wide, channels)


def _draw_lengths(
    page: Any,
    shown: _Shown,
    lengths: Array,
    classes: Sequence[str],
    predicted: int,
) -> list[Any]:
    """Draws what it says with and without the tree; returns the tiles."""
    title = "Is that why? The longest classes when the network gets"
    head = page.suptitle(title, x=0.02, ha="left", **_HEAD)
    nothing = shown.leaves[:0]
    titles = ("all capsules", "all but the tree", "the tree alone")
    some = (
        shown,
        shown._replace(leaves=nothing),
        shown._replace(outside=nothing),
    )
    panels = page.subplots(1, 6, width_ratios=(1.1, 1.6) * 3).reshape(3, 2)
    size = 16 if len(shown.leaves) <= _NAMED else 5
    for n, (small, bars) in enumerate(panels):
        drawing.show(small, shown.image, shown.aspect)
        small.images[0].set_alpha(0.35)
        small.set_title(titles[n], fontsize=9, loc="left")
        _draw_points(small, some[n], size)
        if n:
            stays = int(lengths[n].argmax()) == predicted
            told = "answer stays" if stays else "answer changes"
            if stays and lengths[n].max() < _HALF * lengths[0, predicted]:
                told = "stays, shorter"  # there is no room for more
            if not lengths[n].any():  # the first one is none that it gives
                told, stays = "no answer", False
            tint = "#0072B2" if stays else "#B34700"
            small.set_xlabel(told, color=tint, fontsize=8, weight="bold")
        _draw_bars(bars, lengths[n], classes, predicted)
    return [[head], *map(list, panels)]


def _draw_bars(
    panel: Axes, lengths: Array, classes: Sequence[str], predicted: int
) -> None:
    """Draws the longest classes, the predicted one in black."""
    order = np.argsort(-lengths, kind="stable")[:_CLASSES]
    tints = [_DARK if j == predicted else "#B0B0B0" for j in order]
    bars = panel.barh(range(len(order)), lengths[order], 0.3, color=tints)
    panel.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    for n, j in enumerate(order):
        weight = "bold" if j == predicted else "normal"
        style: Any = {"size": 8, "va": "bottom", "weight": weight}
        panel.text(0, n - 0.2, _short(classes[j], _LETTERS), **style)
    panel.set(xlim=(0, 1.3 * max(1.0, float(lengths.max()))))
    panel.set(ylim=(_CLASSES + 0.1, -0.8))
    panel.set_axis_off()
