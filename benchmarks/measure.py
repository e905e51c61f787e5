"""Times candidates side by side, and calls functions in fresh processes.

It knows nothing of what they compute with.
"""

import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).resolve().parents[1]
# Shorter calls are repeated within a turn until it is about so long.
_TURN_SECONDS = 0.02
_FEWEST_ROUNDS = 3


class Settings(NamedTuple):
    """What the flags of the command say to every part.

    Attributes:
        rounds: Turns of each candidate at most.
        quick: Small sizes, for a look at whether everything runs.
        large: Also what takes gigabytes or many minutes.
    """

    rounds: int = 15
    quick: bool = False
    large: bool = False


class Row(NamedTuple):
    """What was measured of one thing.

    Attributes:
        name: What it is, a name in its part.
        inputs: Shape of what it is called with, the batch first.
        forward: `ms`, `quartiles` and `rounds` of a call.
        step: The same with gradients, and for networks the optimiser.
        base: The name of what it is compared with.
        peak_mb: The most memory that a step needs, see `memory.Use`.
        process_mb: The most that the process holds over many steps.
    """

    name: str
    inputs: Sequence[int]
    forward: Mapping[str, Any] | None = None
    step: Mapping[str, Any] | None = None
    base: str | None = None
    peak_mb: float | None = None
    process_mb: float | None = None


def interleaved(
    title: str,
    candidates: Mapping[str, Callable[[], Any]],
    rounds: int,
    seconds: float = 60.0,
) -> dict[str, dict[str, Any]]:
    """Calls candidates in turn, so that all meet the same load of the machine.

    Each is called twice before, which leaves out compiling. The first in a
    round is another one each time.

    Args:
        title: What is measured; the first word of the lines printed.
        candidates: Functions by name, which block until they have finished.
        rounds: Turns of each candidate.
        seconds: No further round is begun after them, but for the first three.
            Defaults to `60.0`.

    Returns:
        For each name `ms`, the median over rounds, `quartiles`, a list of two
        such times, and `rounds`.
    """
    names = list(candidates)
    repeats = {name: _repeats(candidates[name]) for name in names}
    turns: dict[str, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    for number in range(rounds):
        late = time.perf_counter() - start > seconds
        if late and number >= _FEWEST_ROUNDS:
            break
        first = number % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(_turn(candidates[name], repeats[name]))
    timings = {name: _timing(turns[name]) for name in names}
    for name, timing in timings.items():
        print(f"{title}: {name} {timing['ms']:.2f} ms", flush=True)
    return timings


def _repeats(candidate: Callable[[], Any]) -> int:
    candidate()
    return max(1, math.ceil(_TURN_SECONDS / _turn(candidate, 1)))


def _turn(candidate: Callable[[], Any], repeats: int) -> float:
    """Returns the seconds of one call."""
    start = time.perf_counter()
    for _ in range(repeats):
        candidate()
    return (time.perf_counter() - start) / repeats


def _timing(turns: list[float]) -> dict[str, Any]:
    times = [1000.0 * seconds for seconds in turns]
    low, median, high = (
        statistics.quantiles(times, n=4, method="inclusive")
        if times[1:]
        else 3 * times
    )
    return {"ms": median, "quartiles": [low, high], "rounds": len(times)}


def call_elsewhere(
    target: str,
    /,
    *,
    environment: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Any:
    """Calls a function in a process of its own and returns what it returns.

    Args:
        target: `"module:function"`.
        environment: Environment variables besides this process' own.
        **arguments: What the function is called with, as JSON can carry it.

    Raises:
        RuntimeError: If the process fails, for example for lack of memory.
    """
    job = json.dumps(arguments)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.measure", target, job],
        cwd=_ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"{target} {arguments} ended with status {done.returncode} (-9 is "
            f"a lack of memory):\n{done.stderr[-2000:]}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def resolve(target: str) -> Callable[..., Any]:
    """Returns the function that `"module:function"` names."""
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(
        importlib.import_module(module), name
    )
    return function


if __name__ == "__main__":
    print(json.dumps(resolve(sys.argv[1])(**json.loads(sys.argv[2]))))
