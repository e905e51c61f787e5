"""The figures of reports; what they say stands in `figures.toml`.

An image has one tree in all of them: that of couplings as they are, with which
the network is used, and its trees are measured. Rounded couplings are those of
the dictionaries alone, the paper's keys.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from cli import UserError
from tfcaps import rem, viz
from tfcaps.rem import Report, quantize
from tfcaps.rem.maps import saliency_map
from tfcaps.rem.parse.records import length_meaning, margin_text
from tfcaps.viz.letters import one_line
from training.batches import Batches
from training.datasets import Data
from training.folder import RunFolder
from training.images import Array, Floats, Split
from training.tables import TITLES

TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
# Test images that are shown decoded.
_DECODED = 8
# Most classes of which an image is shown.
_CLASSES = 10
# Most test images for means over them, and those that are looked at one by one.
_AVERAGED, _DRAWN = 500, 2000
# Images that are shown of those that are right, and of those that are wrong.
_EACH = 4
# Classes in a title.
_LONGEST = 3
# Named trees that are shown; most numbers in the images that these, and what
# types look like, are taken from, 128 MB.
_NAMED, _NUMBERS = 2, 2**25
NAMES = "names.json"


class Shown(NamedTuple):
    """A figure in the report, or a sentence why there is none."""

    drawing: viz.Drawing | None
    heading: str
    caption: str


class Figures(dict[str, Shown]):
    """Figures by name; with a sentence those that would be empty."""

    def add(
        self, name: str, drawing: viz.Drawing, like: str = "", **facts: Any
    ) -> None:
        """Adds a figure with its heading and caption, which have facts."""
        texts = TEXTS[like or name]
        heading, caption = (
            texts[part].format(**facts).strip().replace("\n", " ")
            for part in ("heading", "caption")
        )
        self[name] = Shown(drawing, heading, caption)

    def add_trees(
        self,
        name: str,
        trees: Mapping[str, rem.ParseTree],
        *,
        images: Array | None = None,
        class_names: Sequence[str],
        **facts: Any,
    ) -> None:
        """Adds parse trees that have leaves, or says that none has."""
        rows = [k for k, tree in enumerate(trees.values()) if tree.edges]
        if not rows:
            self.leave_out(name, **facts)
            return
        drawing = viz.parse_tree(
            {title: tree for title, tree in trees.items() if tree.edges},
            images=None if images is None else images[rows],
            class_names=class_names,
        )
        self.add(name, drawing, **facts)
        if without := len(trees) - len(rows):
            told = f" Left out: {without:,} without a line."
            shown = self[name]
            self[name] = shown._replace(caption=shown.caption + told)

    def leave_out(self, name: str, **facts: Any) -> None:
        """Says that a figure would be empty, and why."""
        heading = TEXTS[name]["heading"].format(**facts)
        told = f"{heading}: left out. {TEXTS[name]['empty'].strip()}"
        self[name] = Shown(None, heading, told.replace("\n", " "))

    @property
    def drawings(self) -> dict[str, tuple[viz.Drawing, str, str]]:
        """Drawings by name, with heading and caption."""
        return {
            name: (drawing, heading, caption)
            for name, (drawing, heading, caption) in self.items()
            if drawing is not None
        }

    @property
    def left_out(self) -> list[str]:
        """A sentence for each that is empty."""
        return [one.caption for one in self.values() if one.drawing is None]


def of_dictionaries(
    folder: RunFolder, data: Data, reports: Mapping[str, Report]
) -> Figures:
    """Returns the figures that need nothing but what was measured."""
    config = folder.config
    main = config.model_names[-1]
    last, title = reports[main], TITLES[main]
    trees = {TITLES[n]: report.dictionary for n, report in reports.items()}
    rows = [
        {**row, "model": TITLES[row["model"]]} for row in folder.read_metrics()
    ]
    names: Any = {"class_names": data.class_names}
    # Those of the last routed layer, whose couplings make trees.
    levels: Any = {"levels": last.levels, "mode": config.mode, **names}
    counts = "the last epoch counts"
    if config.patience is not None:
        counts += ", of the baseline that of the lowest validation loss"
    found = Figures()
    found.add("curves", viz.curves(rows), counts=counts)
    found.add("tradeoff_epoch", viz.tradeoff(rows, "epoch"))
    if pruned := [row for row in rows if row["model"] == TITLES["rem"]]:
        found.add("tradeoff_sparsity", viz.tradeoff(pruned, "sparsity"))
    rows = [
        {**row, "model": TITLES[name]}
        for name, report in reports.items()
        for row in report.by_levels or ()
    ]
    if rows:
        found.add("tradeoff_levels", viz.tradeoff(rows, "levels"))
    found.add("keys_per_class", viz.keys_per_class(trees, **names))
    found.add("coupling_histograms", viz.coupling_histograms(trees, **levels))
    levels["threshold"] = last.tree_threshold
    each = {"parse_trees": last.dictionary}
    if last.type_dictionary is not None and last.grid is not None:
        each["parse_trees_types"] = last.type_dictionary
    code = int(quantize(last.tree_threshold, last.levels, mode=config.mode))
    for name, dictionary in each.items():
        facts: Any = {"model": title, "grid": last.grid}
        first = [dictionary.keys(j)[:1] for j in range(len(data.class_names))]
        if any((keys > code).any() for keys in first):
            drawing = viz.most_frequent_trees(dictionary, **levels)
            found.add(name, drawing, **facts)
        else:
            found.leave_out(name, **facts)
    return found


def of_models(
    models: Mapping[str, keras.Model],
    data: Data,
    reports: Mapping[str, Report],
) -> Figures:
    """Returns the figures for which models look at test images.

    A saliency map that was measured to be no explanation is not drawn.
    """
    images, classes = data.test
    names = data.class_names
    _, first = np.unique(classes, return_index=True)
    first = first[:_CLASSES]
    rows = np.union1d(first, np.arange(min(_AVERAGED, len(classes))))
    each = {
        TITLES[name]: rem.trees(model, images[rows])
        for name, model in models.items()
    }
    title, trees = list(each.items())[-1]
    of_each = np.searchsorted(rows, first)
    found = right_and_wrong(models, data)
    failing = {
        name
        for name, report in reports.items()
        if (used := report.faithfulness)
        and used.saliency
        and not used.saliency.specific
    }
    if trees.has_places and models.keys() <= failing:
        found.leave_out("saliency")
    elif trees.has_places:
        maps = {
            TITLES[name]: {
                "lengths": shown.lengths,
                "classes": shown.predicted,
                "saliency": keras.ops.convert_to_numpy(
                    saliency_map(shown.activations, shown.towards, fields)
                ),
            }
            for name, model in models.items()
            if name not in failing
            for shown in [each[TITLES[name]][of_each]]
            for fields in [rem.receptive_fields(model)]
        }
        drawing = viz.saliency(
            images[first], maps, labels=classes[first], class_names=names
        )
        found.add("saliency", drawing)
    every = range(len(names))
    overall = {name: own.parse_tree(every) for name, own in each.items()}
    by_class = {
        names[j]: trees[trees.predicted == j].parse_tree([j])
        for j in np.unique(trees.predicted)
        if j < _CLASSES
    }
    of_images = {
        names[j]: trees[k : k + 1].parse_tree()
        for k, j in zip(of_each, classes[first], strict=True)
    }
    called: Any = {"class_names": names}
    found.add_trees("parse_tree_overall", overall, **called, count=len(rows))
    found.add_trees("parse_tree_classes", by_class, **called, model=title)
    found.add_trees(
        "parse_tree_images",
        of_images,
        images=images[first],
        **called,
        model=title,
    )
    return found


def right_and_wrong(models: Mapping[str, keras.Model], data: Data) -> Figures:
    """Returns the figures of the last model's trees, image by image.

    Right ones come first, in any order; then wrong ones, those of the largest
    margin first. Of each kind every class comes before one comes
    twice.
    """
    name, model = list(models.items())[-1]
    images, labels = drawn(data, _DRAWN)
    trees = rem.trees(
        model, Batches(images, labels, batch_size=256), couplings=False
    )
    lengths, names = trees.lengths, data.class_names
    right = trees.predicted == labels
    any_order = np.random.default_rng(0).permutation(len(right))
    clear = np.argsort(-trees.margins, kind="stable")
    orders = any_order[right[any_order]], clear[~right[clear]]
    rows = np.concatenate([spread(order, labels, _EACH) for order in orders])
    order = np.argsort(-lengths[rows], axis=-1, kind="stable")[:, :_LONGEST]
    titles = [
        ("right: " if right[k] else "WRONG: ")
        + ", ".join(
            f"{one_line(names[j])} {lengths[k, j]:.2f}" for j in longest
        )
        + f"; margin {margin_text(*lengths[k, longest[:2]])}"
        for k, longest in zip(rows, order, strict=True)
    ]
    fields = rem.receptive_fields(model)
    drawing = viz.tree_fields(
        images[rows],
        trees[rows],
        fields,
        labels=labels[rows],
        titles=titles,
        class_names=names,
    )
    texts, found = TEXTS["tree_fields"], Figures()
    kind = "some_wrong" if not right.all() else "none_wrong"
    told = texts[kind].format(wrong=int(np.sum(~right)), images=len(right))
    if not fields.is_local:
        told += texts["no_parts" if min(fields.grid[:2]) == 1 else "cells"]
    found.add("tree_fields", drawing, told=told, model=TITLES[name])
    return found


def spread(order: Array, classes: Array, most: int) -> Array:
    """Returns the first in an order, every class before one comes twice."""
    seen: Counter[int] = Counter()
    rounds = []
    for k in order:
        rounds.append(seen[classes[k]])
        seen[classes[k]] += 1
    return order[np.argsort(rounds, kind="stable")][:most]


def drawn(data: Data, most: int) -> Split:
    """Returns `most` of the test images, all if they are fewer."""
    count = len(data.test.labels)
    chosen = np.random.default_rng(0).permutation(count)[:most]
    return data.test.take(np.sort(chosen))


def of_decoder(decoded: keras.Model, data: Data) -> Figures:
    """Returns the first test images as the decoder draws them."""
    images = data.test.images[:_DECODED]
    outputs = decoded.predict({"images": images, "labels": None}, verbose=0)
    first = rem.capsule_outputs(decoded).predict(images[:1], verbose=0)
    decoder = decoded.get_layer("reconstruction")
    [poses], [lengths] = first["poses"], first["lengths"]
    found = Figures()
    drawing = viz.reconstructions(images, outputs["reconstruction"])
    found.add("reconstructions", drawing)
    found.add("perturbations", viz.perturbations(decoder, poses, lengths))
    return found


# ------------------------------------------------- trees that name their parts


def named_trees(
    models: Mapping[str, keras.Model], folder: RunFolder, data: Data
) -> Figures:
    """Returns pictures of two test images that the last model names rightly.

    It also keeps what the types look like, for `training/explain.py`. Without
    places of the children, or test images, it returns nothing.
    """
    model = list(models.values())[-1]
    most = min(_AVERAGED, max(1, _NUMBERS // int(np.prod(data.image_shape))))
    pictures, labels = drawn(data, most)
    found = Figures()
    if not len(labels):
        return found
    images = pictures[:]
    trees = rem.trees(model, images, couplings=False)
    if not trees.has_places:
        return found
    folder.save_parts(rem.part_pictures(images, trees))
    rows = _telling(trees, labels)
    known = labels[rows].tolist()
    meaning = length_meaning(rem.blueprints(model))
    drawings = draw_named_trees(
        folder, model, images[rows], trees[rows], data.class_names, known
    )
    for k, drawing in enumerate(drawings, 1):
        like = "named_tree" if k == 1 else "another_named_tree"
        found.add(f"named_tree_{k}", drawing, like, length=meaning)
    return found


def draw_named_trees(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    trees: rem.Trees,
    classes: Sequence[str],
    labels: Sequence[int | None],
    titles: Sequence[str] | None = None,
    aspects: Sequence[float] | None = None,
) -> list[viz.Drawing]:
    """Returns a picture of each image, none if the children have no places.

    Titles are what images are called; aspects are those of their pixels.
    """
    if not trees.has_places:
        return []
    explained = rem.explain(
        model,
        images,
        trees=trees,
        parts=folder.parts(),
        labels=labels,
        class_names=classes,
        type_names=names_of_types(folder, trees.num_types),
    )
    return explained.draw(titles, aspects)


def _telling(trees: rem.Trees, labels: Array) -> Array:
    """Chooses the images that are shown, of several classes.

    Those come first that are right, have a tree, and have something active
    outside of it.
    """
    right = trees.predicted == labels
    outside = np.any(~trees.in_tree & trees.active, axis=1)
    order = np.lexsort((~outside, trees.leaves == 0, ~right))
    return spread(order, trees.predicted, _NAMED)


def names_of_types(folder: RunFolder, count: int) -> list[str]:
    """Returns the names of `count` types: by hand, else kinds, else numbers.

    A kind is that of the part on which most of a type's leaves lie.
    """
    kinds = folder.kinds_of_types()
    by_hand = names_by_hand(folder)
    if max(by_hand, default=0) >= count:
        raise UserError(
            f"{folder.path / NAMES} names type {max(by_hand)}, and the types "
            f"are 0 to {count - 1}."
        )
    found = {k: kind for k, kind in enumerate(kinds) if kind} | by_hand
    return [found.get(k, f"type {k}") for k in range(count)]


def names_by_hand(folder: RunFolder) -> dict[int, str]:
    """Returns the names in `names.json`, none if there is no such file."""
    path = folder.path / NAMES
    try:
        names = {}
        for number, name in json.loads(path.read_text("utf-8")).items():
            if not (number.isascii() and number.isdigit() and name.strip()):
                raise ValueError
            names[int(number)] = name.strip()
        return names
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} must give names of types by their numbers, "
            'such as {"0": "wheel", "3": "window"}.'
        ) from error
