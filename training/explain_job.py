"""Asks the model of a run about pictures: what `training/explain.py` does."""

import argparse
import collections
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tfcaps  # noqa: F401 (registers the layers)
from cli import UserError
from tfcaps import rem, viz
from tfcaps.files import write_atomically
from tfcaps.rem.evaluation.words import length_meaning, margin_text
from tfcaps.viz.letters import one_line
from training import figures, summary
from training import pictures as picture_files
from training.batches import Batches
from training.folder import RunFolder
from training.images import Images, resize
from training.names import as_text
from training.summary import GLOSSARY

PANELS = 12  # pictures that are drawn; more would be too small to read
_NAMED = 10  # pictures that are named in a sentence
_NUMBERED = re.compile(r"named_tree(-\d+)?\.png")
_NUMBERS = re.compile(r"(?<=\[)\n([^][{}\"]*)(?=\])")
_MODES = {1: "L", 3: "RGB"}
_HEAD = "picture,recognised as,length,runner-up,its length,margin,right"


class Picture(NamedTuple):
    """A file, and what the network says of it.

    Attributes:
        path: Where it is.
        name: What it is called here.
        truth: Its class, if that is known.
        size: Rows and columns, upright, before it is resized.
        record: The answer, see `rem.tree_records`.
    """

    path: Path
    name: str
    truth: str | None = None
    size: tuple[int, int] = (0, 0)
    record: dict[str, Any] = {}

    @property
    def is_wrong(self) -> bool:
        """Whether it is known to be of another class."""
        return self.truth not in (None, self.record["class"])

    def cells(self) -> list[str]:
        """Returns its row of the table."""
        first, second = self.record["length"], self.record["runner_up_length"]
        mark = f"WRONG: {self.truth}" if self.is_wrong else "yes"
        return [
            self.name,
            self.record["class"],
            f"{first:.2f}",
            self.record["runner_up"],
            f"{second:.2f}",
            margin_text(first, second),
            "" if self.truth is None else mark,
        ]

    @property
    def answer(self) -> str:
        """The two longest classes, and the margin."""
        _, first, length, second, other, margin, _ = self.cells()
        return (
            f"{one_line(first)} (length {length}), then {one_line(second)} "
            f"({other}): margin {margin}"
        )


def explain(options: argparse.Namespace) -> None:
    """Says what pictures are taken for, and draws their trees."""
    folder = RunFolder.open(options.run)
    folder.names_by_hand()  # a mistake is told before the work
    classes = folder.class_names()
    pictures, unread = find(options.images, classes)
    model = rem.classifier(folder.load_model(folder.main))
    shape = next(t for t in model.inputs if t.name == "images").shape[1:]
    pictures, images, left_out = read(
        pictures, shape, skip_broken=options.skip_broken
    )
    batches = Batches(images, np.zeros(len(images), int), batch_size=256)
    trees = rem.trees(model, batches, couplings=False)
    sizes = np.array([picture.size for picture in pictures])
    blueprints = rem.blueprints(model)
    records = rem.tree_records(
        trees,
        rem.receptive_fields(model),
        class_names=classes,
        type_names=folder.type_names(trees.num_types),
        blueprints=blueprints,
        sizes=sizes,
    )
    pictures = [
        picture._replace(record=record)
        for picture, record in zip(pictures, records, strict=True)
    ]
    meaning = length_meaning(blueprints)
    sentences = _right_and_wrong(pictures)
    sentences += [(text, True) for text in (*unread, *left_out)]
    if len(pictures) > PANELS:
        some = f"{PANELS} of the {len(pictures):,} pictures are drawn"
        sentences.append((f"{some}, wrong ones first.", False))
    else:
        print(*(f"{one.path}: {one.answer}" for one in pictures), sep="\n")
    print(f"The network sees pictures of {shape[1]}x{shape[0]} pixels.")
    print(meaning, *(text for text, _ in sentences), sep="\n")
    order = sorted(range(len(pictures)), key=lambda k: not pictures[k].is_wrong)
    rows = np.array(order[:PANELS])
    drawn = [pictures[k] for k in rows]
    numbers = {name: j for j, name in enumerate(classes)}
    explained = figures.explain(
        folder,
        model,
        images[rows],
        trees[rows],
        [numbers.get(picture.truth or "") for picture in drawn],
        sizes[rows],
    )
    out = options.out or options.run / "explained"
    out.mkdir(parents=True, exist_ok=True)
    written = _draw(explained, drawn, out, meaning)
    for path, heading, _ in written:
        print(f"{path}: {heading}")
    # The last drawing is of all of them.
    pairs = zip(drawn, written[:-1], strict=False)
    drawings = {one.path: path.name for one, (path, *_) in pairs}
    network, page = folder.config.model, out / "index.html"
    _write_data(out / "trees.json", network, meaning, pictures, drawings)
    section = viz.Section(
        "Explained pictures",
        sentences=sentences,
        figures=written,
        table=(_HEAD.split(","), [one.cells() for one in pictures]),
        note=f"{len(pictures):,} pictures, seen by the network {network} of "
        f"{folder.path}. {meaning} The runner-up is the second longest class; "
        "the margin, the first length less the second, says how clear the "
        "answer is.",
    )
    steps = [viz.Step(*step) for step in summary.steps(page, folder.path)]
    viz.write_report(page, section, steps=steps, words=summary.words())
    print(
        out / "trees.json",
        page,
        f"how to read them: docs/guides/parse_trees.md; the words: {GLOSSARY}",
        f"try next: python export/run.py --run {options.run} --to served",
        sep="\n",
    )


