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
# Page faults of ten buffers of 80 MB, one after the other, in a new thread.
_FAULTS = """
import resource
import threading
import numpy as np
import tfcaps
assert tfcaps.keep_memory()
def use():
    for _ in range(10):
        np.ones(10_000_000)
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not GLIBC, reason="it changes glibc's allocation alone")
def test_buffers_find_their_pages_again():
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS],
        capture_output=True,
        text=True,
        check=True,
    )
    pages = 10 * 80_000_000 // resource.getpagesize()
    assert int(done.stdout) < 0.01 * pages


@pytest.mark.parametrize(
    ("platform", "library"), [("darwin", None), ("linux", object())]
)
def test_elsewhere_nothing_happens(platform, library, monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", platform)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: library)
    assert tfcaps.keep_memory() is False
