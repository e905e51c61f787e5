"""Keeping memory between steps, which glibc would give back to the system."""

import ctypes
import sys

# Of glibc's malloc.h.
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4


def keep_memory() -> bool:
    """Lets this process keep the memory that it has freed, to use it again.

    Without oneDNN, as on most processors without AVX-512, TensorFlow asks glibc
    for the buffers of every step and frees them after it. Large ones glibc
    gives back to the system each time, so that the next step finds none of its
    pages: in a training step of `parts_capsnet` with 64 images 50,000 page
    faults, nearly half of the processor's time. The most that the process needs
    grows by a tenth at most, but it holds on to that until its end.

    The commands of the repository call this; importing `tfcaps` does not. Call
    it before training, from when on it holds for the whole process.

    Returns:
        Whether it does: true on Linux with glibc, false elsewhere, where
        nothing is changed.

    Example:
        >>> import tfcaps
        >>> kept = tfcaps.keep_memory()
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    # No buffer in pages of its own, and no end of the heap is given back.
    done = (library.mallopt(_MMAP_MAX, 0), library.mallopt(_TRIM_THRESHOLD, -1))
    return all(done)
