"""Starting the backend without the notes that TensorFlow writes."""

import logging
import os

from cli import check_installed
from export.quiet import native_silence


def start_quietly() -> None:
    """Imports TensorFlow, where it is the backend, before anything else does.

    TensorFlow 2.21 writes notes at start-up before its log level counts.
    """
    if os.environ.get("KERAS_BACKEND") == "jax":
        check_installed(jax="jax")
        return
    check_installed(tensorflow="tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with native_silence():
        import tensorflow as tf

        import tfcaps

        tfcaps.keep_memory()
        tf.config.list_physical_devices()
    # Each model that is measured traces functions of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
