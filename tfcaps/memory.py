"""Keeping memory between steps, which glibc would give back to the system."""

import ctypes
import sys

# Of glibc's malloc.h.
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
_ARENA_MAX = -8


def keep_memory() -> bool:
    """Lets this process keep the memory that it has freed, to use it again.

    Without oneDNN, as on most processors without AVX-512, TensorFlow asks glibc
    for the buffers of every step, which glibc gives back to the system each
    time: in a training step of `parts_capsnet` with 64 images 50,000 page
    faults, nearly half of the processor's time. The process then holds on to
    the most that it has needed, which grows by up to a fifth, and all threads
    share one arena of glibc's.

    The commands of the repository call this; importing `tfcaps` does not. Call
    it before anything is computed. It holds for the whole process.

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
    # No buffer in pages of its own, no end of the heap that is given back, and
    # one heap, which alone has no largest size.
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1))
    return all([library.mallopt(*setting) for setting in settings])
