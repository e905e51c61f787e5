"""Times candidates side by side, and calls functions in fresh processes."""

import ctypes
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
_STEPS = 5
_CLEAR = Path("/proc/self/clear_refs")


class Settings(NamedTuple):
    """What the flags of the command say to every part.

    Attributes:
        rounds: Turns of each candidate at most.
        quick: Small sizes, for a look at whether everything runs.
    """

    rounds: int = 15
    quick: bool = False


class Row(NamedTuple):
    """What was measured of one thing.

    Attributes:
        name: What it is, a name in its part.
        inputs: Shape of what it is called with, the batch first.
        forward: `ms`, `quartiles` and `rounds` of a call.
        step: The same with gradients, and for networks the optimiser.
        base: The name of what it is compared with.
        peak_mb: The most memory that a step needs, see `memory_of_step`.
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
            turns[name].append(1e3 * _turn(candidates[name], repeats[name]))
    timings = {}
    for name, times in turns.items():
        three = 3 * times  # of a single round
        if times[1:]:
            three = statistics.quantiles(times, n=4, method="inclusive")
        low, median, high = three
        timings[name] = {
            "ms": median,
            "quartiles": [low, high],
            "rounds": len(times),
        }
        print(f"{title}: {name} {median:.2f} ms", flush=True)
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


def _resolve(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(
        importlib.import_module(module), name
    )
    return function


def memory_of_step(
    target: str, **arguments: Any
) -> tuple[float | None, float | None]:
    """Runs a step in a fresh process, and returns the memory that it needs.

    What a process has used before would hide it: freed memory is used again.

    Args:
        target: `"module:function"`; the function makes the step, a function
            without arguments that blocks until it has finished.
        **arguments: What the function is called with, as JSON can carry it.

    Returns:
        In megabytes (10^6 bytes) above what the step starts with: the most that
        one step needs, all that is free being given back before it, the median
        over steps; and the most that the process holds over many steps, because
        the allocator keeps what steps have freed. `None` where the system does
        not tell.

    Raises:
        RuntimeError: If the process fails.
    """
    found: tuple[float | None, float | None] = call_elsewhere(
        "benchmarks.measure:measure_memory",
        # Or oneDNN's pool keeps what steps have freed, and they need nothing
        # more; processors with AVX-512 or AMX have it.
        environment={"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"},
        target=target,
        arguments=arguments,
    )
    return found


def measure_memory(
    target: str, arguments: dict[str, Any]
) -> tuple[float | None, float | None]:
    """Measures a step in this process, see `memory_of_step`."""
    step = _resolve(target)(**arguments)
    step()  # so that nothing is compiled while memory is measured
    if not _CLEAR.exists():
        return None, None
    peaks = [_held(step, 1) for _ in range(_STEPS)]
    return statistics.median(peaks), _held(step, 4 * _STEPS)


def _held(step: Callable[[], Any], times: int) -> float:
    """Returns the most megabytes that steps held."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = _status("VmRSS")
    _CLEAR.write_text("5")  # sets the highest use of memory to the present one
    for _ in range(times):
        step()
    return (_status("VmHWM") - before) / 1e6


def _status(field: str) -> int:
    """Returns a field of the process' status, in bytes."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    [size] = (line.split()[1] for line in lines if line.startswith(field))
    return 1024 * int(size)


if __name__ == "__main__":
    print(json.dumps(_resolve(sys.argv[1])(**json.loads(sys.argv[2]))))
