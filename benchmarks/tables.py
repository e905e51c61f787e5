"""Writes results as JSON and, from that alone, as tables in Markdown."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import UserError
from markdown_table import markdown

ROOT = Path(__file__).resolve().parents[1]
UNMEASURED = "not measurable here"

_INTRODUCTION = """\
Times are medians over rounds in which all candidates of a comparison take
turns. A step is the forward and the backward pass. Memory is in megabytes (10^6
bytes) above what the process held before, in a process of its own after a first
step: "peak" is the most that one step needs, all free memory being given back
before it; "process" is the most that the process holds over many steps, and
includes what the allocator keeps. Figures differ from machine to machine, and
with what else it does; those marked "quick" are of small sizes and say nothing.
"""
FLOOR = (
    "The floor is the same network up to the children of its first routed "
    "layer, with one dense layer instead of all that follows; the share is the "
    "floor's time / the network's."
)
_FORMULATIONS = (
    ("gradient", "{gradient}"),
    ("formulation", "{name}"),
    ("forward, ms", "{values[0]:.2f}"),
    ("ratio", "{ratios[0]:.2f}"),
    ("step, ms", "{values[1]:.2f}"),
    ("ratio", "{ratios[1]:.2f}"),
    ("peak, MB", "{values[2]:,.0f}"),
    ("ratio", "{ratios[2]:.2f}"),
    ("process, MB", "{values[3]:,.0f}"),
    ("ratio", "{ratios[3]:.2f}"),
)
_LAYERS = (
    ("layer", "{name}"),
    ("inputs", "{inputs}"),
    ("forward, ms", "{forward[ms]:.2f}"),
    ("step, ms", "{step[ms]:.2f}"),
    ("peak, MB", "{peak_mb:,.0f}"),
)
_NETWORKS = (
    ("network", "{name}"),
    ("images", "{images}"),
    ("trained / s", "{training[rate]:,.1f}"),
    ("floor", "{training[floor_rate]:,.1f}"),
    ("share", "{training[share]:.3f}"),
    ("predicted / s", "{prediction[rate]:,.1f}"),
    ("floor", "{prediction[floor_rate]:,.1f}"),
    ("share", "{prediction[share]:.3f}"),
)
_MEMORY = (
    ("training", "{name}"),
    ("batch", "{batch}"),
    ("peak, MB", "{peak_mb:,.0f}"),
    ("process, MB", "{process_mb:,.0f}"),
    ("s / step", "{seconds:.2f}"),
)
_REM = (
    ("what", "{what}"),
    ("ms", "{ms:,.1f}"),
    ("beside it", "{beside}"),
    ("ms", "{other:,.1f}"),
    ("ratio", "{ratio:.2f}"),
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
            `"{step[ms]:.2f}"`. Numbers that are `None` were not measurable.
        left: Int. How many columns are aligned to the left. Defaults to `1`.
    """

    def cell(form: str, record: Mapping[str, Any]) -> str:
        try:
            return form.format_map(record)
        except TypeError:  # `None` has no digits
            return UNMEASURED

    rows = [[cell(form, record) for _, form in columns] for record in records]
    return markdown([[head for head, _ in columns], *rows], left=left)


def page(parts: Mapping[str, Any]) -> str:
    """Returns the page of `benchmarks.run`, a section for each part.

    Args:
        parts: For each part its `result`, `settings` and `machine`.
    """
    sections = ["# Benchmarks", _INTRODUCTION.rstrip()]
    for name, write_section in _SECTIONS.items():
        if part := parts.get(name):
            about = origin(part["machine"], part["settings"])
            sections += [f"## {name}", *write_section(part["result"]), about]
    return "\n\n".join(sections) + "\n"


