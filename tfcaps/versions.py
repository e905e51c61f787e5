"""Refuses, in a sentence, a Keras that tfcaps cannot work with.

`pip` keeps to the versions of `setup.cfg`. But a package that is installed
later may replace Keras, of which pip merely warns: TensorFlow 2.15 brings Keras
2. The first layer would then fail with an error that tells nothing.
"""

import os

_BACKENDS = ("tensorflow", "jax")


def _check_backend(name: str) -> None:
    if name not in _BACKENDS:
        raise ImportError(
            f"tfcaps runs on TensorFlow or JAX, and Keras is set to {name!r}. "
            "Set the environment variable KERAS_BACKEND to tensorflow or jax "
            "before Keras is imported."
        )


_check_backend(os.environ.get("KERAS_BACKEND") or _BACKENDS[0])
try:
    import keras
except ModuleNotFoundError as error:
    if error.name in ("torch", "openvino"):  # of ~/.keras/keras.json
        _check_backend(error.name)
    if error.name not in _BACKENDS:
        raise
    raise ImportError(
        f"The backend {error.name} is not installed. Run: pip install "
        f'"tfcaps[{error.name}]"'
    ) from error

# As in setup.cfg: from the first on, before the second.
KERAS = ("3.12", "4")

_first, _end, _found = (
    tuple(int(number) for number in version.split(".")[:2])
    for version in (*KERAS, keras.__version__)
)
if not _first <= _found < _end:
    raise ImportError(
        f"tfcaps works with keras >= {KERAS[0]}, < {KERAS[1]}. Found: keras "
        f'{keras.__version__}. Run: pip install "keras>={KERAS[0]},<{KERAS[1]}"'
    )
_check_backend(keras.backend.backend())
