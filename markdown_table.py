"""Writes a table in Markdown; shared by the commands."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Columns that a screen shows, those that are shown first, and those that say
# something of the column before them.
_WIDEST = 8
_FIRST = re.compile("accuracy, %|entropy|bits by place|trees by place")
_OF_BEFORE = re.compile(
    "published|difference|random|mean|at the|other|shifted|of |by chance"
)


def markdown(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Returns rows, the first of them the head, as a Markdown table.

    Args:
        rows: Cells as text.
        left: Int. How many columns are aligned to the left. Defaults to `1`.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * width if k < left else "-" * (width - 1) + ":"
        for k, width in enumerate(widths)
    ]
    return "\n".join(map(line, [rows[0], rule, *rows[1:]]))


def narrow(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Returns rows, the first of them the head, as tables of eight columns.

    Accuracy and entropy stand in the first one. Each begins with what the
    columns on the left say.
    """
    names = [", ".join(filter(None, row[:left])) for row in rows]
    head = rows[0]
    columns: list[list[int]] = []
    for k in range(left, len(head)):
        if columns and _OF_BEFORE.match(head[k]) and len(columns[-1]) < 7:
            columns[-1].append(k)
        else:
            columns.append([k])
    columns.sort(key=lambda group: not _FIRST.match(head[group[0]]))
    tables: list[list[int]] = [[]]
    for group in columns:
        if len(tables[-1]) + len(group) >= _WIDEST:
            tables.append([])
        tables[-1] += group
    return "\n\n".join(
        markdown(
            [
                [n, *(r[k] for k in shown)]
                for n, r in zip(names, rows, strict=True)
            ]
        )
        for shown in tables
    )


def table(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[tuple[str, str]],
    left: int = 1,
) -> str:
    """Returns records as a Markdown table.

    Args:
        records: Values by name.
        columns: For each column its head, and the format of its cells, such as
            `"{step[ms]:.2f}"`.
        left: Int. How many columns are aligned to the left. Defaults to `1`.
    """

    rows = [[form.format_map(r) for _, form in columns] for r in records]
    return markdown([[head for head, _ in columns], *rows], left=left)


def write_tables(path: Path, *tables: str) -> None:
    """Writes tables into a page, in the place of those that it has.

    The words around them stay; they are written there by hand. Tables without
    words between them are one.
    """
    page = path.read_text("utf-8") if path.exists() else f"# {path.stem}\n"
    left = iter(tables)
    each = re.compile(r"(^\|.*\n?)+(\n(^\|.*\n?)+)*", re.MULTILINE)
    page = each.sub(lambda old: f"{next(left, old[0].rstrip())}\n", page)
    page += "".join(f"\n{table}\n" for table in left)
    path.write_text(page, "utf-8")
