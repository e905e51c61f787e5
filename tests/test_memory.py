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
import ctypes, resource, runpy, sys, threading
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
def use():
    for _ in range(10):
        buffer = ctypes.c_void_p(c.malloc(ctypes.c_size_t(80_000_000)))
        c.memset(buffer, 1, ctypes.c_size_t(80_000_000))
        c.free(buffer)
if len(sys.argv) > 1:
    assert runpy.run_path(sys.argv[1])["keep_memory"]()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not GLIBC, reason="it changes glibc's allocation alone")
def test_buffers_find_their_pages_again():
    assert tfcaps.keep_memory is memory.keep_memory
    faults = [
        int(subprocess.check_output([sys.executable, "-c", _FAULTS, *kept]))
        for kept in ([], [memory.__file__])
    ]
    pages = 10 * 80_000_000 // resource.getpagesize()
    assert faults[1] < 0.01 * pages < faults[0]
