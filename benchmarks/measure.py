"""Times candidates side by side, also in fresh processes, and writes tables."""

import datetime
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from markdown_table import table

# Shorter calls are repeated within a turn until it is about so long.
_TURN_SECONDS = 0.02
# No further turn is begun after so many seconds, but for the first three.
_SECONDS = 60.0
_FEWEST_ROUNDS = 3
_SHOWN = ("tensorflow", "jax", "keras")
_COLUMNS = (
    ("part", "{part}"),
    ("what", "{name}"),
    ("inputs", "{inputs}"),
    ("forward, ms", "{forward}"),
    ("ratio", "{forward_ratio}"),
    ("step, ms", "{step}"),
    ("ratio", "{step_ratio}"),
    ("peak, MB", "{peak_mb}"),
    ("images/s", "{per_second}"),
    ("p99, ms", "{p99_ms}"),
    ("ratio is to", "{base}"),
)
_OPTIONAL = {"peak_mb": ",.0f", "per_second": ",.0f", "p99_ms": ",.2f"}


class Settings(NamedTuple):
    """What the flags of the command say to every part."""

    rounds: int = 15  # turns of each candidate at most
    quick: bool = False  # small sizes, to see whether everything runs


class Row(NamedTuple):
    """What was measured of one thing."""

    name: str  # in its part
    inputs: Sequence[int]  # shape of what it is called with, the batch first
    forward: Mapping[str, Any]  # `ms`, `quartiles` and `rounds` of a call
    step: Mapping[str, Any]  # the same with gradients, of networks Adam
    base: str | None = None  # the name of what it is compared with
    peak_mb: float | None = None  # the most memory of training on a GPU
    per_second: float | None = None  # images that clients got answers for
    p99_ms: float | None = None  # what 99 of 100 answers took less than


def machine() -> dict[str, Any]:
    """Returns date, processor, and what a run notes of its environment."""
    from training.folder import environment

    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line for line in lines if line.startswith("model name")]
    cpu = names[0].partition(": ")[2] if names else platform.machine()
    today = datetime.date.today().isoformat()
    return {"date": today, "cpu": cpu, **environment()}


def origin(
    machine: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> str:
    """Returns the line that says when, where and of what something was run."""
    packages = machine["packages"]
    words = [
        *machine["accelerators"],
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}",
        f"{machine['cpu']}, {machine['cpus']} cores",
        f"backend {machine['backend']}",
        f"python {machine['python']}",
        *(f"{name} {packages[name]}" for name in _SHOWN if name in packages),
    ]
    if settings:
        words.append(f"at most {settings['rounds']} rounds")
        words += ["quick"] if settings["quick"] else []
    return f"{', '.join(words)}."


def table_of_rows(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Returns the table of rows, by the name of their part."""
    records = []
    for part, rows in parts.items():
        named = {row["name"]: row for row in rows}
        for row in rows:
            base = named.get(row["base"], row)
            cells = {"base": "" if base is row else base["name"]}
            for kind in ("forward", "step"):
                ms = row[kind] and row[kind]["ms"]
                cells[kind] = f"{ms:,.2f}" if ms else ""
                compared = ms and base is not row
                ratio = f"{ms / base[kind]['ms']:.2f}" if compared else ""
                cells[f"{kind}_ratio"] = ratio
            for key, form in _OPTIONAL.items():
                cells[key] = f"{row[key]:{form}}" if row.get(key) else ""
            inputs = "x".join(map(str, row["inputs"]))
            records.append({**row, **cells, "part": part, "inputs": inputs})
    return table(records, _COLUMNS, left=3)


def interleaved(
    title: str, candidates: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, dict[str, Any]]:
    """Calls candidates in turn, so that all meet the same load of the machine.

    Each is called twice before, which leaves out compiling. The first in a
    round is another one each time. Candidates block until they have finished.
    Returns for each `ms`, the median over at most so many rounds, `quartiles`,
    two such times, and `rounds`.
    """
    names = list(candidates)
    repeats = {}
    for name, candidate in candidates.items():
        candidate()
        once = _turn(candidate, 1)
        repeats[name] = max(1, math.ceil(_TURN_SECONDS / once))
    turns: dict[str, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    for number in range(rounds):
        late = time.perf_counter() - start > _SECONDS
        if late and number >= _FEWEST_ROUNDS:
            break
        first = number % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(1e3 * _turn(candidates[name], repeats[name]))
    import numpy as np  # wrong flags are answered before

    timings = {}
    for name, times in turns.items():
        low, median, high = np.percentile(times, (25, 50, 75)).tolist()
        timings[name] = {
            "ms": median,
            "quartiles": [low, high],
            "rounds": len(times),
        }
        print(f"{title}: {name} {median:.2f} ms", flush=True)
    return timings


def _turn(candidate: Callable[[], Any], repeats: int) -> float:
    """Returns the seconds of one call."""
    start = time.perf_counter()
    for _ in range(repeats):
        candidate()
    return (time.perf_counter() - start) / repeats


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of a module in a process of its own."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(function, *arguments).result()
