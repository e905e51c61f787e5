"""Starting the backend without the notes that TensorFlow writes."""

import logging
import os
import sys

from cli import check_installed


def start_quietly() -> None:
    """Imports TensorFlow, where it is the backend, before anything else does.

    TensorFlow 2.21 writes notes at start-up before its log level counts.
    """
    if os.environ.get("KERAS_BACKEND") == "jax":
        check_installed(jax="jax")
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    except ModuleNotFoundError as error:
        missing = error.name
    else:
        missing = None
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(silence)
    if missing:
        print(
            f"{missing} is not installed in this Python, {sys.executable}. "
            "Use .venv/bin/python, or first: source .venv/bin/activate",
            file=sys.stderr,
        )
        sys.exit(2)
    # Each model that is measured traces functions of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
