"""Asks the model of a run about pictures: what `training/explain.py` does."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

import tfcaps  # noqa: F401 (registers the layers)
from cli import (
    UserError,
)
from tfcaps import rem
from training import explained, own_pictures, tree_figures
from training.explained import Answer, Answerer
from training.folder import RunFolder

# Most numbers in a batch of images, 64 MB, and most images.
_BATCH_SIZE, _BATCH = 2**24, 256
# Pictures that are named in a sentence.
_NAMED = 10


def explain(options: argparse.Namespace) -> None:
    """Says what pictures are taken for, and draws their trees."""
    folder = RunFolder.open(options.run)
    tree_figures.names_by_hand(folder)  # a mistake is told before the work
    pictures = own_pictures.find(options.images, folder.class_names())
    model = rem.encoder(folder.load_model(folder.config.model_names[-1]))
    shape = next(t for t in model.inputs if t.name == "images").shape[1:]
    reader = own_pictures.Reader(shape, options.invert, options.skip_broken)
    answers = _ask(pictures, reader, Answerer(folder, model), shape)
    if not answers:
        raise UserError(
            f"none of the {len(pictures):,} pictures can be read; the first: "
            f"{reader.left_out[0]}"
        )
    few = len(answers) <= explained.PANELS
    _print_notes([reader.resized, reader.dark], few)
    sentences = _sentences(answers, reader)
    if few:
        for a in answers:
            print(
                f"{a.picture.path}: {a.named} (length {a.length:.2f}); {a.same}"
            )
    for sentence, _ in sentences:
        print(sentence)
    out = options.out or options.run / "explained"
    out.mkdir(parents=True, exist_ok=True)
    explained.write_table(out / "predictions.csv", answers)
    drawn = _drawn(answers, options.draw)
    if len(drawn) < len(answers):
        sentences.append(
            (
                f"{len(drawn):,} of the {len(answers):,} pictures are drawn, "
                "wrong ones first; --draw changes how many.",
                False,
            )
        )
    files = _draw(folder, model, reader, drawn, out)
    page = out / "index.html"
    explained.write_page(page, folder, answers, files, sentences)
    for file in [*(f for _, f in files if few), out / "predictions.csv", page]:
        print(file)


def _ask(
    pictures: Sequence[own_pictures.Picture],
    reader: own_pictures.Reader,
    answerer: Answerer,
    shape: Sequence[int],
) -> list[Answer]:
    """Returns the answers to all pictures, of which few are in memory."""
    size = int(np.clip(_BATCH_SIZE // np.prod(shape), 1, _BATCH))
    answers: list[Answer] = []
    for start in range(0, len(pictures), size):
        readable, images = reader.read(pictures[start : start + size])
        if readable:
            answers += answerer.ask(readable, images[:])
        if len(pictures) > size:
            done = min(start + size, len(pictures))
            print(f"{done:,} of {len(pictures):,} pictures", flush=True)
    return answers


def _print_notes(kinds: Sequence[Sequence[str]], few: bool) -> None:
    """Prints all notes, or of many pictures the first of each kind."""
    for notes in kinds:
        for note in notes if few else notes[:1]:
            more = f" (and {len(notes) - 1:,} more)"
            print(note + ("" if few or len(notes) == 1 else more))


def _sentences(
    answers: Sequence[Answer], reader: own_pictures.Reader
) -> list[tuple[str, bool]]:
    """Returns the sentences about all, each with whether it is a warning."""
    sentences = []
    known = [a for a in answers if a.picture.truth is not None]
    if known:
        wrong = [a for a in known if a.is_wrong]
        text = (
            f"{len(known) - len(wrong):,} of the {len(known):,} pictures in "
            "folders named like classes are right"
        )
        if wrong:
            text += "; wrong: " + _listed(
                [f"{a.picture.name} taken for {a.named}" for a in wrong]
            )
        sentences.append((f"{text}.", bool(wrong)))
    sentences += [(f"left out: {text}", True) for text in reader.left_out]
    return sentences


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more:,} more" * (more > 0))


def _drawn(answers: Sequence[Answer], most: int) -> list[Answer]:
    """Returns those that are drawn, in their order, wrong ones if not all."""
    places = sorted(range(len(answers)), key=lambda k: not answers[k].is_wrong)
    return [answers[k] for k in sorted(places[:most])]


def _draw(
    folder: RunFolder,
    model: keras.Model,
    reader: own_pictures.Reader,
    answers: Sequence[Answer],
    out: Path,
) -> list[tuple[str, Path]]:
    """Draws some at a time; returns the name and the file of each drawing."""
    files = []
    starts = range(0, len(answers), explained.PANELS)
    pages = [answers[start : start + explained.PANELS] for start in starts]
    for number, page in enumerate(pages, 1):
        if len(pages) > 1:
            print(f"drawing {number} of {len(pages)} pages", flush=True)
        _, images = reader.read([answer.picture for answer in page])
        named = []
        if number == 1:
            named = explained.draw_named(folder, model, images[:], page)
        for k, drawing in enumerate(named, 1):
            suffix = f"-{k}" if len(answers) > 1 else ""
            path = out / f"named_tree{suffix}"
            files.append(("named_tree", drawing.save(path)))
        drawings = explained.draw(folder, model, images[:], page)
        for name, drawing in drawings.items():
            suffix = f"-{number}" if len(pages) > 1 else ""
            files.append((name, drawing.save(out / f"{name}{suffix}")))
    return files
