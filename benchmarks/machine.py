"""Records the machine, versions and date of a measurement."""

import datetime
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli import version_of

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("tensorflow", "keras")
_VECTOR_UNITS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")


def describe(packages: Sequence[str] = _PACKAGES) -> dict[str, Any]:
    """Returns date, commit, processor, cores and versions of packages."""
    found = {name: version_of(name) for name in packages}
    versions = {name: version for name, version in found.items() if version}
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "cpu": cpu(),
        "vector_units": vector_units(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **versions},
    }


def commit() -> str | None:
    """The commit, `-dirty` if files other than results differ from it."""
    try:
        revision = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", ".", ":!results")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{revision}-dirty" if changed else revision


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def cpu() -> str:
    """Returns the name of the processor."""
    return _of_processor("model name") or (
        platform.processor() or platform.machine()
    )


def vector_units() -> list[str]:
    """Returns which units for many numbers at once Linux says there are."""
    flags = _of_processor("flags").split()
    return [unit for unit in _VECTOR_UNITS if unit in flags]


def _of_processor(key: str) -> str:
    """Returns what Linux says of the first processor; nothing elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
