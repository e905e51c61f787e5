"""Starting the backend without the notes that TensorFlow writes."""

import logging
import os

from cli import check_installed


def start_quietly() -> None:
    """Imports TensorFlow, where it is the backend, before anything else does.

    TensorFlow 2.21 writes notes at start-up before its log level counts.
    """
    if os.environ.get("KERAS_BACKEND") == "jax":
        check_installed(jax="jax")
        return
    check_installed(tensorflow="tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        import tensorflow as tf

        import tfcaps

        tfcaps.keep_memory()
        tf.config.list_physical_devices()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(silence)
    # Each model that is measured traces functions of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
