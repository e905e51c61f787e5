"""The figures of a run's report; what they say stands in `figures.toml`."""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps import rem, viz
from tfcaps.layers import perturb_dimensions
from tfcaps.rem import CouplingDictionary, Report
from tfcaps.rem.maps import tree_maps
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.folder import RunFolder
from training.image_data import Array, Split
from training.tables import TITLES

TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
# Test images that are shown decoded.
_DECODED = 8
# Most classes of which an image is shown, and those in the dictionary.
_CLASSES, _ROWS = 10, 20
# Most test images for means over them, and those that are looked at one by one.
_AVERAGED, _DRAWN = 500, 2000
# Images that are shown of those that are right, and of those that are wrong.
_EACH = 4
# Classes in a title.
_LONGEST = 3


class Shown(NamedTuple):
    """A figure in the report."""

    drawing: viz.Drawing
    heading: str
    caption: str


class Figures(dict[str, Shown]):
    """Figures by name."""

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
    levels: Any = {"levels": config.class_levels, "mode": config.mode, **names}
    counts = "the last epoch counts"
    if config.patience is not None:
        counts += ", of the baseline that of the lowest validation loss"
    found = Figures()
    found.add("curves", viz.curves(rows), counts=counts)
    found.add("tradeoff_epoch", viz.tradeoff(rows, "epoch"))
    if pruned := [row for row in rows if row["model"] == TITLES["rem"]]:
        found.add("tradeoff_sparsity", viz.tradeoff(pruned, "sparsity"))
    path = folder.path / "levels.json"
    if path.exists():
        search = json.loads(path.read_text("utf-8"))
        model = TITLES[search["model"]]
        of_levels = [{**row, "model": model} for row in search["rows"]]
        drawing = viz.tradeoff(of_levels, "levels", chosen=search["levels"])
        found.add("tradeoff_levels", drawing, levels=config.class_levels)
    found.add("keys_per_class", viz.keys_per_class(trees, **names))
    found.add("coupling_histograms", viz.coupling_histograms(trees, **levels))
    for name in config.model_names:
        epochs = _kept_epochs(folder, name)
        if len(epochs) > 1:
            drawing = viz.coupling_histograms(epochs, **levels)
            found.add(f"epochs_{name}", drawing, "epochs", model=TITLES[name])
    levels["threshold"] = last.tree_threshold
    drawing = viz.most_frequent_trees(last.dictionary, **levels)
    found.add("parse_trees", drawing, model=title)
    if last.type_dictionary is not None and last.grid is not None:
        drawing = viz.most_frequent_trees(last.type_dictionary, **levels)
        found.add("parse_trees_types", drawing, model=title, grid=last.grid)
    return found


def _kept_epochs(folder: RunFolder, name: str) -> dict[str, CouplingDictionary]:
    """Returns the trees at the epochs that were kept, about four."""
    paths = (folder.path / "epochs").glob(f"{name}-*.npz")
    epochs = {int(path.stem.rpartition("-")[2]): path for path in paths}
    return {
        f"epoch {epoch}": CouplingDictionary.load(epochs[epoch])
        for epoch in sorted(epochs)
    }


