"""Imports TensorFlow without the notes that it writes at start-up."""

import contextlib
import logging
import os


def import_tensorflow_quietly() -> None:
    """Keeps standard error for what concerns the user.

    TensorFlow 2.21 writes about missing CUDA drivers before its log level
    counts, so that only a closed file descriptor keeps it quiet. Does nothing
    on another backend.
    """
    if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _no_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()
    # Notes on retracing: each model that is measured traces its own function.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


@contextlib.contextmanager
def _no_stderr():
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
