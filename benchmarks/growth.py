"""Growth of the class layer's time and memory with each of its sizes."""

from typing import Any

from benchmarks import memory
from benchmarks.formulations import Size, make_step
from benchmarks.measure import Settings, interleaved

CANDIDATES = ("tfcaps", "einsum")
_GRADIENT = "last"
_BASE = Size(batch=32)
# What each size is while the others are those of the base.
_VALUES = {
    "children": (144, 288, 576, 1152, 2304),
    "parents": (5, 10, 20, 40, 80),
    "dim": (4, 8, 16, 32, 64),
    "batch": (8, 16, 32, 64, 128),
    "iterations": (1, 2, 4, 8, 16),
}
_QUICK_BASE = Size(batch=2, children=144, iterations=2)
_QUICK_VALUES = {"children": (72, 144), "batch": (2, 4)}


def measure(settings: Settings) -> dict[str, Any]:
    """Times a step, and measures its memory, for each value of each size."""
    base = _QUICK_BASE if settings.quick else _BASE
    values = _QUICK_VALUES if settings.quick else _VALUES
    known: dict[Size, dict[str, Any]] = {}
    curves: dict[str, list[dict[str, Any]]] = {}
    for quantity, points in values.items():
        curves[quantity] = []
        for value in points:
            size = base._replace(**{quantity: value})
            if size not in known:
                known[size] = _point(f"{quantity} {value}", size, settings)
            curves[quantity].append({"value": value, **known[size]})
    return {"base": base._asdict(), "curves": curves}


def _point(title: str, size: Size, settings: Settings) -> dict[str, Any]:
    arguments: dict[str, Any] = {"gradient": _GRADIENT, "size": size._asdict()}
    timings = interleaved(
        f"growth, {title}",
        {name: make_step(name, **arguments) for name in CANDIDATES},
        settings.rounds,
    )
    for name, timing in timings.items():
        use = memory.of_step(
            f"growth, {title}: {name}",
            "benchmarks.formulations:make_step",
            steps=3,
            name=name,
            **arguments,
        )
        timing["peak_mb"] = use.peak_mb
    return timings
