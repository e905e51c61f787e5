"""The findings of a run, for a reader who never saw a capsule."""

import os
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markdown_table import markdown
from tfcaps.rem import Report
from tfcaps.rem.evaluation.words import BY_PLACE
from training.tables import COLUMNS, TITLES, Column, columns

WIDTH = 100  # characters in a line of the terminal
GLOSSARY = "docs/glossary.md"
_ROOT = Path(__file__).parents[1]

_COLUMNS, _BESIDE = columns("summary"), columns("beside")
_CHANGES = "answer changes"
_OF_SIZE = ("weights", "pruned")
_LEAST = 0.1  # of NMI and bits, by which models differ; otherwise a point


def sentence(report: Report) -> str:
    """Returns one sentence: is the network right, and do its trees say why?"""
    start = f"The accuracy on new images is {_percent(report.accuracy)}"
    if report.learnt is False:
        return (
            f"{start}, and that of always answering the most frequent class "
            f"{_percent(report.majority_share)}: the network has learnt "
            "nothing."
        )
    used, named = report.faithfulness, report.named_parts
    if reason := _why_not(report):
        return f"{start}, but {reason}."
    if used is None or used.empty is None:
        why = "was not measured"
        if used is not None:
            why = "cannot be told, as nearly all images have the same answer"
        return f"{start}; whether the network uses its trees {why}."
    without = (
        "without them the answer changes for "
        f"{_percent(used.answer_changes['zero'])} of the images (with them at "
        f"their mean {_percent(used.answer_changes['mean'])}, by chance "
        f"{_percent(used.answer_changes_chance)})"
    )
    text = f"{start}, and the network uses its trees: {without}"
    if named is None:
        return f"{text}; they are of capsules without places."
    if named.named is None:
        return f"{text}; whether they name parts is not known without masks."
    if not named.named:
        why = named.verdict.partition(": ")[2]
        return f"{text}, but they do not name parts: {why}"
    if used.pixels is not None and not used.pixels.local:
        return f"{text}, but a leaf is not made by what is under it."
    alone = ", as the images alone show," * (named.clear is not None)
    return (
        f"{start}, and the trees say why: {_percent(named.found_once or 0.0)} "
        f"of the parts{alone} are in them, each once, and {without}."
    )


def _why_not(report: Report) -> str:
    """Returns why trees explain nothing; nothing if they may explain."""
    used, no = report.faithfulness, "its trees do not say why: "
    if report.trivial:
        if report.whole_share > 0.5:
            return f"{no}nearly every capsule is in every tree"
        return f"{no}its couplings are all but equal"
    if used is None or not used.empty:
        return ""
    if used.empty_trees > 0.5:
        return f"{no}{_percent(used.empty_trees)} of them have no part at all"
    name, control = used.doubt or ("", "")
    if control:
        return f"{no}as many {control} matter as much"
    same = _percent(1.0 - used.answer_changes[name])
    same = f"without them {same} of the images keep their answer"
    if used.is_redundant:
        return (
            f"its trees are not needed: {same}, if less surely, as what is "
            "left is enough"
        )
    return f"{no}{same}"


def sentences(report: Report) -> list[tuple[str, bool]]:
    """Returns what is said of a model, each with whether it is a warning."""
    said = [(sentence(report), is_warning(report))]
    used = report.faithfulness
    if used is not None and report.learnt is not False:
        if used.pixels is not None:
            said.append((used.pixels.verdict, not used.pixels.local))
        if used.saliency is not None and not used.saliency.specific:
            said.append((used.saliency.verdict, True))
    return said


def is_warning(report: Report) -> bool:
    """Tells whether the trees of a model mean nothing."""
    return report.trivial or bool(report.empty) or report.learnt is False


def cells(reports: Mapping[str, Report]) -> list[list[str]]:
    """Returns head and rows of the table, of that in which models differ."""
    shown, _ = _columns(reports)
    rows = [["model", *(column.title for column in shown)]]
    for name, report in reports.items():
        known = [report.to_dict()]
        row = [TITLES[name], *(column.write(known) for column in shown)]
        if report.faithfulness is not None and _CHANGES in rows[0]:
            beside = ", ".join(column.write(known) for column in _BESIDE)
            row[rows[0].index(_CHANGES)] += f" ({beside})"
        rows.append(row)
    return rows


