"""Trains a capsule network and reports what its couplings do.

python training/run.py --rem

trains a baseline and a REM model (pruned, and trained on its couplings) under
the same settings, quantises their couplings, collects the parse trees of each
class, draws them, and exports the stripped model for TensorFlow Serving.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def make_parser() -> Any:
    """Returns the parser of the command."""
    from training import flags

    return flags.make_parser()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    from cli import run_loading

    return run_loading(make_parser(), _load, _check, argv)


def _check(options: Any) -> None:
    from training import flags

    flags.check(options)


def _load() -> Callable[..., None]:
    from training.quiet import start_quietly

    start_quietly()
    from training.run_job import run

    return run


if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    sys.exit(main())
