"""Writes results as tables in Markdown, from their data alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from markdown_table import table

_INTRODUCTION = """\
# Benchmarks

Times are medians over rounds in which all candidates of a comparison take
turns. A step is the forward and the backward pass. Memory is in megabytes (10^6
bytes) above what the process held before, in a process of its own after a first
step: "peak" is the most that one step needs, all free memory being given back
before it; "process" is the most that the process holds over many steps, and
includes what the allocator keeps. A ratio is of times, to the row that is
named. Formulations are a class layer of 10 parents of 16 components, dynamic
routing with 3 iterations. A floor is the same network up to the children of its
first routed layer, with one dense layer instead of all that follows. Figures
differ from machine to machine, and with what else it does; those marked "quick"
are of small sizes."""
_COLUMNS = (
    ("part", "{part}"),
    ("what", "{name}"),
    ("inputs", "{inputs!x}"),
    ("forward, ms", "{forward}"),
    ("ratio", "{ratios[forward]}"),
    ("step, ms", "{step}"),
    ("ratio", "{ratios[step]}"),
    ("peak, MB", "{peak_mb}"),
    ("process, MB", "{process_mb}"),
    ("ratio is to", "{base}"),
)


def origin(
    machine: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> str:
    """Returns the line that says when, where and of what something was run."""
    words = [
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}",
        f"{machine['cpu']}, {machine['cores']} cores",
        *(f"{name} {version}" for name, version in machine["versions"].items()),
    ]
    if settings:
        words.append(f"at most {settings['rounds']} rounds")
        words += ["quick"] if settings["quick"] else []
    return f"{', '.join(words)}."


def page(parts: Mapping[str, Any]) -> str:
    """Returns the page of `benchmarks.run`: one table, and its origins.

    Args:
        parts: For each part its `rows`, `settings` and `machine`.
    """
    origins = [
        f"- {part}: {origin(content['machine'], content['settings'])}"
        for part, content in parts.items()
    ]
    sections = [_INTRODUCTION, of_rows(parts), "\n".join(origins)]
    return "\n\n".join(sections) + "\n"


def of_rows(parts: Mapping[str, Any]) -> str:
    """Returns the table of the `rows` of all parts."""
    records = [
        _record(part, row, content["rows"])
        for part, content in parts.items()
        for row in content["rows"]
    ]
    return table(records, _COLUMNS, left=3)


def _record(
    part: str, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the cells of a row as text, empty where nothing is asked for."""
    base = next((r for r in rows if r["name"] == row["base"]), None)
    record: dict[str, Any] = {**row, "part": part, "ratios": {}}
    for kind in ("forward", "step"):
        ms, ratio = "", ""
        if row[kind]:
            ms = f"{row[kind]['ms']:,.2f}"
            if base not in (None, row):
                ratio = f"{row[kind]['ms'] / base[kind]['ms']:.2f}"
        record[kind], record["ratios"][kind] = ms, ratio
    for kind in ("peak_mb", "process_mb"):
        record[kind] = "" if row[kind] is None else f"{row[kind]:,.0f}"
    record["base"] = "" if base in (None, row) else row["base"]
    return record
