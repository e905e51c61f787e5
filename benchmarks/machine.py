"""Records the machine, versions and date of a measurement."""

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
        "commit": commit(),
        "cpu": cpu(),
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
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
