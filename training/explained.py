"""Answers of a network to pictures: drawings, a page and a table."""

import csv
import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from tfcaps import rem, viz
from tfcaps.files import write_atomically
from tfcaps.graphs import last_routed_layer
from tfcaps.rem.parse.in_tree import codes_in_tree
from training import figures, tree_figures
from training.folder import RunFolder
from training.image_data import Array, Floats
from training.own_pictures import Picture

# Panels in a figure; more would be too small to read.
PANELS = 12
# Characters in a line of a title.
_WIDE = 24

_FIGURES = {
    "named_tree": ("Why the network names it so", tree_figures.NAMED),
    "tree_fields": (
        "Trees and what their children see",
        "Each picture as the network gets it, and its tree: the class that the "
        "network names, and below it what the children of the tree see. A line "
        "is as strong as the coupling (the number), and the frames on the "
        "picture show where the parts are. Over the tree are the name of the "
        "file and the two longest classes with their lengths.",
    ),
    "saliency": (
        "Where the network looks",
        "Where the children look that are active and coupled with the class "
        "that the network names (title), in the order of the trees. Yellow is "
        "the most in a picture.",
    ),
    "parse_trees": (
        "Parse trees",
        "Capsules are nodes, the class above. A line is a coupling above the "
        "uniform one, followed down from the class; colours are activations.",
    ),
}


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of a network to a picture.

    Attributes:
        picture: The picture.
        named: The name of the longest class.
        length: Its length.
        runner_up: The name of the second longest class.
        runner_up_length: Its length.
        same: How many test images share its tree, in words.
    """

    picture: Picture
    named: str
    length: float
    runner_up: str
    runner_up_length: float
    same: str

    @property
    def is_wrong(self) -> bool:
        """Whether it is known to be of another class."""
        return self.picture.truth not in (None, self.named)


class Answerer:
    """Asks the network of a run, whose couplings are rounded.

    Args:
        folder: The run.
        model: Its network.
    """

    def __init__(self, folder: RunFolder, model: keras.Model):
        config = folder.config
        self._config = config
        self._names = folder.class_names()
        self._trees = folder.dictionary()
        self._types = folder.type_dictionary()
        self._network = model
        routing = last_routed_layer(model).routing
        self._threshold = routing.tree_threshold(len(self._names))

    def ask(self, pictures: list[Picture], images: Floats) -> list[Answer]:
        """Returns an answer for each of some images."""
        config = self._config
        trees = rem.trees(
            self._network,
            images,
            config.levels,
            mode=config.mode,
            couplings=False,
        )
        order = np.argsort(-trees.lengths, axis=-1, kind="stable")
        sentences = self._same_trees(trees)
        return [
            Answer(
                picture,
                self._names[best],
                float(lengths[best]),
                self._names[second],
                float(lengths[second]),
                same,
            )
            for picture, lengths, (best, second), same in zip(
                pictures, trees.lengths, order[:, :2], sentences, strict=True
            )
        ]

    def _same_trees(self, trees: rem.Trees) -> list[str]:
        """Tells how many test images have the lines, and the tree, of each."""
        named = trees.predicted
        of_places = [
            f"of {samples:,} test images of this class {lines:,} have lines to "
            f"the same children, {same:,} the very same tree"
            for samples, lines, same in self._counts(
                trees.codes, named, self._trees
            )
        ]
        if self._types is None:
            return of_places
        of_types = self._counts(trees.type_codes, named, self._types)
        return [
            f"{sentence}; wherever they are, {lines:,} have lines to the same "
            f"types of children, {same:,} the very same tree of types"
            for sentence, (_, lines, same) in zip(
                of_places, of_types, strict=True
            )
        ]

    def _counts(
        self, codes: Array, named: Array, known: rem.CouplingDictionary
    ) -> list[tuple[int, int, int]]:
        """Counts for each image the samples of its class in a dictionary.

        Returns all of them, those with the same lines, and those with the same
        key.
        """
        found = []
        for key, j in zip(codes, named.tolist(), strict=True):
            keys = known.keys(j)
            counts = np.asarray(known.counts(j), int)
            same = np.all(keys == key, axis=-1)
            # What a line of the drawings means.
            alike = np.all(self._inside(keys) == self._inside(key), axis=-1)
            samples = int(known.num_samples[j])
            found.append(
                (samples, int(counts[alike].sum()), int(counts[same].sum()))
            )
        return found

    def _inside(self, codes: Array) -> Array:
        """Tells which children are in the trees of keys."""
        inside: Array = keras.ops.convert_to_numpy(
            codes_in_tree(
                codes,
                self._threshold,
                self._config.class_levels,
                mode=self._config.mode,
            )
        )
        return inside


def draw_named(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    answers: Sequence[Answer],
) -> list[viz.Drawing]:
    """Returns a drawing of each image, none where children have no places."""
    names = folder.class_names()
    known = {name: j for j, name in enumerate(names)}
    return tree_figures.draw_named(
        folder,
        model,
        images,
        classes=names,
        parts=folder.parts(),
        labels=[known.get(a.picture.truth or "") for a in answers],
    )


def draw(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    answers: Sequence[Answer],
) -> dict[str, viz.Drawing]:
    """Returns a page of drawings of images."""
    config, names = folder.config, folder.class_names()
    levels, mode = config.levels, config.mode
    trees = rem.trees(model, images, levels, mode=mode)
    drawings = {
        "tree_fields": viz.tree_fields(
            images,
            trees,
            rem.receptive_fields(model),
            titles=[_line(answer) for answer in answers],
            class_names=names,
        ),
        "parse_trees": viz.parse_tree(
            {
                textwrap.fill(f"{a.picture.name}: {a.named}", _WIDE): trees[
                    k : k + 1
                ].parse_tree()
                for k, a in enumerate(answers)
            },
            images=list(images),
            class_names=names,
        ),
    }
    if trees.has_places:
        shown = figures.explained(model, trees)
        drawings["saliency"] = viz.saliency(
            images, {config.model: shown}, class_names=names
        )
    return drawings


def write_page(
    path: Path,
    folder: RunFolder,
    answers: Sequence[Answer],
    files: Sequence[tuple[str, Path]],
    sentences: Sequence[tuple[str, bool]],
) -> None:
    """Writes a page that holds everything it shows.

    Args:
        path: Where the HTML file shall appear.
        folder: The run.
        answers: What is said of each picture.
        files: The name of each drawing, and its PNG file.
        sentences: What is said of all, each with whether it is a warning.
    """
    config, head = folder.config, ["picture", "recognised as", "length"]
    with_truth = any(a.picture.truth for a in answers)
    figures = [
        (file, _FIGURES[name][0] + number, _FIGURES[name][1])
        for name, file in files
        for number in [_number(file, name)]
    ]
    named = [k for k, (name, _) in enumerate(files) if name == "named_tree"]
    others = [f for k, f in enumerate(figures) if k not in named]
    settings = {
        "run": str(folder.path),
        "network": config.model,
        "data": config.dataset,
        "levels of the couplings": str(config.levels),
    }
    viz.write_report(
        path,
        viz.Section(
            "Explained pictures",
            sentences=sentences,
            figures=[figures[k] for k in named] or others,
            table=(
                [
                    *head,
                    "runner-up",
                    "its length",
                    *["right"] * with_truth,
                    "test images with such a tree",
                ],
                [
                    [
                        answer.picture.name,
                        answer.named,
                        f"{answer.length:.2f}",
                        answer.runner_up,
                        f"{answer.runner_up_length:.2f}",
                        *[_mark(answer)] * with_truth,
                        answer.same,
                    ]
                    for answer in answers
                ],
            ),
            note=f"{len(answers):,} pictures, seen by the network of "
            f"{folder.path}. A length is between 0 and 1: how sure the network "
            "is of a class. The runner-up is the second longest class.",
        ),
        [
            *([viz.Section("More drawings", figures=others)] if named else []),
            viz.Section(
                "Settings", table=(("setting", "value"), settings.items())
            ),
        ],
    )


def write_table(path: Path, answers: Sequence[Answer]) -> None:
    """Writes a CSV file with a row for each picture."""
    head = ["file", "class", "length", "runner_up", "runner_up_length"]
    with_truth = any(a.picture.truth for a in answers)
    with write_atomically(path, "w") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*head, *["true_class"] * with_truth])
        for a in answers:
            cells = [a.picture.path, a.named, f"{a.length:.4f}"]
            cells += [a.runner_up, f"{a.runner_up_length:.4f}"]
            rows.writerow([*cells, *[a.picture.truth] * with_truth])


def _line(answer: Answer) -> str:
    mark = f" (WRONG: {answer.picture.truth})" if answer.is_wrong else ""
    return (
        f"{answer.picture.name}: {answer.named} {answer.length:.2f}{mark}, "
        f"{answer.runner_up} {answer.runner_up_length:.2f}"
    )


def _mark(answer: Answer) -> str:
    if answer.picture.truth is None:
        return ""
    return f"WRONG: {answer.picture.truth}" if answer.is_wrong else "yes"


def _number(file: Path, name: str) -> str:
    """Returns the number of a drawing or page, in words."""
    number = file.stem.removeprefix(name).removeprefix("-")
    word = "picture" if name == "named_tree" else "page"
    return f", {word} {number}" if number else ""
