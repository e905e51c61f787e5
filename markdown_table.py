"""Writes a table in Markdown; shared by the commands."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


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

    The words around them stay; they are written there by hand.
    """
    page = path.read_text("utf-8") if path.exists() else f"# {path.stem}\n"
    left = iter(tables)
    each = re.compile(r"(^\|.*\n?)+", re.MULTILINE)
    page = each.sub(lambda old: f"{next(left, old[0].rstrip())}\n", page)
    page += "".join(f"\n{table}\n" for table in left)
    path.write_text(page, "utf-8")
