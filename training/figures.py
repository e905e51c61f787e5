"""The figures of reports; what they say stands in `figures.toml`.

An image has one tree in all of them: that of couplings as they are, with which
the network is used, and its trees are measured. Rounded couplings are those of
the dictionaries alone, the paper's keys.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps import rem, viz
from tfcaps.rem import Report
from tfcaps.rem.evaluation.words import length_meaning, margin_text
from tfcaps.rem.maps import saliency_map
from tfcaps.viz.letters import one_line
from training.folder import RunFolder
from training.images import Array, Floats
from training.sample import Sample
from training.tables import TITLES

TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_DECODED = 8  # images that are shown decoded
_CLASSES = 10  # most classes of which an image is shown
_EACH = 4  # images that are shown of right ones, and of wrong ones
_LONGEST = 3  # classes in a title
_NAMED = 2  # named trees that are shown
# Most images that these, and what types look like, are taken from, and most
# numbers in them, 128 MB.
_LOOKED_AT, _NUMBERS = 500, 2**25


class Figure(NamedTuple):
    """A figure of the report."""

    name: str
    drawing: viz.Drawing
    heading: str
    caption: str


# PNG file, heading and caption of each.
Written = list[tuple[Path, str, str]]


def figure(
    name: str, drawing: viz.Drawing, like: str = "", **facts: Any
) -> Figure:
    """Returns a figure with its texts, which have facts."""
    texts = TEXTS[like or name]
    heading, caption = (
        texts[part].format(**facts).strip().replace("\n", " ")
        for part in ("heading", "caption")
    )
    return Figure(name, drawing, heading, caption)


def save(some: Sequence[Figure], folder: Path) -> Written:
    """Writes `<name>.png` of each."""
    return [
        (one.drawing.save(folder / one.name), one.heading, one.caption)
        for one in some
    ]


# ------------------------------------------------------------- of the measures


def of_measures(
    folder: RunFolder, reports: Mapping[str, Report], names: Sequence[str]
) -> list[Figure]:
    """Returns the figures that need no model; names are those of classes."""
    config = folder.config
    trees = {TITLES[n]: report.dictionary for n, report in reports.items()}
    rows = [
        {**row, "model": TITLES[row["model"]]} for row in folder.read_metrics()
    ]
    counts = "the last epoch counts"
    if config.patience is not None:
        counts += ", of the baseline that of the lowest validation loss"
    figures = [figure("curves", viz.curves(rows), counts=counts)]
    rows = [
        {**row, "model": TITLES[name]}
        for name, report in reports.items()
        for row in report.by_levels or ()
    ]
    if rows:
        figures.append(figure("tradeoff_levels", viz.tradeoff(rows, "levels")))
    drawing = viz.keys_per_class(trees, class_names=names)
    figures.append(figure("keys_per_class", drawing))
    return figures


# -------------------------------------------------------------- of test images


def right_and_wrong(name: str, model: keras.Model, sample: Sample) -> Figure:
    """Returns the figure of a model's trees, image by image.

    Right ones come first, in any order; then wrong ones, those of the largest
    margin first. Of each kind every class comes before one comes twice.
    """
    trees, labels, names = (
        sample.trees(model),
        sample.labels,
        sample.class_names,
    )
    right = trees.predicted == labels
    clear = np.argsort(-trees.margins, kind="stable")
    orders = np.flatnonzero(right), clear[~right[clear]]
    rows = np.concatenate([spread(order, labels, _EACH) for order in orders])
    explained = rem.explain(
        model,
        sample.images[rows],
        trees=trees[rows],
        labels=labels[rows].tolist(),
        class_names=names,
    )
    fields = explained.fields
    titles = [
        f"{'right' if right[k] else 'WRONG'}: "
        f"{_answer(trees.lengths[k], names)}"
        for k in rows
    ]
    drawing = viz.tree_fields(explained, titles)
    texts = TEXTS["tree_fields"]
    kind = "some_wrong" if not right.all() else "none_wrong"
    note = texts[kind].format(wrong=int(np.sum(~right)), images=len(right))
    if not fields.is_local:
        note += texts["no_parts" if min(fields.grid[:2]) == 1 else "cells"]
    return figure("tree_fields", drawing, note=note, model=TITLES[name])


def _answer(lengths: Array, names: Sequence[str]) -> str:
    """Returns the longest classes of an image, and the margin, in words."""
    longest = np.argsort(-lengths, kind="stable")[:_LONGEST]
    parts = [f"{one_line(names[j])} {lengths[j]:.2f}" for j in longest]
    return f"{', '.join(parts)}; margin {margin_text(*lengths[longest[:2]])}"


def spread(order: Array, classes: Array, most: int) -> Array:
    """Returns the first in an order, every class before one comes twice."""
    seen: Counter[int] = Counter()
    rounds = []
    for k in order:
        rounds.append(seen[classes[k]])
        seen[classes[k]] += 1
    return order[np.argsort(rounds, kind="stable")][:most]


def saliency(
    models: Mapping[str, keras.Model],
    reports: Mapping[str, Report],
    sample: Sample,
) -> Figure | None:
    """Returns the maps of an image of each class; nothing without places.

    One that was measured to be no explanation is not drawn.
    """
    if not sample.trees([*models.values()][-1]).has_places:
        return None
    classes, rows = np.unique(sample.labels, return_index=True)
    classes, rows = classes[:_CLASSES], rows[:_CLASSES]
    maps = {}
    for name, model in models.items():
        used = reports[name].faithfulness
        if used and used.saliency and not used.saliency.specific:
            continue
        trees, fields = sample.trees(model)[rows], rem.receptive_fields(model)
        drawn = saliency_map(trees.activations, trees.towards, fields)
        maps[TITLES[name]] = {
            "lengths": trees.lengths,
            "classes": trees.predicted,
            "saliency": keras.ops.convert_to_numpy(drawn),
        }
    if not maps:
        return None
    drawing = viz.saliency(
        sample.images[rows],
        maps,
        labels=classes,
        class_names=sample.class_names,
    )
    return figure("saliency", drawing)


def reconstructions(decoded: keras.Model, sample: Sample) -> Figure:
    """Returns some images as the decoder draws them."""
    images = sample.images[:_DECODED]
    outputs = decoded.predict({"images": images, "labels": None}, verbose=0)
    rows = images, outputs["reconstruction"]
    drawing = viz.picture_rows(rows, ("image", "decoded"))
    return figure("reconstructions", drawing)


# ------------------------------------------------- trees that name their parts


def named_trees(
    model: keras.Model, folder: RunFolder, sample: Sample
) -> list[Figure]:
    """Returns pictures of two images that the last model names rightly.

    It also keeps what the types look like, for `training/explain.py`. Without
    places of the children it returns nothing.
    """
    size = int(np.prod(sample.images.shape[1:]))
    few = slice(min(_LOOKED_AT, max(1, _NUMBERS // size)))
    trees, labels = sample.trees(model)[few], sample.labels[few]
    if not trees.has_places:
        return []
    folder.save_parts(rem.part_pictures(sample.images[few], trees))
    # Those that are right, have a tree, and something active outside of it.
    alone = ~np.any(trees.outside, axis=1)
    wrong = trees.predicted != labels
    order = np.lexsort((alone, trees.leaves == 0, wrong))
    rows = spread(order, trees.predicted, _NAMED)
    explained = explain(
        folder, model, sample.images[rows], trees[rows], labels[rows].tolist()
    )
    meaning = length_meaning(explained.blueprints)
    return [
        figure(
            f"named_tree_{k}",
            drawing,
            "named_tree" if k == 1 else "another_named_tree",
            length=meaning,
        )
        for k, drawing in enumerate(explained.draw(), 1)
    ]


def explain(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    trees: rem.Trees,
    labels: Sequence[int | None],
    sizes: Array | None = None,
) -> rem.Explanation:
    """Explains images with the names, and the parts, that a run knows.

    Sizes are those of the files, see `rem.explain`.
    """
    return rem.explain(
        model,
        images,
        trees=trees,
        parts=folder.parts(),
        labels=labels,
        class_names=folder.class_names(),
        type_names=folder.type_names(trees.num_types),
        sizes=sizes,
    )
