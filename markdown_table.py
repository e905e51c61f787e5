"""Writes a table in Markdown; shared by the commands."""

import string
from collections.abc import Mapping, Sequence
from typing import Any

UNMEASURED = "not measurable here"


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
            `"{step[ms]:.2f}"`. A name may end in `!p` for per cent, `!M` for
            millions, or `!x` for 64x28x28x1. Numbers that are `None` were not
            measurable.
        left: Int. How many columns are aligned to the left. Defaults to `1`.
    """

    def cell(form: str, record: Mapping[str, Any]) -> str:
        try:
            return _Formatter().vformat(form, (), record)
        except TypeError:  # `None` has no digits
            return UNMEASURED

    rows = [[cell(form, record) for _, form in columns] for record in records]
    return markdown([[head for head, _ in columns], *rows], left=left)


class _Formatter(string.Formatter):
    """Knows the units of `table`."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Returns a value in the unit that stands behind its name."""
        if conversion == "x":
            return "x".join(map(str, value))
        scale = {"p": 100.0, "M": 1e-6}.get(conversion)
        return value if scale is None else scale * value
