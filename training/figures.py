"""The figures of a run's report: which there are, and what they say."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps import rem, viz
from tfcaps.layers import perturb_dimensions
from tfcaps.rem import CouplingDictionary, Report
from tfcaps.rem.maps import tree_maps
from training.configs import Config
from training.datasets import Data
from training.folder import RunFolder
from training.tables import TITLES

# Test images that are shown decoded.
_SHOWN = 8
# Classes of which an image is shown.
_CLASSES = 10
# Most test images for means over all of them.
_AVERAGED = 500
# Most test images that are looked up in the dictionary.
_SORTED = 1000
# Most classes in it.
_ROWS = 20
# Most epochs in one histogram.
_EPOCHS = 4


class Shown(NamedTuple):
    """A figure in the report, perhaps with head and rows of a table."""

    drawing: viz.Drawing
    heading: str
    caption: str
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None


def of_dictionaries(
    folder: RunFolder, data: Data, reports: Mapping[str, Report]
) -> dict[str, Shown]:
    """Returns the figures that need nothing but what was measured."""
    config = folder.config
    trees = {TITLES[n]: report.dictionary for n, report in reports.items()}
    names = data.class_names
    main = config.model_names[-1]
    rows = folder.read_metrics()
    counts = "the last epoch counts"
    if config.patience is not None:
        counts += ", of the baseline that of the lowest validation loss"
    return {
        "curves": Shown(
            viz.curves({**row, "model": TITLES[row["model"]]} for row in rows),
            "Training",
            "Measured during training on test images, at most 1,000 of them. "
            f"Nothing is selected by these curves: {counts}.",
        ),
        **_layers(rows, main),
        **_tradeoffs(folder, rows),
        "keys_per_class": Shown(
            viz.keys_per_class(trees, class_names=names),
            "Parse trees per class",
            "How many distinct keys (rows of quantised couplings towards the "
            "predicted class) the test images of a class have. A grey line is "
            "the number of images, the most there could be.",
        ),
        "coupling_histograms": Shown(
            viz.coupling_histograms(
                trees,
                config.class_levels,
                mode=config.mode,
                class_names=names,
            ),
            "Couplings",
            "Each child's coupling towards a class, averaged over the images "
            "predicted as that class. Mass at the dotted line is no routing.",
        ),
        **_epochs(folder, names),
        "parse_trees": Shown(
            viz.most_frequent_trees(
                reports[main].dictionary,
                config.class_levels,
                mode=config.mode,
                class_names=names,
                threshold=reports[main].tree_threshold,
            ),
            f"Most frequent parse trees, {TITLES[main]}",
            "The children are those of the class capsules, in the same order "
            "in every picture. A blue line joins a class with each child whose "
            "coupling exceeds the uniform one; the stronger, the thicker, and "
            "the darker the child. Pale ones are not in the tree. The "
            "title says how many of the class's images have exactly this tree.",
        ),
        **_types(config, reports[main], names),
    }


def _layers(rows: list[dict[str, Any]], model: str) -> dict[str, Shown]:
    """Returns the figure of a model's capsule layers, if there are data."""
    known = [row for row in rows if row["model"] == model and "layers" in row]
    if not known:  # a run of an older version
        return {}
    text = (
        "A capsule is silent if it is shorter than 0.01 for all of 128 test "
        "images. Votes that are nearly 0 cannot disagree, and leave couplings "
        "uniform."
    )
    heading = f"Capsule layers during training, {TITLES[model]}"
    return {"layer_curves": Shown(viz.layer_curves(known), heading, text)}


def _types(config: Config, report: Report, names: Any) -> dict[str, Shown]:
    """Returns trees of types, where the children have positions."""
    if report.type_dictionary is None or report.grid is None:
        return {}
    rows, columns, types = report.grid
    drawing = viz.most_frequent_trees(
        report.type_dictionary,
        config.class_levels,
        mode=config.mode,
        class_names=names,
        threshold=report.tree_threshold,
    )
    text = (
        f"There is a child of each of {types} types at each of "
        f"{rows}x{columns} places. A tree of types asks which types are "
        "coupled with the class, and not where: a type's coupling is the "
        "largest of its children's, rounded. So an object that is shifted by "
        "whole places keeps its tree of types, though the tree of places is "
        "another. Lower nodes are the types, in the same order in every "
        "picture; lines, colours and titles are as above."
    )
    heading = f"Most frequent trees of types, {TITLES[config.model_names[-1]]}"
    return {"parse_trees_types": Shown(drawing, heading, text)}


