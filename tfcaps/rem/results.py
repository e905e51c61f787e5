"""Results of measures: a table to print, and JSON to save."""

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from tfcaps.files import write_atomically


class Result:
    """The base of dataclasses of measures, and of properties that are told."""

    told: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns all measures, ready for JSON."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
        }
        fields |= {name: getattr(self, name) for name in self.told}
        return {
            name: value.to_dict() if isinstance(value, Result) else value
            for name, value in fields.items()
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_dict()` to a JSON file, which appears complete."""
        with write_atomically(Path(path), "w") as file:
            json.dump(self.to_dict(), file, indent=2)
            file.write("\n")


def lines_of(rows: Iterable[tuple[str, str | None]]) -> list[str]:
    """Returns a line for each name and value, but for values of `None`."""
    known = [(name, value) for name, value in rows if value is not None]
    width = max(len(name) for name, _ in known)
    return [f"{name:<{width}}  {value}" for name, value in known]


def percent(share: float | None, digits: int = 1) -> str | None:
    """Returns a share in per cent, `None` of one that is not known."""
    return None if share is None else f"{100 * share:.{digits}f} %"
