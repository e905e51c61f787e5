"""Freed memory is kept where glibc can be told so, and nobody else's is."""

import ctypes
import resource
import subprocess
import sys

import pytest

import tfcaps
from tfcaps import memory

GLIBC = sys.platform == "linux" and hasattr(
    ctypes.CDLL(None), "gnu_get_libc_version"
)
# Page faults of ten large buffers, one after the other.
_FAULTS = """
import resource
import numpy as np
import tfcaps
if {kept}:
    assert tfcaps.keep_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kept):
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS.format(kept=kept)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(not GLIBC, reason="it changes glibc's allocation alone")
def test_buffers_find_their_pages_again():
    pages = 10 * 80_000_000 // resource.getpagesize()
    assert faults(kept=True) < 0.01 * pages


@pytest.mark.parametrize(
    ("platform", "library"), [("darwin", None), ("linux", object())]
)
def test_elsewhere_nothing_happens(platform, library, monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", platform)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: library)
    assert tfcaps.keep_memory() is False
