"""Aims of the benchmarks, and the measured values."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_NOT_RUN = "not run"
UNMEASURED = "not measurable here"


class Aim(NamedTuple):
    """A row of the table of aims.

    Attributes:
        what: What is compared.
        aim: The figure to reach.
        part: The part of the benchmarks that tells.
        reached: Function from the part's result to the figure reached, as
            text, or `None` if it was not measured.
    """

    what: str
    aim: str
    part: str
    reached: Callable[[Mapping[str, Any]], str | None]


def rows(parts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the table of aims for the parts that have been run."""
    return [
        (aim.what, aim.aim, _reached(aim, parts.get(aim.part))) for aim in _AIMS
    ]


def _reached(aim: Aim, part: Mapping[str, Any] | None) -> str:
    if part is None:
        return _NOT_RUN
    text = aim.reached(part["result"])
    if text is None:
        return _NOT_RUN
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


def _speed(gradient: str, name: str) -> Callable[[Mapping[str, Any]], str]:
    def reached(result: Mapping[str, Any]) -> str:
        other = formulation(result, gradient, name)["step"]["ms"]
        ours = formulation(result, gradient, "tfcaps")["step"]["ms"]
        return f"{other / ours:.2f}x"

    return reached


def _memory(gradient: str) -> Callable[[Mapping[str, Any]], str]:
    def reached(result: Mapping[str, Any]) -> str:
        other = formulation(result, gradient, "einsum")
        ours = formulation(result, gradient, "tfcaps")
        if None in (ours["peak_mb"], other["peak_mb"]):
            return UNMEASURED
        peak = ours["peak_mb"] / other["peak_mb"]
        process = ours["process_mb"] / other["process_mb"]
        return f"{peak:.2f}, process {process:.2f}"

    return reached


def _network(name: str) -> Callable[[Mapping[str, Any]], str | None]:
    def reached(result: Mapping[str, Any]) -> str | None:
        for row in result["rows"]:
            if row["name"] == name:
                training = row["training"]
                share = training["floor"]["ms"] / training["network"]["ms"]
                return f"{share:.3f}"
        return None

    return reached


def _gigabytes(batch: int) -> Callable[[Mapping[str, Any]], str | None]:
    def reached(result: Mapping[str, Any]) -> str | None:
        for row in result["memory"]:
            if row["batch"] == batch:
                if row["peak_mb"] is None:
                    return UNMEASURED
                peak, process = (
                    row[key] / 1000 for key in ("peak_mb", "process_mb")
                )
                return f"{peak:.2f} GB, process {process:.2f} GB"
        return None

    return reached


def _evaluation(result: Mapping[str, Any]) -> str:
    times = result["evaluation"]
    return f"{times['evaluate']['ms'] / times['predict']['ms']:.2f}"


def _dictionary(result: Mapping[str, Any]) -> str:
    times = result["dictionary"]
    return f"{times['strings']['ms'] / times['dictionary']['ms']:.1f}x"


_STEP = "class layer, step"
_AIMS = (
    Aim(
        f"{_STEP}, couplings constant: speed against tiled",
        "9x",
        "formulations",
        _speed("last", "tiled"),
    ),
    Aim(
        f"{_STEP}, couplings constant: speed against einsum",
        "4x",
        "formulations",
        _speed("last", "einsum"),
    ),
    Aim(
        f"{_STEP}, full gradient: speed against einsum",
        "4x",
        "formulations",
        _speed("full", "einsum"),
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
        _network("dr_capsnet"),
    ),
    Aim(
        "Eff-ConvCapsNet, 128x128, training step, batch 32: peak memory",
        "< 4 GB",
        "models",
        _gigabytes(32),
    ),
    Aim(
        "Eff-ConvCapsNet, 128x128, training step, batch 128: peak memory",
        "< 12 GB",
        "models",
        _gigabytes(128),
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
    ),
)
