"""How much of its progress a command shows."""

import sys


def progress() -> int:
    """Returns Keras' `verbose`: a bar, or in a file a line for each epoch."""
    return 1 if sys.stdout.isatty() else 2
