"""The report of a run: one HTML file that opens anywhere."""

import base64
import html
import io
import itertools
import json
import string
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from tfcaps.files import write_atomically
from tfcaps.viz.drawing import TILES

# Head and rows, as text.
Table = tuple[Sequence[str], Iterable[Sequence[str]]]

# The page around what a report shows, and its style.
_PAGE = Path(__file__).with_name("report.html")
# So many figures, and no fewer, get a list of links.
_LISTED = 3
# Pictures stand below each other before they are smaller than this share of
# their size, and are never smaller than that.
_WRAPPED, _SMALLEST = 0.7, 0.6
_WORDS = "What the words mean"
_TO_WORDS = f'<p class="note"><a href="#words">{_WORDS}</a></p>'
_LETTERS = 44  # of a line of text; rows of numbers stay whole


class Section(NamedTuple):
    """A part of a report, in the order in which it is shown.

    Attributes:
        heading: What it is called.
        sentences: What it says, each with whether it is a warning. Defaults to
            nothing.
        figures: A PNG file with a heading and a caption each. Defaults to none.
        table: Head and rows of a table, as text. Defaults to `None`, none.
        note: What is said of the table in small letters. Defaults to nothing.
        texts: Texts, such as `str` of a report, by their headings; they stand
            side by side. Rows of a table stay whole. Defaults to none.
    """

    heading: str
    sentences: Sequence[tuple[str, bool]] = ()
    figures: Sequence[tuple[str | Path, str, str]] = ()
    table: Table | None = None
    note: str = ""
    texts: Mapping[str, str] = {}


class Step(NamedTuple):
    """What a reader of a report may do next.

    Attributes:
        command: What to type.
        about: What that does.
        page: Address of a page that says more. Defaults to none.
    """

    command: str
    about: str
    page: str = ""


def write_report(
    path: str | Path,
    first: Section,
    folded: Iterable[Section] = (),
    *,
    steps: Iterable[Step] = (),
    words: Mapping[str, str] | None = None,
) -> None:
    """Writes a report that holds everything it shows.

    Args:
        path: Where the HTML file shall appear.
        first: What a reader sees at once.
        folded: What opens when it is clicked on. Defaults to nothing.
        steps: What to do next; it stands at the end. Defaults to nothing.
        words: What words of the report mean, which the first section links.
            Defaults to nothing.
    """
    numbers = itertools.count()
    parts = [
        f"<h1>{html.escape(first.heading)}</h1>",
        *_section(first, numbers),
        *([_TO_WORDS] if words else []),
        *(
            f"<details><summary>{html.escape(section.heading)}</summary>"
            f"{''.join(_section(section, numbers))}</details>"
            for section in folded
        ),
        *_glossary(words or {}),
        *_steps([*steps]),
    ]
    page = string.Template(_PAGE.read_text("utf-8")).substitute(
        title=html.escape(first.heading), body="".join(parts)
    )
    with write_atomically(Path(path), "w") as file:
        file.write(page)


def _section(section: Section, numbers: Iterator[int]) -> Iterator[str]:
    for sentence, warning in section.sentences:
        kind = "verdict trivial" if warning else "verdict"
        yield f'<p class="{kind}">{html.escape(sentence)}</p>'
    named = [(next(numbers), *figure) for figure in section.figures]
    if len(named) >= _LISTED:
        links = (
            f'<a href="#figure-{k}">{html.escape(heading)}</a>'
            for k, _, heading, _ in named
        )
        yield f"<nav>{''.join(links)}</nav>"
    for k, path, heading, caption in named:
        heading = html.escape(heading)
        yield (
            f'<h2 id="figure-{k}">{heading}</h2><figure>'
            f"{''.join(_tiles(Path(path), heading))}"
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    if section.table is not None:
        head, rows = section.table
        body = "".join(_row(cells, "td") for cells in rows)
        yield (
            f'<div class="scroll"><table><thead>{_row(head, "th")}</thead>'
            f"<tbody>{body}</tbody></table></div>"
        )
    if section.note:
        yield f'<p class="note">{html.escape(section.note)}</p>'
    for heading, text in section.texts.items():
        lines = [
            line if "  " in line.strip() else textwrap.fill(line, _LETTERS)
            for line in text.splitlines()
        ]
        heading, text = html.escape(heading), html.escape("\n".join(lines))
        yield f"<pre><strong>{heading}</strong>\n{text}</pre>"


def _glossary(words: Mapping[str, str]) -> Iterator[str]:
    if words:
        yield f'<details><summary>{_WORDS}</summary><dl id="words">'
        for word, meaning in words.items():
            yield f"<dt>{html.escape(word)}</dt><dd>{html.escape(meaning)}</dd>"
        yield "</dl></details>"


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    if steps:
        yield "<h2>What to do next</h2><ul>"
        for command, about, page in steps:
            more = f' (<a href="{html.escape(page)}">more</a>)' if page else ""
            yield f"<li>{html.escape(about)}{more}:<br>"
            yield f"<code>{html.escape(command)}</code></li>"
        yield "</ul>"


def _tiles(path: Path, heading: str) -> Iterator[str]:
    """Yields a picture; its tiles stand below each other where it is narrow."""
    with Image.open(path) as picture:
        wide = picture.width
        whole = [[(0, 0, wide, picture.height)]]
        for row in json.loads(picture.info.get(TILES, "[]")) or whole:
            yield f'<div class="tiles" style="max-width:{wide}px">'
            for box in row:
                with io.BytesIO() as file:
                    picture.crop(box).save(file, "PNG", optimize=True)
                    data = base64.b64encode(file.getvalue()).decode("ascii")
                # Letters stay readable; what is too wide even so can be moved.
                side = box[2] - box[0]
                share, least = 100 * side / wide, round(_SMALLEST * side)
                wanted = round(_WRAPPED * side)
                yield (
                    f'<div style="width:max({share:.4f}%,'
                    f'min(100%,{wanted}px));max-width:{side}px">'
                    f'<img alt="{heading}" style="min-width:{least}px" '
                    f'src="data:image/png;base64,{data}"></div>'
                )
            yield "</div>"


def _row(cells: Sequence[str], tag: str) -> str:
    inner = "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells)
    return f"<tr>{inner}</tr>"
