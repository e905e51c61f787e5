"""Asks the model of a run about pictures: what `training/explain.py` does."""

import argparse
import collections
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

import tfcaps  # noqa: F401 (registers the layers)
from cli import UserError
from tfcaps import rem, viz
from tfcaps.files import write_atomically
from training import images as pixels
from training.batches import Batches
from training.figures import TEXTS, draw_named_trees, names_by_hand
from training.folder import RunFolder
from training.images import Array, Images
from training.names import as_text

# Pictures that are drawn; more would be too small to read.
PANELS = 12
# Pictures that are named in a sentence.
_NAMED = 10
_MODES = {1: "L", 3: "RGB"}

Sentences = list[tuple[str, bool]]  # each with whether it is a warning
Figures = list[tuple[Path, str, str]]  # PNG file, heading, caption


class Picture(NamedTuple):
    """A file: a name that no other has, and its class if that is known."""

    path: Path
    name: str
    truth: str | None = None


class Answer(NamedTuple):
    """The longest class of a picture and the second longest."""

    picture: Picture
    classes: tuple[str, str]
    lengths: tuple[float, float]

    @property
    def is_wrong(self) -> bool:
        """Whether it is known to be of another class."""
        return self.picture.truth not in (None, self.classes[0])

    @property
    def mark(self) -> str:
        """Whether it is right, in a word."""
        if self.picture.truth is None:
            return ""
        return f"WRONG: {self.picture.truth}" if self.is_wrong else "yes"


def explain(options: argparse.Namespace) -> None:
    """Says what pictures are taken for, and draws their trees."""
    folder = RunFolder.open(options.run)
    names_by_hand(folder)  # a mistake is told before the work
    pictures = find(options.images, folder.class_names())
    model = rem.encoder(folder.load_model(folder.config.model_names[-1]))
    shape = next(t for t in model.inputs if t.name == "images").shape[1:]
    pictures, images, sentences = read(
        pictures, shape, skip_broken=options.skip_broken
    )
    trees = rem.trees(
        model,
        Batches(images, np.zeros(len(images), int), batch_size=256),
        couplings=False,
    )
    answers = ask(folder.class_names(), pictures, trees)
    few = len(answers) <= PANELS
    for a in answers if few else ():
        print(f"{a.picture.path}: {a.classes[0]} (length {a.lengths[0]:.2f})")
    sentences = [*_right_and_wrong(answers), *sentences]
    if not few:
        told = f"{PANELS} of the {len(answers):,} pictures are drawn"
        sentences.append((f"{told}, wrong ones first.", False))
    for sentence, _ in sentences:
        print(sentence)
    out = options.out or options.run / "explained"
    out.mkdir(parents=True, exist_ok=True)
    # In their order, wrong ones if not all.
    places = sorted(range(len(answers)), key=lambda k: not answers[k].is_wrong)
    places = sorted(places[:PANELS])
    drawn, rows = [answers[k] for k in places], np.array(places)
    figures = _draw(folder, model, images[rows], trees[rows], drawn, out)
    written = _write(out, folder, answers, figures, sentences)
    for file in [*(path for path, *_ in figures if few), *written]:
        print(file)


# ----------------------------------------------------------------- the pictures


def find(paths: Sequence[Path], classes: Sequence[str]) -> list[Picture]:
    """Returns the pictures in files and folders, and folders in these.

    One in an inner folder that is called like a class is known to be of it;
    where the name has a slash, the folder's has a hyphen.
    """
    found: dict[Path, Picture] = {}
    of_folders = {as_text(name).replace("/", "-"): name for name in classes}
    for path in paths:
        if not path.is_dir():
            found.setdefault(path, Picture(path, as_text(path.name)))
            continue
        folders = [path, *sorted(p for p in path.rglob("*") if p.is_dir())]
        inside = [file for one in folders for file in pixels.files_in(one)]
        if not inside:
            raise UserError(f"there is no picture in the folder {path}.")
        for file in inside:
            name = as_text(file.relative_to(path).as_posix())
            inner = file.parent.name if file.parent != path else ""
            truth = of_folders.get(as_text(inner))
            found.setdefault(file, Picture(file, name, truth))
    names = collections.Counter(picture.name for picture in found.values())
    return [
        picture
        if names[picture.name] == 1
        else picture._replace(name=as_text(picture.path.as_posix()))
        for picture in found.values()
    ]


