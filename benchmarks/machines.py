"""What benchmarks have reached on several machines and days."""

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
        for machine in known:
            if machine.keys() != {*_KEYS, "figures"}:
                raise ValueError
            for figure in machine["figures"].values():
                float(figure)
        return known
    except (ValueError, AttributeError, TypeError):
        pass
    raise UserError(f"{path} is not what this command writes; remove it.")


def added(
    known: Sequence[Machine],
    parts: Mapping[str, Any],
    described: Mapping[str, Any],
) -> list[Machine]:
    """Returns the machines with the figures of this one today.

    Args:
        known: What earlier runs left. Figures of this machine and day are
            replaced by those measured again, and the others kept.
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
    figures: dict[str, float] = {}
    others = []
    for machine in known:
        if all(machine[key] == own[key] for key in _KEYS):
            figures |= machine["figures"]
        else:
            others.append(machine)
    figures |= aims.figures(here)
    return [*others, {**own, "figures": figures}] if figures else others


def line(machine: Machine) -> str:
    """Returns a machine and its day as an item of a list in Markdown."""
    units = ", ".join(machine["vector_units"]) or "vector units not recorded"
    return (
        f"- {machine['date']}: {machine['cpu']} ({units}), "
        f"{machine['cores']} cores"
    )
