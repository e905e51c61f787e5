"""The report of a run: one HTML file that opens anywhere."""

import base64
import html
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfcaps.files import write_atomically

# Head and rows, as text.
Table = tuple[Sequence[str], Iterable[Sequence[str]]]

# The page around what a report shows, and its style.
_PAGE = Path(__file__).with_name("report.html")


def write_report(
    path: str | Path,
    *,
    title: str,
    subtitle: str,
    table: Table,
    verdicts: Iterable[tuple[str, bool]],
    figures: Iterable[Sequence[Any]],
    settings: Mapping[str, str],
) -> None:
    """Writes a report that holds everything it shows.

    Args:
        path: Where the HTML file shall appear.
        title: Heading.
        subtitle: Line below the heading.
        table: Head and rows of the main table, as text.
        verdicts: Sentences, each with whether it is a warning.
        figures: A PNG file with a heading and a caption each, and perhaps head
            and rows of a table, or `None`.
        settings: What the run was made with.
    """
    head, rows = table
    figures = list(figures)
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="note">{html.escape(subtitle)}</p>',
        _table(head, rows),
        *(
            f'<p class="verdict{" trivial" if warning else ""}">'
            f"{html.escape(sentence)}</p>"
            for sentence, warning in verdicts
        ),
        _contents([heading for _, heading, *_ in figures]),
        *(_figure(k, *figure) for k, figure in enumerate(figures)),
        '<h2 id="settings">Settings</h2>',
        _table(("setting", "value"), settings.items()),
    ]
    page = string.Template(_PAGE.read_text("utf-8")).substitute(
        title=html.escape(title), body="".join(parts)
    )
    with write_atomically(Path(path), "w") as file:
        file.write(page)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        inner = "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells)
        return f"<tr>{inner}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return (
        f'<div class="scroll"><table><thead>{row(head, "th")}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _contents(headings: Sequence[str]) -> str:
    links = "".join(
        f'<a href="#figure-{k}">{html.escape(heading)}</a>'
        for k, heading in enumerate(headings)
    )
    return f'<nav>{links}<a href="#settings">Settings</a></nav>'


def _figure(
    number: int,
    path: str | Path,
    heading: str,
    caption: str,
    table: Table | None = None,
) -> str:
    data = base64.b64encode(Path(path).read_bytes()).decode("ascii")
    return (
        f'<h2 id="figure-{number}">{html.escape(heading)}</h2><figure>'
        f'<img alt="{html.escape(heading)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        + ("" if table is None else _table(*table))
    )