def read(
    pictures: Sequence[Picture],
    shape: tuple[int, int, int],
    *,
    skip_broken: bool = False,
) -> tuple[list[Picture], Images, Sentences]:
    """Reads pictures as a network takes them, and prints what was changed."""
    rows, columns, channels = shape
    if channels not in _MODES:
        raise UserError(
            f"the network takes images of {channels} channels, which no "
            "picture file has."
        )
    readable, taken, resized, left_out = [], [], [], []
    for picture in pictures:
        try:
            image = pixels.read(picture.path, _MODES[channels])
        except UserError as error:
            if not skip_broken:
                raise UserError(
                    f"{error} To leave such files out, add --skip-broken."
                ) from error
            left_out.append(f"left out: {error}")
            continue
        height, width = image.shape[:2]
        if (height, width) != (rows, columns):
            resized.append(
                f"{picture.path} is resized from {width}x{height} to "
                f"{columns}x{rows} pixels, width by height"
            )
        image = image.reshape(1, height, width, channels)
        taken.append(pixels.resize(image, (rows, columns)))
        readable.append(picture)
    if not readable:
        raise UserError(
            f"none of the {len(pictures):,} pictures can be read; {left_out[0]}"
        )
    if len(readable) > PANELS and len(resized) > 1:
        resized = [f"{resized[0]} (and {len(resized) - 1:,} more)"]
    for note in resized:
        print(note)
    sentences = [(text, True) for text in left_out]
    return readable, Images(np.concatenate(taken)), sentences


# ------------------------------------------------------------------ the answers


def ask(
    names: Sequence[str], pictures: Sequence[Picture], trees: rem.Trees
) -> list[Answer]:
    """Returns the answers to pictures, from their trees."""
    order = np.argsort(-trees.lengths, axis=-1, kind="stable")[:, :2]
    return [
        Answer(
            picture,
            (names[best[0]], names[best[1]]),
            tuple(trees.lengths[k, best].tolist()),
        )
        for k, (picture, best) in enumerate(zip(pictures, order, strict=True))
    ]


def _right_and_wrong(answers: Sequence[Answer]) -> Sentences:
    """Returns a sentence on the pictures whose class is known, if any is."""
    known = [a for a in answers if a.picture.truth is not None]
    wrong = [a for a in known if a.is_wrong]
    if not known:
        return []
    told = (
        f"{len(known) - len(wrong):,} of the {len(known):,} pictures in "
        "folders named like classes are right"
    )
    if wrong:
        told += "; wrong: " + ", ".join(
            f"{a.picture.name} taken for {a.classes[0]}" for a in wrong[:_NAMED]
        )
    if len(wrong) > _NAMED:
        told += f" and {len(wrong) - _NAMED:,} more"
    return [(f"{told}.", bool(wrong))]


# ----------------------------------------------------- drawings, page and table


def _draw(
    folder: RunFolder,
    model: keras.Model,
    images: Array,
    trees: rem.Trees,
    answers: Sequence[Answer],
    out: Path,
) -> Figures:
    """Draws each picture, if children have places, and all together."""
    names = folder.class_names()
    known = {name: j for j, name in enumerate(names)}
    labels = [known.get(a.picture.truth or "") for a in answers]
    drawings = draw_named_trees(folder, model, images, trees, names, labels)
    files: Figures = []
    for number, drawing in enumerate(drawings, 1):
        several = len(drawings) > 1
        path = drawing.save(out / f"named_tree{f'-{number}' * several}")
        heading = TEXTS["explain"]["named_tree"]["heading"]
        heading += f", picture {number}" * several
        files.append((path, heading, TEXTS["named_tree"]["caption"].strip()))
    drawing = viz.tree_fields(
        images,
        trees,
        rem.receptive_fields(model),
        titles=[
            f"{a.picture.name}: {a.classes[0]} {a.lengths[0]:.2f}"
            f"{f' ({a.mark})' if a.is_wrong else ''}, "
            f"{a.classes[1]} {a.lengths[1]:.2f}"
            for a in answers
        ],
        class_names=names,
    )
    texts = TEXTS["explain"]["tree_fields"]
    path = drawing.save(out / "tree_fields")
    files.append((path, texts["heading"], texts["caption"].strip()))
    return files


def _write(
    out: Path,
    folder: RunFolder,
    answers: Sequence[Answer],
    figures: Figures,
    sentences: Sentences,
) -> list[Path]:
    """Writes `predictions.csv`, and a page that holds everything it shows."""
    kept, shown = [], []
    for a in answers:
        (first, second), (one, two) = a.classes, a.lengths
        row = [str(a.picture.path), first, f"{one:.4f}", second, f"{two:.4f}"]
        kept.append([*row, a.picture.truth or ""])
        row = [a.picture.name, first, f"{one:.2f}", second, f"{two:.2f}"]
        shown.append([*row, a.mark])
    table, page = out / "predictions.csv", out / "index.html"
    with write_atomically(table, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            "file class length runner_up runner_up_length true_class".split()
        )
        writer.writerows(kept)
    head = "picture,recognised as,length,runner-up,its length,right".split(",")
    section = viz.Section(
        "Explained pictures",
        sentences=sentences,
        figures=figures,
        table=(head, shown),
        note=f"{len(answers):,} pictures, seen by the network "
        f"{folder.config.model} of {folder.path}. A length is between 0 and 1: "
        "how sure the network is of a class. The runner-up is the second "
        "longest class.",
    )
    viz.write_report(page, section, [])
    return [table, page]