def _tradeoffs(
    folder: RunFolder, rows: list[dict[str, Any]]
) -> dict[str, Shown]:
    """Returns entropy and accuracy against epoch, sparsity and levels."""
    titled = [{**row, "model": TITLES[row["model"]]} for row in rows]
    about = (
        "Entropy (red) and accuracy with quantised couplings (blue, dashed), "
    )
    measured = (
        "on the test images of the curves above. Points are measurements; the "
        "lines through sixty or more are smoothed."
    )
    shown = {
        "tradeoff_epoch": Shown(
            viz.tradeoff(titled, "epoch"),
            "Entropy and accuracy against the epoch",
            about + measured,
        )
    }
    pruned = [row for row in titled if row["model"] == TITLES["rem"]]
    if pruned:
        shown["tradeoff_sparsity"] = Shown(
            viz.tradeoff(pruned, "sparsity"),
            "Entropy and accuracy against sparsity",
            f"{about}{measured} Epochs after the last pruning have one "
            "sparsity.",
        )
    path = folder.path / "levels.json"
    if path.exists():
        search = json.loads(path.read_text("utf-8"))
        title = TITLES[search["model"]]
        shown["tradeoff_levels"] = Shown(
            viz.tradeoff(
                [{**row, "model": title} for row in search["rows"]],
                "levels",
                chosen=search["levels"],
            ),
            "Entropy and accuracy against the levels of the couplings",
            f"{about}of the search for the lowest number of levels that keeps "
            "the accuracy, on images held out from training. The trees of this "
            f"report have {folder.config.class_levels} levels.",
        )
    return shown


def _epochs(folder: RunFolder, names: Any) -> dict[str, Shown]:
    """Returns histograms at some of the epochs that were kept."""
    shown = {}
    for name in folder.config.model_names:
        paths = {
            int(path.stem.rpartition("-")[2]): path
            for path in (folder.path / "epochs").glob(f"{name}-*.npz")
        }
        if len(paths) < 2:
            continue
        epochs = sorted(paths)
        last = len(epochs) - 1
        places = np.linspace(0, last, min(len(epochs), _EPOCHS)).round()
        dictionaries = {
            f"epoch {epochs[k]}": CouplingDictionary.load(paths[epochs[k]])
            for k in places.astype(int)
        }
        shown[f"epochs_{name}"] = Shown(
            viz.coupling_histograms(
                dictionaries,
                folder.config.class_levels,
                mode=folder.config.mode,
                class_names=names,
            ),
            f"Couplings while training, {TITLES[name]}",
            "As above, on the test images of the curves, after some of the "
            "epochs.",
        )
    return shown


def of_models(
    models: Mapping[str, keras.Model], config: Config, data: Data
) -> dict[str, Shown]:
    """Returns the figures for which models look at test images."""
    titled = {TITLES[name]: model for name, model in models.items()}
    images, _ = one_of_each(data)
    each = {
        title: rem.trees(model, images, config.levels, mode=config.mode)
        for title, model in titled.items()
    }
    return {
        **_saliency(titled, each, data),
        **_parse_trees(titled, each, config, data),
        **_dictionary_images(titled, config, data),
    }


def _saliency(
    models: Mapping[str, keras.Model],
    trees: Mapping[str, rem.Trees],
    data: Data,
) -> dict[str, Shown]:
    if not all(own.has_places for own in trees.values()):
        return {}
    images, labels = one_of_each(data)
    shown = {title: explained(models[title], trees[title]) for title in models}
    drawing = viz.saliency(
        images, shown, labels=labels, class_names=data.class_names
    )
    text = (
        "The first test image of each class, and where the children of the "
        "class capsules that are active and coupled with the predicted class "
        "(title) look: each counts at the middle of what it sees. Yellow is "
        "the most in an image, whatever it is in others. Couplings are "
        "quantised."
    )
    return {"saliency": Shown(drawing, "Saliency maps", text)}