def of_models(
    models: Mapping[str, keras.Model], config: Config, data: Data
) -> Figures:
    """Returns the figures for which models look at test images."""
    images, labels = data.test
    classes, names = one_class(labels), data.class_names
    _, first = np.unique(classes, return_index=True)
    first = first[:_CLASSES]
    rows = np.union1d(first, np.arange(min(_AVERAGED, len(labels))))
    each = {
        TITLES[name]: rem.trees(
            model, images[rows], config.levels, mode=config.mode
        )
        for name, model in models.items()
    }
    title, trees = list(each.items())[-1]
    of_each = np.searchsorted(rows, first)
    found = right_and_wrong(models, config, data)
    if trees.has_places:
        maps = {
            TITLES[name]: explained(model, each[TITLES[name]][of_each])
            for name, model in models.items()
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
    drawing = viz.parse_tree(overall, class_names=names)
    found.add("parse_tree_overall", drawing, images=len(rows))
    drawing = viz.parse_tree(by_class, class_names=names)
    found.add("parse_tree_classes", drawing, model=title)
    drawing = viz.parse_tree(of_images, images=images[first], class_names=names)
    found.add("parse_tree_images", drawing, model=title)
    return found


def explained(model: keras.Model, trees: rem.Trees) -> dict[str, Any]:
    """Returns maps of images with these trees, as `viz.saliency` takes them."""
    return {
        "lengths": trees.lengths,
        "classes": trees.predicted,
        "saliency": tree_maps(trees, rem.receptive_fields(model)),
    }


def right_and_wrong(
    models: Mapping[str, keras.Model], config: Config, data: Data
) -> Figures:
    """Returns the figures of the last model's trees, image by image.

    Right ones come first. Of each kind every class comes before one comes
    twice; wrong ones that the network is most certain of come first.
    """
    name, model = list(models.items())[-1]
    images, labels = drawn(data, _DRAWN)
    trees = rem.trees(
        model,
        Batches(images, labels, batch_size=256),
        config.levels,
        mode=config.mode,
        couplings=False,
    )
    lengths, names = trees.lengths, data.class_names
    right = is_right(lengths, labels)
    rows = choose(right, one_class(labels), lengths.max(axis=-1))
    fields = rem.receptive_fields(model)
    drawing = viz.tree_fields(
        images[rows],
        trees[rows],
        fields,
        labels=one_class(labels)[rows],
        titles=[
            f"{'right' if right[k] else 'WRONG'}: " + longest(lengths[k], names)
            for k in rows
        ],
        class_names=names,
    )
    for one, k in zip(drawing.data["images"], rows, strict=True):
        one["right"] = bool(right[k])
        one["lengths"] = lengths[k].round(6).tolist()
    told = _told(right)
    if not fields.is_local:
        kind = "no_parts" if min(fields.grid[:2]) == 1 else "cells"
        told += TEXTS["tree_fields"][kind]
    found = Figures()
    found.add("tree_fields", drawing, told=told, model=TITLES[name])
    drawing = viz.dictionary_images(
        images.pixels,
        trees.codes,
        trees.predicted,
        data.num_classes,
        classes=np.unique(trees.predicted)[:_ROWS].tolist(),
        class_names=names,
    )
    about: Any = {"images": len(images), "model": TITLES[name]}
    found.add("dictionary_images", drawing, **about)
    return found


def longest(lengths: Array, names: Sequence[str], most: int = _LONGEST) -> str:
    """Returns the longest classes with their lengths, in words."""
    order = np.argsort(-lengths, kind="stable")[:most]
    return ", ".join(f"{names[j]} {lengths[j]:.2f}" for j in order)


def choose(right: Array, classes: Array, lengths: Array) -> Array:
    """Chooses the images that are shown, the right ones first.

    Args:
        right: Whether each is right, `[n]`.
        classes: What each is, `[n]`.
        lengths: The length of the class that each is taken for, `[n]`.
    """
    any_order = np.random.default_rng(0).permutation(len(right))
    certain = np.argsort(-lengths, kind="stable")
    return np.concatenate(
        [
            spread(any_order[right[any_order]], classes, _EACH),
            spread(certain[~right[certain]], classes, _EACH),
        ]
    )


def spread(order: Array, classes: Array, most: int) -> Array:
    """Returns the first in an order, every class before one comes twice.

    Args:
        order: Images in their order, `[m]`.
        classes: What each is, `[n]`.
        most: Int. How many are returned.
    """
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


def one_class(labels: Array) -> Array:
    """Returns one class for each image; of two the lower one."""
    return np.argmax(labels, axis=-1) if labels.ndim == 2 else labels


def is_right(lengths: Array, labels: Array) -> Array:
    """Tells whether the longest class is that of the image, or one of them."""
    named = np.argmax(lengths, axis=-1)
    if labels.ndim == 2:
        return labels[np.arange(len(named)), named].astype(bool)
    return named == labels


def _told(right: Array) -> str:
    """Says how many are right."""
    count, wrong = len(right), int(np.sum(~right))
    if not wrong:
        return f"None of the {count:,} test images looked at is wrong."
    text = f"{wrong:,} of the {count:,} test images looked at are wrong"
    if wrong == count:
        return f"All {text}."
    return (
        f"{text}; of these the ones that the network is most certain of are "
        "shown, of the others some that are drawn at random."
    )


def of_decoder(decoded: keras.Model, data: Data) -> Figures:
    """Returns the first test images as the decoder draws them."""
    images = data.test.images[:_DECODED]
    outputs = decoded.predict({"images": images, "labels": None}, verbose=0)
    first = rem.capsule_outputs(decoded).predict(images[:1], verbose=0)
    decoder = decoded.get_layer("reconstruction")
    offsets = np.linspace(-0.25, 0.25, 11)
    [moved] = perturb_dimensions(
        decoder, first["poses"], offsets, first["lengths"]
    )
    found = Figures()
    drawing = viz.reconstructions(images, outputs["reconstruction"])
    found.add("reconstructions", drawing)
    found.add("perturbations", viz.perturbations(moved, offsets))
    return found
