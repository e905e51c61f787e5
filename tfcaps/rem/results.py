"""Results of measures: a table to print, and JSON to save."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from tfcaps.files import write_atomically

# The name of a measure, and what it is; `None` of one that is not known.
Row = tuple[str, str | None]


class Result:
    """The base of dataclasses of measures.

    Attributes:
        properties: Names of those that `to_dict` has beside the fields.
        words: What makes its rows, and its verdict, of
            `tfcaps.rem.evaluation.words`.
    """

    properties: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[tuple[Callable[[Any], Any], ...]]

    @property
    def rows(self) -> list[Row]:
        """The table that is printed: names and values as text."""
        rows: list[Row] = self.words[0](self)
        return rows

    @property
    def verdict(self) -> str:
        """What it says in sentences, printed below the table."""
        return str(self.words[1](self)) if self.words[1:] else ""

    def to_dict(self) -> dict[str, Any]:
        """Returns all measures, ready for JSON."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
        }
        fields |= {name: getattr(self, name) for name in self.properties}
        return {
            name: value.to_dict() if isinstance(value, Result) else value
            for name, value in fields.items()
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_dict()` to a JSON file, which appears complete."""
        with write_atomically(Path(path), "w") as file:
            json.dump(self.to_dict(), file, indent=2)
            file.write("\n")

    def __str__(self) -> str:
        return "\n".join([*lines_of(self.rows), "", self.verdict]).rstrip()


def lines_of(rows: Iterable[Row]) -> list[str]:
    """Returns a line for each name and value, but for values of `None`."""
    known = [(name, value) for name, value in rows if value is not None]
    width = max(len(name) for name, _ in known)
    return [f"{name:<{width}}  {value}" for name, value in known]


def percent(share: float | None, digits: int = 1) -> str | None:
    """Returns a share in per cent, `None` of one that is not known."""
    return None if share is None else f"{100 * share:.{digits}f} %"
