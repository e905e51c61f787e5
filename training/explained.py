"""Writes the results of `training/explain.py`: drawings, a page and a table."""

import csv
import textwrap
from collections.abc import Sequence
from pathlib import Path

import keras

from tfcaps import rem, viz
from tfcaps.files import write_atomically
from training import named_trees
from training.answers import Answer
from training.folder import RunFolder
from training.image_data import Floats

# Panels in a figure; more would be too small to read.
PANELS = 12
# Characters in a line of a title.
_WIDE = 24

_FIGURES = {
    "named_tree": ("Why the network names it so", named_trees.CAPTION),
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


def draw_named(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    answers: Sequence[Answer],
) -> list[viz.Drawing]:
    """Returns a drawing of each image, none where children have no places."""
    names = folder.class_names()
    known = {name: j for j, name in enumerate(names)}
    return named_trees.draw(
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
    rounded = rem.quantize_couplings(model, levels, mode=mode)
    shown = rem.explanation(rounded)(images)
    if "saliency" in shown:
        shown = {n: keras.ops.convert_to_numpy(v) for n, v in shown.items()}
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
    """Returns which of several drawings or pages it is, in words."""
    number = file.stem.removeprefix(name).removeprefix("-")
    word = "picture" if name == "named_tree" else "page"
    return f", {word} {number}" if number else ""