def origin(
    machine: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> str:
    """Returns the line that says when, where and of what something was run."""
    versions = (f"{k} {v}" for k, v in machine["versions"].items())
    words = [
        machine["date"],
        f"commit {machine['commit'] or 'unknown'}",
        machine["cpu"],
        f"{machine['cores']} cores",
        *versions,
    ]
    if settings:
        words.append(f"at most {settings['rounds']} rounds")
        words += ["quick"] if settings["quick"] else []
    return f"{', '.join(words)}."


def sides(shape: Sequence[int]) -> str:
    """Returns a shape as in 64x28x28x1."""
    return "x".join(map(str, shape))


def with_rates(row: Mapping[str, Any]) -> dict[str, Any]:
    """Adds images per second, and shares of the floor, to a network's times."""
    rates = {}
    for part in ("training", "prediction"):
        ms, floor = (row[part][key]["ms"] for key in ("network", "floor"))
        rate, floor_rate = (1000 * row["images"][0] / x for x in (ms, floor))
        rates[part] = {"ms": ms, "floor": floor, "share": floor / ms}
        rates[part] |= {"rate": rate, "floor_rate": floor_rate}
    return {**row, **rates, "images": sides(row["images"])}


def _formulations(result: Mapping[str, Any]) -> list[str]:
    size, values = result["size"], {}
    for row in result["rows"]:
        values[row["gradient"], row["name"]] = [
            row["forward"]["ms"],
            row["step"]["ms"],
            row["peak_mb"],
            row["process_mb"],
        ]
    records = []
    for (gradient, name), found in values.items():
        pairs = zip(found, values[gradient, "tfcaps"], strict=True)
        ratios = [a / b if a and b else None for a, b in pairs]
        record = {"gradient": gradient, "name": name, "values": found}
        records.append({**record, "ratios": ratios})
    return [
        f"A batch of {size['batch']}, {size['children']} children of "
        f"{size['child_dim']} components, {size['parents']} parents of "
        f"{size['dim']}, dynamic routing with {size['iterations']} iterations. "
        "Ratios are to tfcaps with the same gradient.",
        table(records, _FORMULATIONS, left=2),
    ]


def _layers(result: Mapping[str, Any]) -> list[str]:
    rows = [{**row, "inputs": sides(row["inputs"])} for row in result["rows"]]
    return [table(rows, _LAYERS, left=2)]


def _models(result: Mapping[str, Any]) -> list[str]:
    return [
        f"Images per second. {FLOOR}",
        table([with_rates(row) for row in result["rows"]], _NETWORKS, left=2),
        table(result["memory"], _MEMORY),
    ]


def _rem(result: Mapping[str, Any]) -> list[str]:
    trees, keys = result["evaluation"], result["dictionary"]
    rows = [
        {
            "what": f"rem.evaluate on {trees['images']:,} images",
            "ms": trees["evaluate"]["ms"],
            "beside": "predict",
            "other": trees["predict"]["ms"],
        },
        {
            "what": f"{keys['rows']:,} keys of {keys['codes']} codes as "
            "strings",
            "ms": keys["strings"]["ms"],
            "beside": "CouplingDictionary",
            "other": keys["dictionary"]["ms"],
        },
    ]
    rows = [{**row, "ratio": row["ms"] / row["other"]} for row in rows]
    sections = [table(rows, _REM)]
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


def add_out(parser: argparse.ArgumentParser) -> None:
    """Adds the flag that says where the two files are."""
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "results",
        metavar="FOLDER",
        help="where the two files are (default: results/)",
    )


def read(path: Path, empty: Any) -> Any:
    """Returns what an earlier run left in a file, `empty` if there is none.

    Raises:
        UserError: If it is not JSON of the type of `empty`.
    """
    if not path.exists():
        return empty
    try:
        known = json.loads(path.read_text("utf-8"))
    except ValueError:
        known = None
    if not isinstance(known, type(empty)):
        raise UserError(f"{path} is not what this command writes; remove it.")
    return known


def write(folder: Path, name: str, data: Any, text: str) -> None:
    """Writes data and the page made of them, `name.json` and `name.md`."""
    from tfcaps.files import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    with write_atomically(folder / f"{name}.json", "w") as file:
        json.dump(data, file, indent=1)
        file.write("\n")
    with write_atomically(folder / f"{name}.md", "w") as file:
        file.write(text)
    print(f"written: {folder / f'{name}.md'}", flush=True)