def _columns(
    reports: Mapping[str, Report],
) -> tuple[list[Column], list[Column]]:
    """Returns what models differ in, and what is alike in all."""
    known = [report.to_dict() for report in reports.values()]
    differ: list[Column] = []
    alike: list[Column] = []
    for column in _COLUMNS:
        if not any(map(column.is_known, known)):
            continue
        group = differ
        of_all = len(known) > 1 and all(map(column.is_known, known))
        if of_all and column.title not in _OF_SIZE:
            values = [column.summary([model])[0] for model in known]
            least = 1.0 if column.factor == 100 else _LEAST
            if max(values) - min(values) < least:
                group = alike
        group.append(column)
    return differ, alike


def note(reports: Mapping[str, Report]) -> str:
    """Returns what is alike in all models, and the meaning of all columns."""
    differ, alike = _columns(reports)
    text = ""
    if alike:
        text = "Alike with and without REM, by less than a point or a tenth:"
        if all(column.title in _OF_SIZE for column in differ):
            text = (
                "REM changed the size and nothing else that is measured here, "
                "by a point or a tenth (in brackets without):"
            )
        first, *_, last = (report.to_dict() for report in reports.values())
        values = (
            f"{c.title} {c.write([last])} ({c.write([first])})" for c in alike
        )
        text = f"{text} {', '.join(values)}.\n"
    titles = [c.title for c in _COLUMNS if c in differ or c in alike]
    known = COLUMNS["meanings"]
    said = [f"{t}: {known[t]}" for t in titles if t in known]
    meanings = [" ".join(each.split()) for each in said]
    text += f"In %, but for NMI, bits and weights. {'; '.join(meanings)}."
    types = [report.type_entropy_bits for report in reports.values()]
    return text if None in types else f"{text} {BY_PLACE}"


def text(reports: Mapping[str, Report]) -> str:
    """Returns the sentence on the last model, and the table, for a terminal."""
    last = list(reports.values())[-1]
    table = markdown(cells(reports))
    said = "\n\n".join(wrapped(text) for text, _ in sentences(last))
    return f"{said}\n\n{table}\n{wrapped(note(reports))}"


def of_fit(model: Any) -> list[str]:
    """Says what a network that is estimated by its own `fit` has chosen."""
    report = getattr(model, "report", None)
    if not report:
        return []
    sentences = [f"Form: {report['form']}."]
    if "linear_accuracy" in report:
        sentences.append(
            "A linear head on the backbone's features of whole images has an "
            f"accuracy of {report['linear_accuracy']:.1%} on the test images."
        )
    return sentences


def words() -> dict[str, str]:
    """Returns what the terms of the glossary mean."""
    text = (_ROOT / GLOSSARY).read_text("utf-8")
    terms = re.findall(r"^\*\*(.+?)\.\*\* (.+?)\n$", text, re.M | re.S)
    plain = (re.sub(r"\*\*|\s+", " ", meaning) for _, meaning in terms)
    return dict(zip((term for term, _ in terms), plain, strict=True))


def steps(
    page: Path, run: Path, picture: str | None = None, *, warning: bool = False
) -> list[tuple[str, str, str]]:
    """Returns what to do after a run, or after pictures were explained.

    Args:
        page: The page that shall say so, which links guides.
        run: The run folder.
        picture: A picture to explain; `None` after that was done.
        warning: Bool. Whether the trees mean nothing.

    Returns:
        Commands, what they do, and the guide to each.
    """
    export = f"python export/run.py --run {run} --to served"
    known = [(export, "Serve the network", "serve")]
    if picture is not None:
        explain = f"python training/explain.py --run {run} {picture}"
        known.insert(0, (explain, "Explain pictures of yours", "trees"))
        folder = "Train on pictures of yours, in a folder for each class"
        again = "python training/run.py --rem --dataset photos/"
        known.append((again, folder, "photos"))
    if warning:
        why = "Change how trees are trained, as these mean nothing"
        known.insert(0, ("python training/run.py --help", why, "train_rem"))
    guides = os.path.relpath(_ROOT / "docs" / "guides", page.parent)
    return [(what, about, f"{guides}/{name}.md") for what, about, name in known]


def wrapped(paragraphs: str) -> str:
    """Returns paragraphs in lines of at most 100 characters."""
    return "\n".join(
        textwrap.fill(paragraph, WIDTH, break_long_words=False)
        for paragraph in paragraphs.splitlines()
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
