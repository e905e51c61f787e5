"""What was measured, where and when."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("tensorflow", "keras")


def describe() -> dict[str, Any]:
    """Returns date, commit, processor, cores and versions."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **versions},
    }


def _commit() -> str | None:
    """The commit, `-dirty` if files other than results differ from it."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", ".", ":!results")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
