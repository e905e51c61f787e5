"""Writes results as tables in Markdown, from their data alone."""

from collections.abc import Mapping
from typing import Any

from markdown_table import UNMEASURED, table

FLOOR = (
    "The floor is the same network up to the children of its first routed "
    "layer, with one dense layer instead of all that follows; the share is the "
    "floor's time / the network's."
)
_INTRODUCTION = """\
# Benchmarks

Times are medians over rounds in which all candidates of a comparison take
turns. A step is the forward and the backward pass. Memory is in megabytes (10^6
bytes) above what the process held before, in a process of its own after a first
step: "peak" is the most that one step needs, all free memory being given back
before it; "process" is the most that the process holds over many steps, and
includes what the allocator keeps. Figures differ from machine to machine, and
with what else it does; those marked "quick" are of small sizes."""
_FORMULATIONS = """\
A batch of {batch}, {children} children of {child_dim} components, {parents} \
parents of {dim}, dynamic routing with {iterations} iterations. Ratios are to \
tfcaps with the same gradient."""


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


def with_rates(row: Mapping[str, Any]) -> dict[str, Any]:
    """Adds images per second, and shares of the floor, to a network's times."""
    rates = {}
    for part in ("training", "prediction"):
        ms, floor = (row[part][key]["ms"] for key in ("network", "floor"))
        rate, floor_rate = (1000 * row["images"][0] / x for x in (ms, floor))
        rates[part] = {"ms": ms, "floor": floor, "share": floor / ms}
        rates[part] |= {"rate": rate, "floor_rate": floor_rate}
    return {**row, **rates}


def page(parts: Mapping[str, Any]) -> str:
    """Returns the page of `benchmarks.run`, a section for each part.

    Args:
        parts: For each part its `result`, `settings` and `machine`.
    """
    sections = [_INTRODUCTION]
    for name, write_section in _SECTIONS.items():
        if part := parts.get(name):
            about = origin(part["machine"], part["settings"])
            sections += [f"## {name}", *write_section(part["result"]), about]
    return "\n\n".join(sections) + "\n"


def _formulations(result: Mapping[str, Any]) -> list[str]:
    records = []
    for row in result["rows"]:
        values = [row["forward"]["ms"], row["step"]["ms"]]
        values += [row["peak_mb"], row["process_mb"]]
        records.append({**row, "values": values})
    ours = {x["gradient"]: x for x in records if x["name"] == "tfcaps"}
    for record in records:
        base = ours[record["gradient"]]["values"]
        pairs = zip(record["values"], base, strict=True)
        record["ratios"] = [a / b if a and b else None for a, b in pairs]
    columns = [("gradient", "{gradient}"), ("formulation", "{name}")]
    for k, (head, digits) in enumerate(
        (
            ("forward, ms", ".2f"),
            ("step, ms", ".2f"),
            ("peak, MB", ",.0f"),
            ("process, MB", ",.0f"),
        )
    ):
        columns.append((head, f"{{values[{k}]:{digits}}}"))
        columns.append(("ratio", f"{{ratios[{k}]:.2f}}"))
    text = _FORMULATIONS.format(**result["size"])
    return [text, table(records, columns, left=2)]


def _layers(result: Mapping[str, Any]) -> list[str]:
    columns = (
        ("layer", "{name}"),
        ("inputs", "{inputs!x}"),
        ("forward, ms", "{forward[ms]:.2f}"),
        ("step, ms", "{step[ms]:.2f}"),
        ("peak, MB", "{peak_mb:,.0f}"),
    )
    return [table(result["rows"], columns, left=2)]


def _models(result: Mapping[str, Any]) -> list[str]:
    columns = (
        ("network", "{name}"),
        ("images", "{images!x}"),
        ("trained / s", "{training[rate]:,.1f}"),
        ("floor", "{training[floor_rate]:,.1f}"),
        ("share", "{training[share]:.3f}"),
        ("predicted / s", "{prediction[rate]:,.1f}"),
        ("floor", "{prediction[floor_rate]:,.1f}"),
        ("share", "{prediction[share]:.3f}"),
    )
    memory = (
        ("training", "{name}"),
        ("batch", "{batch}"),
        ("peak, MB", "{peak_mb:,.0f}"),
        ("process, MB", "{process_mb:,.0f}"),
        ("s / step", "{seconds:.2f}"),
    )
    return [
        f"Images per second. {FLOOR}",
        table([with_rates(row) for row in result["rows"]], columns, left=2),
        table(result["memory"], memory),
    ]


def _rem(result: Mapping[str, Any]) -> list[str]:
    trees, keys = result["evaluation"], result["dictionary"]
    names = ("what", "ms", "beside", "other")
    rows = (
        (
            f"rem.evaluate on {trees['images']:,} images",
            trees["evaluate"]["ms"],
            "predict",
            trees["predict"]["ms"],
        ),
        (
            f"{keys['rows']:,} keys of {keys['codes']} codes as strings",
            keys["strings"]["ms"],
            "CouplingDictionary",
            keys["dictionary"]["ms"],
        ),
    )
    columns = (
        ("what", "{what}"),
        ("ms", "{ms:,.1f}"),
        ("beside it", "{beside}"),
        ("ms", "{other:,.1f}"),
        ("ratio", "{ratio:.2f}"),
    )
    records = [
        {**dict(zip(names, row, strict=True)), "ratio": row[1] / row[3]}
        for row in rows
    ]
    sections = [table(records, columns)]
    if stream := result.get("stream"):
        peak = stream["peak_mb"]
        held = UNMEASURED if peak is None else f"{peak:,.0f} MB"
        sections.append(
            f"{stream['samples']:,} samples through a CouplingDictionary: "
            f"{stream['seconds']:.1f} s, peak {held}."
        )
    return sections


_SECTIONS = {
    "formulations": _formulations,
    "layers": _layers,
    "models": _models,
    "rem": _rem,
}
