"""Writes the Markdown page of results, from its data alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import aims, machines
from markdown_table import markdown

FIGURE = "benchmarks_growth.png"

_INTRODUCTION = """\
Times are medians over rounds in which all candidates of a comparison take
turns. A step is the forward and the backward pass. Memory is in megabytes (10^6
bytes) above what the process held before, in a process of its own after a first
step: "peak" is the most that one step needs, all free memory being given back
before it; "process" is the most that the process holds over many steps, and
includes what the allocator keeps. Results marked "quick" are of small sizes,
which say nothing about the aims.

Figures differ from machine to machine, and with what else it does. "Reached" is
the last run; the median, the least and the most are those of full runs on the
machines and days below."""


def page(
    parts: Mapping[str, Any], known: Sequence[machines.Machine] = ()
) -> str:
    """Returns the page: the aims, then a section for each part that was run.

    Args:
        parts: For each part its `result`, `settings` and `machine`.
        known: What several machines have reached.
    """
    sections = [
        "# Benchmarks",
        _INTRODUCTION,
        markdown(aims.rows(parts, known)),
        "\n".join(map(machines.line, known)),
    ]
    for name, write in _SECTIONS.items():
        if name in parts:
            part = parts[name]
            sections += [f"## {name}", write(part["result"]), _origin(part)]
    return "\n\n".join(filter(None, sections)) + "\n"


def _origin(part: Mapping[str, Any]) -> str:
    """Returns the line that says when, where and of what a part was run."""
    machine, settings = part["machine"], part["settings"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    quick = ", quick" if settings["quick"] else ""
    return (
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}, "
        f"{machine['cpu']}, {machine['cores']} cores, {versions}, at most "
        f"{settings['rounds']} rounds{quick}."
    )


def _formulations(result: Mapping[str, Any]) -> str:
    head = (
        "gradient",
        "formulation",
        "forward, ms",
        "ratio",
        "step, ms",
        "ratio",
        "peak, MB",
        "ratio",
        "process, MB",
        "ratio",
    )
    rows = [head]
    for row in result["rows"]:
        ours = aims.formulation(result, row["gradient"], "tfcaps")
        rows.append(
            (
                row["gradient"],
                row["name"],
                f"{row['forward']['ms']:.2f}",
                _ratio(row["forward"]["ms"], ours["forward"]["ms"]),
                f"{row['step']['ms']:.2f}",
                _ratio(row["step"]["ms"], ours["step"]["ms"]),
                _megabytes(row["peak_mb"]),
                _ratio(row["peak_mb"], ours["peak_mb"]),
                _megabytes(row["process_mb"]),
                _ratio(row["process_mb"], ours["process_mb"]),
            )
        )
    size = result["size"]
    text = (
        f"A batch of {size['batch']}, {size['children']} children of "
        f"{size['child_dim']} components, {size['parents']} parents of "
        f"{size['dim']}, dynamic routing with {size['iterations']} iterations. "
        "Ratios are to tfcaps with the same gradient."
    )
    return f"{text}\n\n{markdown(rows, left=2)}"


def _layers(result: Mapping[str, Any]) -> str:
    rows = [("layer", "inputs", "forward, ms", "step, ms", "peak, MB")]
    rows += [
        (
            row["name"],
            _sides(row["inputs"]),
            f"{row['forward']['ms']:.2f}",
            f"{row['step']['ms']:.2f}",
            _megabytes(row["peak_mb"]),
        )
        for row in result["rows"]
    ]
    return markdown(rows, left=2)


def _models(result: Mapping[str, Any]) -> str:
    rows = [
        (
            "network",
            "images",
            "trained / s",
            "floor",
            "share",
            "predicted / s",
            "floor",
            "share",
        )
    ]
    for row in result["rows"]:
        cells = []
        for times in (row["training"], row["prediction"]):
            network, floor = (
                1000.0 * row["images"][0] / times[key]["ms"]
                for key in ("network", "floor")
            )
            cells += [
                f"{network:,.1f}",
                f"{floor:,.1f}",
                f"{network / floor:.3f}",
            ]
        rows.append((row["name"], _sides(row["images"]), *cells))
    memories = [("training", "batch", "peak, MB", "process, MB", "s / step")]
    memories += [
        (
            row["name"],
            str(row["batch"]),
            _megabytes(row["peak_mb"]),
            _megabytes(row["process_mb"]),
            f"{row['seconds']:.2f}",
        )
        for row in result["memory"]
    ]
    text = (
        "Images per second. The floor is the same network up to the children "
        "of its first routed layer, with one dense layer instead of all that "
        "follows; the share is how much of the floor's speed the network "
        "reaches."
    )
    return f"{text}\n\n{markdown(rows, left=2)}\n\n{markdown(memories)}"


def _growth(result: Mapping[str, Any]) -> str:
    rows = []
    for quantity, points in result["curves"].items():
        for point in points:
            names = [name for name in point if name != "value"]
            rows.append(
                (
                    quantity,
                    str(point["value"]),
                    *(f"{point[name]['ms']:.2f}" for name in names),
                    *(_megabytes(point[name]["peak_mb"]) for name in names),
                )
            )
    head = (
        "varied",
        "value",
        *(f"{name}, ms" for name in names),
        *(f"{name}, peak MB" for name in names),
    )
    base = ", ".join(f"{k} {v}" for k, v in result["base"].items())
    text = (
        "A step of the class layer, couplings constant, one size varied and "
        f"the others as they are here: {base}."
    )
    table = markdown([head, *rows])
    return f"{text}\n\n{table}\n\n![Growth of time and memory]({FIGURE})"


def _rem(result: Mapping[str, Any]) -> str:
    evaluation, dictionary = result["evaluation"], result["dictionary"]
    rows = [
        ("what", "ms", "beside it", "ms", "ratio"),
        _pair(
            f"rem.evaluate on {evaluation['images']:,} images",
            evaluation["evaluate"]["ms"],
            "predict",
            evaluation["predict"]["ms"],
        ),
        _pair(
            f"{dictionary['rows']:,} keys of {dictionary['codes']} codes as "
            "strings",
            dictionary["strings"]["ms"],
            "CouplingDictionary",
            dictionary["dictionary"]["ms"],
        ),
    ]
    table = markdown(rows)
    if "stream" not in result:
        return table
    stream = result["stream"]
    return (
        f"{table}\n\n{stream['samples']:,} samples through a "
        f"CouplingDictionary: {stream['seconds']:.1f} s, peak "
        f"{_megabytes(stream['peak_mb'])} MB."
    )


_SECTIONS = {
    "formulations": _formulations,
    "layers": _layers,
    "models": _models,
    "growth": _growth,
    "rem": _rem,
}


def _pair(what: str, ms: float, beside: str, other: float) -> tuple[str, ...]:
    return what, f"{ms:,.1f}", beside, f"{other:,.1f}", _ratio(ms, other)


def _ratio(value: float | None, base: float | None) -> str:
    if value is None or base is None:
        return aims.UNMEASURED
    return f"{value / base:.2f}"


def _megabytes(value: float | None) -> str:
    return aims.UNMEASURED if value is None else f"{value:,.0f}"


def _sides(shape: list[int]) -> str:
    return "x".join(map(str, shape))
