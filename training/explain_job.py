"""Asks the model of a run about pictures: what `training/explain.py` does."""

import argparse
import collections
import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import tfcaps  # noqa: F401 (registers the layers)
from cli import UserError
from tfcaps import rem, viz
from tfcaps.files import write_atomically
from tfcaps.rem.parse.records import length_meaning, margin_text
from tfcaps.viz.letters import one_line
from training import pictures as picture_files
from training.batches import Batches
from training.figures import (
    TEXTS,
    draw_named_trees,
    names_by_hand,
    names_of_types,
)
from training.folder import RunFolder
from training.images import Array, Images, resize
from training.names import as_text

# Pictures that are drawn; more would be too small to read.
PANELS = 12
# Pictures that are named in a sentence.
_NAMED = 10
_NUMBERED = re.compile(r"named_tree(-\d+)?\.png")
_NUMBERS = re.compile(r"(?<=\[)\n([^][{}\"]*)(?=\])")
_MODES = {1: "L", 3: "RGB"}

Sentences = list[tuple[str, bool]]  # each with whether it is a warning
Figures = list[tuple[Path, str, str]]  # PNG file, heading, caption


class Picture(NamedTuple):
    """A file: a name that no other has, and its class if that is known.

    Its size is rows and columns, upright, before it is resized.
    """

    path: Path
    name: str
    truth: str | None = None
    size: tuple[int, int] = (0, 0)


class Answer(NamedTuple):
    """What the network says of a picture, see `rem.tree_records`."""

    picture: Picture
    record: dict[str, Any]

    @property
    def is_wrong(self) -> bool:
        """Whether it is known to be of another class."""
        return self.picture.truth not in (None, self.record["class"])

    @property
    def mark(self) -> str:
        """Whether it is right, in a word."""
        if self.picture.truth is None:
            return ""
        return f"WRONG: {self.picture.truth}" if self.is_wrong else "yes"

    @property
    def margin(self) -> str:
        """How far the class is before the next one."""
        return margin_text(
            self.record["length"], self.record["runner_up_length"]
        )

    def __str__(self) -> str:
        told = self.record
        return (
            f"{one_line(told['class'])} (length {told['length']:.2f}), then "
            f"{one_line(told['runner_up'])} ({told['runner_up_length']:.2f}): "
            f"margin {self.margin}"
        )


def explain(options: argparse.Namespace) -> None:
    """Says what pictures are taken for, and draws their trees."""
    folder = RunFolder.open(options.run)
    names_by_hand(folder)  # a mistake is told before the work
    pictures, unread = find(options.images, folder.class_names())
    model = rem.encoder(folder.load_model(folder.config.model_names[-1]))
    shape = next(t for t in model.inputs if t.name == "images").shape[1:]
    pictures, images, sentences = read(
        pictures, shape, skip_broken=options.skip_broken
    )
    sentences = [*((text, True) for text in unread), *sentences]
    trees = rem.trees(
        model,
        Batches(images, np.zeros(len(images), int), batch_size=256),
        couplings=False,
    )
    answers = ask(folder, model, pictures, trees)
    few = len(answers) <= PANELS
    for a in answers if few else ():
        print(f"{a.picture.path}: {a}")
    meaning = length_meaning(rem.blueprints(model))
    print(meaning)
    sentences = [*_right_and_wrong(answers), *sentences]
    if not few:
        told = f"{PANELS} of the {len(answers):,} pictures are drawn"
        sentences.append((f"{told}, wrong ones first.", False))
    for sentence, _ in sentences:
        print(sentence)
    out = options.out or options.run / "explained"
    out.mkdir(parents=True, exist_ok=True)
    places = sorted(range(len(answers)), key=lambda k: not answers[k].is_wrong)
    places = places[:PANELS]
    drawn, rows = [answers[k] for k in places], np.array(places)
    figures = _draw(
        folder, model, images[rows], trees[rows], drawn, out, meaning
    )
    written = _write(out, folder, answers, drawn, figures, sentences, meaning)
    for path, heading, _ in figures:
        print(f"{path}: {heading}")
    for file in written:
        print(file)


# ----------------------------------------------------------------- the pictures


