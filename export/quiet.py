"""Starting TensorFlow without the notes that it writes at start-up."""

import contextlib
import logging
import os
from collections.abc import Iterator


def start_tensorflow() -> None:
    """Imports TensorFlow for Keras; call it before anything else imports them.

    It writes the SavedModel, whatever trained the model. TensorFlow 2.21 writes
    notes before its own log level counts.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with native_silence():
        import tensorflow as tf

        import tfcaps

        tfcaps.keep_memory()
        tf.config.list_physical_devices()


@contextlib.contextmanager
def native_silence() -> Iterator[None]:
    """Drops what C++ writes to stderr."""
    stderr = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(silence)
