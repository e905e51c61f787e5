"""Checks the versions of the packages that tfcaps needs."""

import sys
from typing import NamedTuple


class Range(NamedTuple):
    """From the first version on, before the second."""

    first: str
    end: str


# As in setup.cfg; the lowest and the newest are tested, see noxfile.py.
SUPPORTED = {
    "keras": Range("3.12", "4"),
    "numpy": Range("2.0", "3"),
    "tensorflow": Range("2.20", "2.22"),
}


def check(versions: dict[str, str]) -> None:
    """Raises `ImportError` if a version is not supported.

    Args:
        versions: Name of a package to its version; those that are not in
            `SUPPORTED` do not matter.
    """
    for name, (first, end) in SUPPORTED.items():
        version = versions.get(name)
        if version is None:
            continue
        if not _numbers(first) <= _numbers(version) < _numbers(end):
            raise ImportError(
                f"tfcaps works with {name} >= {first}, < {end}. Found: {name} "
                f"{version}. Run: pip install '{name}>={first},<{end}'"
            )


def loaded() -> dict[str, str]:
    """Returns the versions of what has been imported."""
    modules = {name: sys.modules.get(name) for name in SUPPORTED}
    return {
        name: str(module.__version__)
        for name, module in modules.items()
        if module is not None
    }


def _numbers(version: str) -> tuple[int, ...]:
    """Returns `(3, 12)` of `3.12.0rc1`; a pre-release counts as its release."""
    parts = version.split(".")[:2]
    digits = ["".join(c for c in part if c.isdigit()) for part in parts]
    return tuple(int(number or 0) for number in digits)