def find(
    paths: Sequence[Path], classes: Sequence[str]
) -> tuple[list[Picture], list[str]]:
    """Returns the pictures in files and folders, and folders in these.

    With a sentence for each folder in which files are of kinds not read.

    One in an inner folder that is called like a class is known to be of it;
    where the name has a slash, the folder's has a hyphen.
    """
    found: dict[Path, Picture] = {}
    unread: list[str] = []
    of_folders = {as_text(name).replace("/", "-"): name for name in classes}
    for path in paths:
        if not path.is_dir():
            found.setdefault(path, Picture(path, as_text(path.name)))
            continue
        folders = [path, *sorted(p for p in path.rglob("*") if p.is_dir())]
        inside = [
            file for one in folders for file in picture_files.files_in(one)
        ]
        told = picture_files.unread_in(*folders)
        if not inside:
            why = f": {told}" if told else "."
            raise UserError(f"there is no picture in the folder {path}{why}")
        unread += [told] if told else []
        for file in inside:
            name = as_text(file.relative_to(path).as_posix())
            inner = file.parent.name if file.parent != path else ""
            truth = of_folders.get(as_text(inner))
            found.setdefault(file, Picture(file, name, truth))
    names = collections.Counter(picture.name for picture in found.values())
    pictures = [
        picture
        if names[picture.name] == 1
        else picture._replace(name=as_text(picture.path.as_posix()))
        for picture in found.values()
    ]
    return pictures, unread


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
            image = picture_files.read(picture.path, _MODES[channels])
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
        taken.append(resize(image, (rows, columns)))
        readable.append(picture._replace(size=(height, width)))
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
    folder: RunFolder,
    model: keras.Model,
    pictures: Sequence[Picture],
    trees: rem.Trees,
) -> list[Answer]:
    """Returns the answers to pictures, from their trees."""
    fields, blueprints = rem.receptive_fields(model), rem.blueprints(model)
    records = rem.tree_records(
        trees,
        fields,
        class_names=folder.class_names(),
        type_names=names_of_types(folder, trees.num_types),
        blueprints=blueprints,
        sizes=np.array([picture.size for picture in pictures]),
    )
    return list(map(Answer, pictures, records))


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
            f"{one_line(a.picture.name)} taken for "
            f"{one_line(a.record['class'])}"
            for a in wrong[:_NAMED]
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
    meaning: str,
) -> Figures:
    """Draws each picture, if children have places, and all together.

    Drawings of an earlier call, of other pictures, are removed.
    """
    names = folder.class_names()
    known = {name: j for j, name in enumerate(names)}
    labels = [known.get(a.picture.truth or "") for a in answers]
    pictures = [a.picture for a in answers]
    # As pictures were before they got the shape of the network's images.
    shown = np.array([p.size for p in pictures]) / images.shape[1:3]
    aspects = (shown[:, 0] / shown[:, 1]).tolist()
    drawings = draw_named_trees(
        folder,
        model,
        images,
        trees,
        names,
        labels,
        [p.name for p in pictures],
        aspects,
    )
    files: Figures = []
    for number, drawing in enumerate(drawings, 1):
        several = len(drawings) > 1
        path = drawing.save(out / f"named_tree{f'-{number}' * several}")
        heading = TEXTS["explain"]["named_tree"]["heading"]
        heading = f"{pictures[number - 1].name}: {heading}"
        caption = TEXTS["another_named_tree"]["caption"]
        if number == 1:
            caption = TEXTS["named_tree"]["caption"].format(length=meaning)
        files.append((path, heading, caption.strip()))
    drawing = viz.tree_fields(
        images,
        trees,
        rem.receptive_fields(model),
        titles=[
            f"{a.picture.name}{f' ({a.mark})' if a.is_wrong else ''}: {a}"
            for a in answers
        ],
        class_names=names,
        aspects=aspects,
    )
    texts = TEXTS["explain"]["tree_fields"]
    path = drawing.save(out / "tree_fields")
    caption = texts["caption"].format(length=meaning).strip()
    files.append((path, texts["heading"], caption))
    for old in {*out.glob("named_tree*.png")} - {path for path, *_ in files}:
        if _NUMBERED.fullmatch(old.name):
            old.unlink()
    return files


def _write(
    out: Path,
    folder: RunFolder,
    answers: Sequence[Answer],
    drawn: Sequence[Answer],
    figures: Figures,
    sentences: Sentences,
    meaning: str,
) -> list[Path]:
    """Writes tables of what was found, and a page that shows it."""
    names = "class length runner_up runner_up_length margin".split()
    kept, shown = [], []
    for a in answers:
        values = [a.record[name] for name in names]
        kept.append([a.picture.path, *values, a.picture.truth or ""])
        numbers = [f"{x:.2f}" if isinstance(x, float) else x for x in values]
        shown.append([a.picture.name, *numbers[:-1], a.margin, a.mark])
    table, page = out / "predictions.csv", out / "index.html"
    data = out / "trees.json"
    # The last one is of all of them.
    pairs = zip(drawn, figures[:-1], strict=False)
    drawings = {a.picture: path.name for a, (path, *_) in pairs}
    content = {
        "network": folder.config.model,
        "length": meaning,
        "pixels": "of the file, upright: turned as its EXIF note says",
        "pictures": [
            {
                "file": str(a.picture.path),
                "drawing": drawings.get(a.picture),
                "true_class": a.picture.truth,
                **a.record,
            }
            for a in answers
        ],
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    with write_atomically(data, "w") as file:
        # The numbers of a box in one line.
        file.write(_NUMBERS.sub(lambda m: " ".join(m[1].split()), text) + "\n")
    with write_atomically(table, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", *names, "true_class"])
        writer.writerows(kept)
    head = "picture,recognised as,length,runner-up,its length,margin,right"
    section = viz.Section(
        "Explained pictures",
        sentences=sentences,
        figures=figures,
        table=(head.split(","), shown),
        note=f"{len(answers):,} pictures, seen by the network "
        f"{folder.config.model} of {folder.path}. {meaning} The runner-up is "
        "the second longest class; the margin, the first length less the "
        "second, says how clear the answer is.",
    )
    viz.write_report(page, section, [])
    return [table, data, page]