def find(
    paths: Sequence[Path], classes: Sequence[str]
) -> tuple[list[Picture], list[str]]:
    """Returns the pictures in files and folders, and folders in these.

    With a sentence for each folder in which files are of kinds not read.

    One in an inner folder that is called like a class is known to be of it;
    where the name has a slash, the folder's has a hyphen. Those that would have
    the same name are called by their whole path.
    """
    pictures: dict[Path, Picture] = {}
    unread: list[str] = []
    of_folders = {as_text(name).replace("/", "-"): name for name in classes}
    for path in paths:
        if not path.is_dir():
            pictures.setdefault(path, Picture(path, as_text(path.name)))
            continue
        folders = [path, *sorted(p for p in path.rglob("*") if p.is_dir())]
        inside = [f for one in folders for f in picture_files.files_in(one)]
        others = picture_files.unread_in(*folders)
        if not inside:
            why = f": {others}" if others else "."
            raise UserError(f"there is no picture in the folder {path}{why}")
        unread += [others] if others else []
        for file in inside:
            name = as_text(file.relative_to(path).as_posix())
            inner = file.parent.name if file.parent != path else ""
            truth = of_folders.get(as_text(inner))
            pictures.setdefault(file, Picture(file, name, truth))
    counts = collections.Counter(each.name for each in pictures.values())
    for file, each in pictures.items():
        if counts[each.name] > 1:
            pictures[file] = each._replace(name=as_text(file.as_posix()))
    return [*pictures.values()], unread


def read(
    pictures: Sequence[Picture],
    shape: tuple[int, int, int],
    *,
    skip_broken: bool = False,
) -> tuple[list[Picture], Images, list[str]]:
    """Reads pictures as a network takes them.

    Also returns a sentence for each that cannot be read.
    """
    rows, columns, channels = shape
    if channels not in _MODES:
        raise UserError(
            f"the network takes images of {channels} channels, which no "
            "picture file has."
        )
    readable, images, left_out = [], [], []
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
        image = image.reshape(1, height, width, channels)
        images.append(resize(image, (rows, columns)))
        readable.append(picture._replace(size=(height, width)))
    if not readable:
        raise UserError(
            f"none of the {len(pictures):,} pictures can be read; {left_out[0]}"
        )
    return readable, Images(np.concatenate(images)), left_out


def _right_and_wrong(pictures: Sequence[Picture]) -> list[tuple[str, bool]]:
    """Returns a sentence on those whose class is known, if any is.

    With whether it is a warning.
    """
    known = [picture for picture in pictures if picture.truth is not None]
    wrong = [picture for picture in known if picture.is_wrong]
    if not known:
        return []
    text = (
        f"{len(known) - len(wrong):,} of the {len(known):,} pictures in "
        "folders named like classes are right"
    )
    names = [
        f"{one_line(one.name)} taken for {one_line(one.record['class'])}"
        for one in wrong[:_NAMED]
    ]
    more = ["and others"] if len(wrong) > _NAMED else []
    text += "; wrong: " * bool(wrong) + ", ".join([*names, *more])
    return [(f"{text}.", bool(wrong))]


def _draw(
    explained: rem.Explanation,
    pictures: Sequence[Picture],
    out: Path,
    meaning: str,
) -> figures.Written:
    """Draws each picture, if children have places, and all together.

    Drawings of an earlier call, of other pictures, are removed.
    """
    for old in out.glob("named_tree*.png"):
        if _NUMBERED.fullmatch(old.name):
            old.unlink()
    names = [picture.name for picture in pictures]
    drawings = explained.draw(names) if explained.trees.has_places else []
    several = len(drawings) > 1
    drawn = [
        figures.figure(
            f"named_tree{f'-{k + 1}' * several}",
            drawing,
            "another_named_tree" if k else "named_tree",
            length=meaning,
        )._replace(heading=f"{names[k]}: why this is the answer")
        for k, drawing in enumerate(drawings)
    ]
    titles = [
        f"{one.name}{f' ({one.cells()[-1]})' * one.is_wrong}: {one.answer}"
        for one in pictures
    ]
    drawing = viz.tree_fields(explained, titles)
    every = figures.figure("tree_fields", drawing, "explained", length=meaning)
    return figures.save([*drawn, every], out)


def _write_data(
    path: Path,
    network: str,
    meaning: str,
    pictures: Sequence[Picture],
    drawings: dict[Path, str],
) -> None:
    """Writes what is known of each picture, a box's numbers in one line."""
    content = {
        "network": network,
        "length": meaning,
        "pixels": "of the file, upright: turned as its EXIF note says",
        "pictures": [
            {
                "file": str(one.path),
                "drawing": drawings.get(one.path),
                "true_class": one.truth,
                **one.record,
            }
            for one in pictures
        ],
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    with write_atomically(path, "w") as file:
        file.write(_NUMBERS.sub(lambda m: " ".join(m[1].split()), text) + "\n")