def explained(model: keras.Model, trees: rem.Trees) -> dict[str, Any]:
    """Returns maps of images with these trees, as `viz.saliency` takes them."""
    return {
        "lengths": trees.lengths,
        "classes": trees.predicted,
        "saliency": tree_maps(trees, rem.receptive_fields(model)),
    }


def _parse_trees(
    models: Mapping[str, keras.Model],
    of_images: Mapping[str, rem.Trees],
    config: Config,
    data: Data,
) -> dict[str, Shown]:
    images, labels = one_of_each(data)
    averaged = data.test.images[:_AVERAGED]
    classes = data.class_names
    trees = {
        title: rem.trees(model, averaged, config.levels, mode=config.mode)
        for title, model in models.items()
    }
    every = range(len(classes))
    overall = {title: own.parse_tree(every) for title, own in trees.items()}
    title, own = list(trees.items())[-1]
    by_class = {
        classes[j]: own[own.predicted == j].parse_tree([j])
        for j in np.unique(own.predicted)
        if j < _CLASSES
    }
    each = {
        classes[label]: of_images[title][k : k + 1].parse_tree()
        for k, label in enumerate(labels)
    }
    rule = (
        "Capsules are nodes, the first layer below and the classes above; "
        "colours are activations. A line is a quantised coupling above the "
        "uniform one, followed down from the classes to capsules that have "
        "such lines themselves. Capsules that are not reached are grey, or "
        "left out in large layers."
    )
    return {
        "parse_tree_overall": Shown(
            viz.parse_tree(overall, class_names=classes),
            "Parse tree of the test set",
            f"{rule} Activations and couplings are means over {len(averaged):,}"
            " test images.",
        ),
        "parse_tree_classes": Shown(
            viz.parse_tree(by_class, class_names=classes),
            f"Parse trees of classes, {title}",
            "As above, from each class down, with means over those of the "
            "images that are predicted as this class.",
        ),
        "parse_tree_images": Shown(
            viz.parse_tree(each, images=images, class_names=classes),
            f"Parse trees of images, {title}",
            "As above, of the first test image of each class (title), from the "
            "class that is predicted.",
        ),
    }


def _dictionary_images(
    models: Mapping[str, keras.Model], config: Config, data: Data
) -> dict[str, Shown]:
    title, model = list(models.items())[-1]
    images = data.test.images.take(slice(_SORTED))
    trees = rem.trees(
        model, images[:], config.levels, mode=config.mode, couplings=False
    )
    drawing = viz.dictionary_images(
        images.pixels,
        trees.codes,
        trees.predicted,
        data.num_classes,
        classes=np.unique(trees.predicted)[:_ROWS].tolist(),
        class_names=data.class_names,
    )
    text = (
        f"The mean of all images, of {len(images):,} test images, that have "
        "one and the same parse tree: the most frequent ones of each predicted "
        "class, and how many images have them."
    )
    heading = f"Images by parse tree, {title}"
    return {"dictionary_images": Shown(drawing, heading, text)}


def one_of_each(data: Data) -> tuple[Any, Any]:
    """Returns the first test image of each class, and the classes.

    Of an image of two digits the class is the lower one.
    """
    images, labels = data.test
    if labels.ndim == 2:
        labels = np.argmax(labels, axis=-1)
    _, first = np.unique(labels, return_index=True)
    first = first[:_CLASSES]
    return images[first], labels[first]


def of_decoder(decoded: keras.Model, data: Data) -> dict[str, Shown]:
    """Returns the first test images as the decoder draws them."""
    images = data.test.images[:_SHOWN]
    outputs = decoded.predict({"images": images, "labels": None}, verbose=0)
    decoder = decoded.get_layer("reconstruction")
    shown = rem.capsule_outputs(decoded).predict(images[:1], verbose=0)
    offsets = np.linspace(-0.25, 0.25, 11)
    moved = perturb_dimensions(
        decoder, shown["poses"], offsets, shown["lengths"]
    )[0]
    return {
        "reconstructions": Shown(
            viz.reconstructions(images, outputs["reconstruction"]),
            "Reconstructions",
            "The first test images, and what the decoder makes of the pose of "
            "their longest class capsule.",
        ),
        "perturbations": Shown(
            viz.perturbations(moved, offsets),
            "What the components of a pose stand for",
            "The first test image, decoded with one component of its pose "
            "(row) moved by the number above.",
        ),
    }
