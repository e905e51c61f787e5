"""Asks the model of a run about pictures: what `training/explain.py` does."""

import argparse
import csv
import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfcaps  # noqa: F401 (registers the layers)
from cli import UserError
from tfcaps import rem, viz
from tfcaps.files import write_atomically
from tfcaps.graphs import last_routed_layer
from tfcaps.rem.parse.in_tree import codes_in_tree
from training import named_trees, own_pictures
from training.figures import TEXTS, explained
from training.folder import RunFolder
from training.image_data import Array, Floats

# Panels in a figure; more would be too small to read.
PANELS = 12
# Most numbers in a batch of images, 64 MB, and most images.
_BATCH_SIZE, _BATCH = 2**24, 256
# Pictures that are named in a sentence.
_NAMED = 10
# Characters in a line of a title.
_WIDE = 24

Sentences = list[tuple[str, bool]]  # each with whether it is a warning
Files = list[tuple[str, str, Path]]  # name, number in words, PNG file


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of a network to a picture.

    Attributes:
        picture: The picture.
        classes: The names of the longest class and of the second longest.
        lengths: Their lengths.
        same: How many test images share its tree, in words.
    """

    picture: own_pictures.Picture
    classes: tuple[str, str]
    lengths: tuple[float, float]
    same: str

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
    named_trees.names_by_hand(folder)  # a mistake is told before the work
    pictures = own_pictures.find(options.images, folder.class_names())
    model = rem.encoder(folder.load_model(folder.config.model_names[-1]))
    shape = next(t for t in model.inputs if t.name == "images").shape[1:]
    reader = own_pictures.Reader(shape, options.invert, options.skip_broken)
    answers = ask(folder, model, reader, pictures)
    if not answers:
        raise UserError(
            f"none of the {len(pictures):,} pictures can be read; the first: "
            f"{reader.left_out[0]}"
        )
    few = len(answers) <= PANELS
    for notes in (reader.resized, reader.dark):
        more = f" (and {len(notes) - 1:,} more)" if len(notes) > 1 else ""
        for note in notes if few else [f"{note}{more}" for note in notes[:1]]:
            print(note)
    for a in answers if few else ():
        named, length = a.classes[0], a.lengths[0]
        print(f"{a.picture.path}: {named} (length {length:.2f}); {a.same}")
    sentences = _sentences(answers, reader)
    for sentence, _ in sentences:
        print(sentence)
    out = options.out or options.run / "explained"
    out.mkdir(parents=True, exist_ok=True)
    table, page = out / "predictions.csv", out / "index.html"
    _write_table(table, answers)
    # In their order, wrong ones if not all.
    places = sorted(range(len(answers)), key=lambda k: not answers[k].is_wrong)
    drawn = [answers[k] for k in sorted(places[: options.draw])]
    if len(drawn) < len(answers):
        told = (
            f"{len(drawn):,} of the {len(answers):,} pictures are drawn, wrong "
            "ones first; --draw changes how many."
        )
        sentences.append((told, False))
    files = _draw(folder, model, reader, drawn, out)
    _write_page(page, folder, answers, files, sentences)
    for file in [*(path for *_, path in files if few), table, page]:
        print(file)


def ask(
    folder: RunFolder,
    model: keras.Model,
    reader: own_pictures.Reader,
    pictures: Sequence[own_pictures.Picture],
) -> list[Answer]:
    """Returns the answers to all pictures, of which few are in memory."""
    config, names = folder.config, folder.class_names()
    threshold = last_routed_layer(model).routing.tree_threshold(len(names))

    def inside(codes: Array) -> Array:
        found: Array = keras.ops.convert_to_numpy(
            codes_in_tree(
                codes, threshold, config.class_levels, mode=config.mode
            )
        )
        return found

    trees, types = folder.dictionary(), folder.type_dictionary()
    size = int(np.clip(_BATCH_SIZE // np.prod(reader.shape), 1, _BATCH))
    answers: list[Answer] = []
    for start in range(0, len(pictures), size):
        readable, images = reader.read(pictures[start : start + size])
        if readable:
            found = rem.trees(
                model,
                images[:],
                config.levels,
                mode=config.mode,
                couplings=False,
            )
            order = np.argsort(-found.lengths, axis=-1, kind="stable")
            for k, (picture, best) in enumerate(
                zip(readable, order[:, :2].tolist(), strict=True)
            ):
                lengths = found.lengths[k, best].tolist()
                classes = [names[j] for j in best]
                count, lines, same = _same(
                    trees, best[0], found.codes[k], inside
                )
                told = (
                    f"of {count:,} test images of this class {lines:,} have "
                    f"lines to the same children, {same:,} the very same tree"
                )
                if types is not None:
                    _, lines, same = _same(
                        types, best[0], found.type_codes[k], inside
                    )
                    told += (
                        f"; wherever they are, {lines:,} have lines to the "
                        f"same types of children, {same:,} the very same tree "
                        "of types"
                    )
                answers.append(
                    Answer(picture, tuple(classes), tuple(lengths), told)
                )
        if len(pictures) > size:
            done = min(start + size, len(pictures))
            print(f"{done:,} of {len(pictures):,} pictures", flush=True)
    return answers


def _same(
    known: rem.CouplingDictionary, j: int, key: Array, inside: Any
) -> tuple[int, int, int]:
    """Counts the samples of a class, those with a key's lines, and its own.

    Args:
        known: The dictionary of the test images.
        j: The class.
        key: The key of a picture.
        inside: Function from codes to whether children are in the tree, which
            is what a line of the drawings means.
    """
    keys, counts = known.keys(j), np.asarray(known.counts(j), int)
    lines = np.all(inside(keys) == inside(key), axis=-1)
    same = np.all(keys == key, axis=-1)
    total = int(known.num_samples[j])
    return total, int(counts[lines].sum()), int(counts[same].sum())


def _sentences(
    answers: Sequence[Answer], reader: own_pictures.Reader
) -> Sentences:
    """Returns the sentences about all pictures."""
    known = [a for a in answers if a.picture.truth is not None]
    wrong = [a for a in known if a.is_wrong]
    sentences = [(f"left out: {text}", True) for text in reader.left_out]
    if known:
        told = (
            f"{len(known) - len(wrong):,} of the {len(known):,} pictures in "
            "folders named like classes are right"
        )
        if wrong:
            told += "; wrong: " + ", ".join(
                f"{a.picture.name} taken for {a.classes[0]}"
                for a in wrong[:_NAMED]
            )
        if len(wrong) > _NAMED:
            told += f" and {len(wrong) - _NAMED:,} more"
        sentences.insert(0, (f"{told}.", bool(wrong)))
    return sentences


def _draw(
    folder: RunFolder,
    model: keras.Model,
    reader: own_pictures.Reader,
    answers: Sequence[Answer],
    out: Path,
) -> Files:
    """Draws some at a time, each picture of the first page by itself too."""
    files: Files = []
    starts = range(0, len(answers), PANELS)
    for page, start in enumerate(starts, 1):
        if len(starts) > 1:
            print(f"drawing {page} of {len(starts)} pages", flush=True)
        some = answers[start : start + PANELS]
        _, images = reader.read([answer.picture for answer in some])
        drawings = _drawings(folder, model, images[:], some, page == 1)
        for name, drawing in drawings:
            own = name == "named_tree"
            number = 1 + sum(known == name for known, *_ in files)
            suffix = f"-{number}" if len(answers if own else starts) > 1 else ""
            path = drawing.save(out / f"{name}{suffix}")
            word = f", {'picture' if own else 'page'} {number}"
            files.append((name, word if suffix else "", path))
    return files


def _drawings(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    answers: Sequence[Answer],
    each: bool,
) -> Iterator[tuple[str, viz.Drawing]]:
    """Yields the drawings of a page, first those of each picture, by name."""
    config, names = folder.config, folder.class_names()
    if each:
        known = {name: j for j, name in enumerate(names)}
        labels = [known.get(a.picture.truth or "") for a in answers]
        for drawing in named_trees.draw(
            folder,
            model,
            images,
            classes=names,
            parts=folder.parts(),
            labels=labels,
        ):
            yield "named_tree", drawing
    trees = rem.trees(model, images, config.levels, mode=config.mode)
    titles = [
        f"{a.picture.name}: {a.classes[0]} {a.lengths[0]:.2f}"
        f"{f' ({a.mark})' if a.is_wrong else ''}, "
        f"{a.classes[1]} {a.lengths[1]:.2f}"
        for a in answers
    ]
    fields = rem.receptive_fields(model)
    yield (
        "tree_fields",
        viz.tree_fields(
            images, trees, fields, titles=titles, class_names=names
        ),
    )
    by_title = {
        textwrap.fill(f"{a.picture.name}: {a.classes[0]}", _WIDE): trees[
            k : k + 1
        ].parse_tree()
        for k, a in enumerate(answers)
    }
    yield (
        "parse_trees",
        viz.parse_tree(by_title, images=images, class_names=names),
    )
    if trees.has_places:
        maps = {config.model: explained(model, trees)}
        yield "saliency", viz.saliency(images, maps, class_names=names)


def _write_page(
    path: Path,
    folder: RunFolder,
    answers: Sequence[Answer],
    files: Files,
    sentences: Sentences,
) -> None:
    """Writes a page that holds everything it shows."""
    config = folder.config
    figures: dict[bool, list[Any]] = {True: [], False: []}
    for name, number, file in files:
        texts = {**TEXTS[name], **TEXTS["explain"][name]}
        caption = texts["caption"].strip()
        shown = (file, f"{texts['heading']}{number}", caption)
        figures[name == "named_tree"].append(shown)
    named, others = figures[True], figures[False]
    with_truth = any(a.picture.truth for a in answers)
    head = ["picture", "recognised as", "length", "runner-up", "its length"]
    head += ["right"] * with_truth + ["test images with such a tree"]
    rows = [
        [
            a.picture.name,
            a.classes[0],
            f"{a.lengths[0]:.2f}",
            a.classes[1],
            f"{a.lengths[1]:.2f}",
            *[a.mark] * with_truth,
            a.same,
        ]
        for a in answers
    ]
    settings = [
        ("run", str(folder.path)),
        ("network", config.model),
        ("data", config.dataset),
        ("levels of the couplings", str(config.levels)),
    ]
    first = viz.Section(
        "Explained pictures",
        sentences=sentences,
        figures=named or others,
        table=(head, rows),
        note=f"{len(answers):,} pictures, seen by the network of "
        f"{folder.path}. A length is between 0 and 1: how sure the network is "
        "of a class. The runner-up is the second longest class.",
    )
    more = [viz.Section("More drawings", figures=others)] if named else []
    table = (("setting", "value"), settings)
    viz.write_report(path, first, [*more, viz.Section("Settings", table=table)])


def _write_table(path: Path, answers: Sequence[Answer]) -> None:
    """Writes a CSV file with a row for each picture."""
    head = ["file", "class", "length", "runner_up", "runner_up_length"]
    with_truth = any(a.picture.truth for a in answers)
    with write_atomically(path, "w") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*head, *["true_class"] * with_truth])
        for a in answers:
            cells = [str(a.picture.path)]
            for name, length in zip(a.classes, a.lengths, strict=True):
                cells += [name, f"{length:.4f}"]
            rows.writerow([*cells, *[a.picture.truth] * with_truth])
