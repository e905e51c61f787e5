"""The peak memory of a step, measured in a process of its own.

What a process has used before would hide it: freed memory is used again.
"""

import ctypes
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import call_elsewhere, resolve

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
# Written to `_CLEAR`, it sets the highest use of memory to the present one.
_RESET_PEAK = "5"
# Bytes of the tensor by which each process tests whether it can measure at all.
_KNOWN = 10**8


class Use(NamedTuple):
    """What a step needs, in megabytes (10^6 bytes) above what it starts with.

    Attributes:
        peak_mb: The most that one step needs, the median over steps, all that
            is free being given back before each of them. `None` where it
            cannot be measured: a tensor of known size was not seen.
        process_mb: The most that the process holds over several steps. It is
            more, because the allocator keeps what steps have freed, for each
            thread by itself.
        seconds: Time of one step.
    """

    peak_mb: float | None
    process_mb: float | None
    seconds: float


def of_step(title: str, target: str, steps: int = 5, **arguments: Any) -> Use:
    """Runs a step in a fresh process and measures it there.

    It is run once before, so that nothing is compiled while memory is measured.

    Args:
        title: What is measured, for the line printed.
        target: `"module:function"`; the function makes the step, a function
            without arguments that blocks until it has finished.
        steps: Int. How many steps are measured one by one; four times as many
            are then measured together. `0` for a single call of what takes
            long, also without the one before. Defaults to `5`.
        **arguments: What the function is called with, as JSON can carry it.

    Raises:
        RuntimeError: If the process fails.
    """
    found = call_elsewhere(
        "benchmarks.memory:measure",
        # Or oneDNN's pool keeps what steps have freed, and they need nothing
        # more; processors with AVX-512 or AMX have it.
        environment={"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"},
        target=target,
        steps=steps,
        arguments=arguments,
    )
    use = Use(*found)
    print(f"{title}: {use}", flush=True)
    return use


def measure(target: str, steps: int, arguments: dict[str, Any]) -> Use:
    """Makes a step and measures it in this process, see `of_step`."""
    return _measure(resolve(target)(**arguments), steps)


def _measure(step: Callable[[], Any], steps: int) -> Use:
    sees = _sees_known_tensor()
    if steps:
        step()
    peaks = [_run(step, 1) for _ in range(steps)]
    seconds, process_mb = _run(step, 4 * steps or 1)
    if not sees:
        return Use(None, None, seconds)
    peak_mb = statistics.median([mb for _, mb in peaks] or [process_mb])
    return Use(peak_mb, process_mb, seconds)


def _sees_known_tensor() -> bool:
    """Tells whether a tensor of 100 MB is measured as one, to a tenth."""
    tensorflow = sys.modules.get("tensorflow")

    def hold() -> Any:
        return tensorflow.ones(_KNOWN // 4) if tensorflow else b"x" * _KNOWN

    # Not the first time, when a pool that keeps memory has to grow.
    _, needed = [_run(hold, 1) for _ in range(2)][-1]
    return abs(needed - _KNOWN / 1e6) < _KNOWN / 1e7  # also false for NaN


def _run(step: Callable[[], Any], times: int) -> tuple[float, float]:
    """Returns the seconds of one step, and the megabytes of all of them.

    These are NaN where the system does not tell.
    """
    before = _reset_peak() if _CLEAR.exists() else math.nan
    start = time.perf_counter()
    for _ in range(times):
        step()
    seconds = (time.perf_counter() - start) / times
    peak = _read("VmHWM") if _CLEAR.exists() else math.nan
    return seconds, (peak - before) / 1e6


def _reset_peak() -> int:
    """Gives back what is free and returns the bytes in use."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = _read("VmRSS")
    _CLEAR.write_text(_RESET_PEAK)
    return before


def _read(field: str) -> int:
    """Returns a field of the process' status, in bytes."""
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return 1024 * int(value.split()[0])
    raise RuntimeError(f"{_STATUS} must have a line {field!r}.")
