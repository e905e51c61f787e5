"""The report of a run: one HTML file that opens anywhere."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfcaps.files import write_atomically

# Head and rows, as text.
Table = tuple[Sequence[str], Iterable[Sequence[str]]]

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto;
       max-width: 62rem; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd;
         text-align: right; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #555; }
img { max-width: 100%; } figure { margin: 1rem 0; break-inside: avoid; }
figcaption, .note { color: #555; font-size: .9rem; }
p.verdict { border-left: 4px solid #0072B2; padding: .3rem .8rem; }
p.trivial { border-color: #D55E00; background: #fdf1e8; }
code { background: #f3f3f3; padding: 0 .2rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
nav { columns: 3 14rem; font-size: .9rem; margin: 1rem 0; }
nav a { display: block; color: #0072B2; }
h2 { break-after: avoid; } tr { break-inside: avoid; }
@media print {
  @page { margin: 1.5cm; }
  body { font-size: 10pt; margin: 0; max-width: none; padding: 0; }
  nav { display: none; }
  .scroll { overflow: visible; }
  th, td { padding: .2rem .4rem; }
  img { max-height: 23cm; }
}
"""


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
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
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
