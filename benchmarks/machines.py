"""What benchmarks have reached on several machines, each on its day."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import aims
from cli import UserError

FILE = "benchmarks_machines.json"
# What tells a machine on its day from others.
_KEYS = ("date", "cpu", "vector_units", "cores")

# The keys above, and `figures`, see `benchmarks.aims.figures`.
Machine = dict[str, Any]


def read(folder: Path) -> list[Machine]:
    """Returns what earlier runs left in a folder.

    Raises:
        UserError: If its file is none.
    """
    path = folder / FILE
    if not path.exists():
        return []
    try:
        known: list[Machine] = json.loads(path.read_text("utf-8"))
        if all(machine.keys() == {*_KEYS, "figures"} for machine in known):
            return known
    except (ValueError, AttributeError, TypeError):
        pass
    raise UserError(f"{path} is not what this command writes; remove it.")


def added(
    known: Sequence[Machine],
    parts: Mapping[str, Any],
    described: Mapping[str, Any],
) -> list[Machine]:
    """Returns the machines with this one, in the place of itself today.

    Args:
        known: Other machines and days.
        parts: For each part its `result`, `settings` and `machine`; those of
            other machines and days are left out.
        described: This machine.
    """
    own = {key: described[key] for key in _KEYS}
    here = {
        name: part
        for name, part in parts.items()
        if all(part["machine"].get(key) == own[key] for key in _KEYS)
    }
    others = [m for m in known if any(m[key] != own[key] for key in _KEYS)]
    figures = aims.figures(here)
    return [*others, {**own, "figures": figures}] if figures else others


def line(machine: Machine) -> str:
    """Returns a machine and its day as an item of a list in Markdown."""
    units = ", ".join(machine["vector_units"]) or "vector units not recorded"
    return (
        f"- {machine['date']}: {machine['cpu']} ({units}), "
        f"{machine['cores']} cores"
    )
