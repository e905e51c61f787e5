"""Aims of the benchmarks, and the measured values."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_NOT_RUN = "not run"
UNMEASURED = "not measurable here"


class Aim(NamedTuple):
    """A row of the table of aims.

    Attributes:
        what: What is compared.
        aim: The figure to reach.
        part: The part of the benchmarks that tells.
        figure: Function from the part's result to the figure reached; `None`
            if it was not measured, `UNMEASURED` if it cannot be.
        form: How a figure is written.
    """

    what: str
    aim: str
    part: str
    figure: Callable[[Mapping[str, Any]], float | str | None]
    form: str = "{:.2f}"


def figures(parts: Mapping[str, Any]) -> dict[str, float]:
    """Returns what was reached at full size, by what is compared."""
    reached = {
        aim.what: aim.figure(parts[aim.part]["result"])
        for aim in _AIMS
        if aim.part in parts and not parts[aim.part]["settings"]["quick"]
    }
    return {
        what: figure
        for what, figure in reached.items()
        if isinstance(figure, float)
    }


def rows(
    parts: Mapping[str, Any], machines: Sequence[Mapping[str, Any]] = ()
) -> list[tuple[str, ...]]:
    """Returns the table of aims for the parts that have been run.

    Args:
        parts: For each part its `result` and `settings`.
        machines: What machines reached on their days, each its `figures`.
    """
    head = ("what", "aim", "reached", "days", "median", "least", "most")
    table: list[tuple[str, ...]] = [head]
    for aim in _AIMS:
        reached = _reached(aim, parts.get(aim.part))
        every = [
            machine["figures"][aim.what]
            for machine in machines
            if aim.what in machine["figures"]
        ]
        spread = (
            [statistics.median(every), min(every), max(every)] if every else []
        )
        shown = [aim.form.format(x) for x in spread] or ["–"] * 3
        table.append((aim.what, aim.aim, reached, str(len(every)), *shown))
    return table


def _reached(aim: Aim, part: Mapping[str, Any] | None) -> str:
    figure = None if part is None else aim.figure(part["result"])
    if part is None or figure is None:
        return _NOT_RUN
    text = figure if isinstance(figure, str) else aim.form.format(figure)
    return f"{text} (quick)" if part["settings"]["quick"] else text


def formulation(
    result: Mapping[str, Any], gradient: str, name: str
) -> Mapping[str, Any]:
    """Returns the row of a formulation."""
    return next(
        row
        for row in result["rows"]
        if (row["gradient"], row["name"]) == (gradient, name)
    )


def _speed(gradient: str, name: str) -> Callable[[Mapping[str, Any]], float]:
    def figure(result: Mapping[str, Any]) -> float:
        other: float = formulation(result, gradient, name)["step"]["ms"]
        ours: float = formulation(result, gradient, "tfcaps")["step"]["ms"]
        return other / ours

    return figure


def _memory(gradient: str) -> Callable[[Mapping[str, Any]], float | str]:
    def figure(result: Mapping[str, Any]) -> float | str:
        other: float | None = formulation(result, gradient, "einsum")["peak_mb"]
        ours: float | None = formulation(result, gradient, "tfcaps")["peak_mb"]
        if ours is None or other is None:
            return UNMEASURED
        return ours / other

    return figure


def _training(
    name: str, *, share: bool = False
) -> Callable[[Mapping[str, Any]], float | None]:
    """Returns what tells a step's milliseconds, or its floor's share of it."""

    def figure(result: Mapping[str, Any]) -> float | None:
        for row in result["rows"]:
            if row["name"] == name:
                taken: float = row["training"]["network"]["ms"]
                floor: float = row["training"]["floor"]["ms"]
                return floor / taken if share else taken
        return None

    return figure


def _gigabytes(
    batch: int,
) -> Callable[[Mapping[str, Any]], float | str | None]:
    def figure(result: Mapping[str, Any]) -> float | str | None:
        for row in result["memory"]:
            if row["batch"] == batch:
                peak: float | None = row["peak_mb"]
                return UNMEASURED if peak is None else peak / 1000
        return None

    return figure


def _evaluation(result: Mapping[str, Any]) -> float:
    times = result["evaluation"]
    ratio: float = times["evaluate"]["ms"] / times["predict"]["ms"]
    return ratio


def _dictionary(result: Mapping[str, Any]) -> float:
    times = result["dictionary"]
    ratio: float = times["strings"]["ms"] / times["dictionary"]["ms"]
    return ratio


_STEP = "class layer, step"
_AIMS = (
    Aim(
        f"{_STEP}, couplings constant: speed against tiled",
        "9x",
        "formulations",
        _speed("last", "tiled"),
        "{:.2f}x",
    ),
    Aim(
        f"{_STEP}, couplings constant: speed against einsum",
        "4x",
        "formulations",
        _speed("last", "einsum"),
        "{:.2f}x",
    ),
    Aim(
        f"{_STEP}, full gradient: speed against einsum",
        "3.5x",
        "formulations",
        _speed("full", "einsum"),
        "{:.2f}x",
    ),
    Aim(
        f"{_STEP}, couplings constant: peak memory / that of votes held "
        "(einsum)",
        "0.25",
        "formulations",
        _memory("last"),
    ),
    Aim(
        f"{_STEP}, full gradient: peak memory / that of votes held (einsum)",
        "0.25",
        "formulations",
        _memory("full"),
    ),
    Aim(
        "DR-CapsNet, training step: time of its convolutions alone / its time",
        "0.95",
        "models",
        _training("dr_capsnet", share=True),
        "{:.3f}",
    ),
    Aim(
        "EM-CapsNet, two iterations, training step of 8 images of 32x32",
        "< 100 ms",
        "models",
        _training("em_capsnet"),
        "{:.0f} ms",
    ),
    Aim(
        "Eff-ConvCapsNet, training step of 8 images of 128x128",
        "< 270 ms",
        "models",
        _training("efficient_conv_capsnet"),
        "{:.0f} ms",
    ),
    Aim(
        "γ-CapsNet, full gradient, training step of 64 images of 28x28",
        "< 700 ms",
        "models",
        _training("gamma_capsnet"),
        "{:.0f} ms",
    ),
    Aim(
        "Eff-ConvCapsNet, 128x128, training step, batch 32: peak memory",
        "< 4 GB",
        "models",
        _gigabytes(32),
        "{:.2f} GB",
    ),
    Aim(
        "Eff-ConvCapsNet, 128x128, training step, batch 128: peak memory",
        "< 12 GB",
        "models",
        _gigabytes(128),
        "{:.2f} GB",
    ),
    Aim(
        "rem.evaluate: time / that of predict",
        "1.1",
        "rem",
        _evaluation,
    ),
    Aim(
        "CouplingDictionary: speed against keys as strings",
        "20x",
        "rem",
        _dictionary,
        "{:.1f}x",
    ),
)
