"""The findings of a run, for a reader who never saw a capsule."""

import textwrap
from collections.abc import Mapping

from markdown_table import markdown
from tfcaps.rem import Report
from training.tables import NOTHING, TITLES, Column

# Characters in a line of the terminal.
WIDTH = 100
# Above it all images lose their class, rounded.
_ALL = 0.9995

_FIRST = (
    Column("right, %", "accuracy", 2, 100),
    Column("parts found, %", "named_parts.found_once", 1, 100, optional=True),
    Column("type = kind", "named_parts.information", 2, optional=True),
)
_NEEDED = Column("needed, %", "necessity.zero", 1, 100, optional=True)
_OTHERS = Column("", "necessity_active.zero", 1, 100, optional=True)
_SLOTS = Column("bits (slots)", "named_parts.slot_bits", 2, optional=True)
_KEYS = Column("bits (trees)", "entropy_bits", 2)
_PRUNED = Column("pruned, %", "sparsity", 1, 100)


def sentence(report: Report) -> str:
    """Returns one sentence: is the network right, and do its trees say why?"""
    right = f"{_percent(report.accuracy)} of new images rightly"
    if report.learnt is False:
        return (
            f"The network has learnt nothing: it names {right}, and always "
            "naming the most frequent class would be right for "
            f"{_percent(report.majority_share)}."
        )
    start = f"The network names {right}"
    used, named = report.faithfulness, report.named_parts
    if reason := _why_not(report):
        return f"{start}, but its trees do not say why: {reason}."
    if used is None:
        return f"{start}; whether it uses its trees was not measured."
    lost = used.necessity["zero"]
    without = "without them it sees the class no more"
    if lost < _ALL:
        without = (
            f"without them it loses the class of {_percent(lost)} of the images"
        )
    text = f"{start} and uses its trees, as {without}"
    if named is None:
        return f"{text}; they are of capsules without places."
    if named.named is None:
        return f"{text}; whether they name parts is not known without masks."
    if not named.named:
        why = named.verdict.partition(": ")[2]
        return f"{text}, but they do not name parts: {why}"
    return (
        f"{start}, and says why: it finds {_percent(named.found_once or 0.0)} "
        f"of the parts in them, each once, and {without}."
    )


def _why_not(report: Report) -> str:
    """Returns why trees explain nothing; nothing if they may explain."""
    used = report.faithfulness
    if report.trivial:
        if report.whole_share > 0.5:
            return "nearly every capsule is in every tree"
        return "its couplings are all but equal"
    if used is None or not used.empty:
        return ""
    if used.empty_trees > 0.5:
        return f"{_percent(used.empty_trees)} of them have no part at all"
    if min(used.necessity.values()) < 0.5:
        same = _percent(used.same_without_tree["zero"])
        return f"without them it names {same} of the images the same"
    return "it loses the class as often without other capsules"


def sentences(report: Report) -> list[tuple[str, bool]]:
    """Returns what is said of a model, each with whether it is a warning."""
    found = [(sentence(report), is_warning(report))]
    used = report.faithfulness
    if used is not None and report.learnt is not False:
        if used.pixels is not None:
            found.append((used.pixels.verdict, not used.pixels.local))
        if used.saliency is not None and not used.saliency.specific:
            found.append((used.saliency.verdict, True))
    return found


def is_warning(report: Report) -> bool:
    """Tells whether the trees of a model mean nothing."""
    return report.trivial or bool(report.empty) or report.learnt is False


def cells(reports: Mapping[str, Report]) -> list[list[str]]:
    """Returns head and rows of the table, seven columns."""
    bits = _SLOTS if _have_slots(reports) else _KEYS
    columns = (*_FIRST, _NEEDED, bits, _PRUNED)
    rows = [["model", *(column.title for column in columns)]]
    for name, report in reports.items():
        known = report.to_dict()
        row = [TITLES[name], *(column.write([known]) for column in columns)]
        others = _OTHERS.write([known])
        if others != NOTHING:
            row[1 + columns.index(_NEEDED)] += f" ({others})"
        rows.append(row)
    return rows


def note(reports: Mapping[str, Report]) -> str:
    """Returns the meaning of the columns of the table."""
    bits = "entropy of the trees of a class"
    if _have_slots(reports):
        bits = (
            "how much the parts in the trees of a class vary, 0 is not at all"
        )
    return (
        "parts found: exactly once; type = kind: whether a capsule's type "
        "tells what kind of part it lies on (NMI, 1 is always); needed: images "
        "whose class is lost without their tree (without as many other active "
        f"capsules); bits: {bits}."
    )


def text(reports: Mapping[str, Report]) -> str:
    """Returns the sentence on the last model, and the table, for a terminal."""
    last = list(reports.values())[-1]
    table = markdown(cells(reports))
    told = "\n\n".join(wrapped(text) for text, _ in sentences(last))
    return f"{told}\n\n{table}\n{wrapped(note(reports))}"


def wrapped(paragraphs: str) -> str:
    """Returns paragraphs in lines of at most 100 characters."""
    return "\n".join(
        textwrap.fill(paragraph, WIDTH, break_long_words=False)
        for paragraph in paragraphs.splitlines()
    )


def _have_slots(reports: Mapping[str, Report]) -> bool:
    return all(report.named_parts is not None for report in reports.values())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
