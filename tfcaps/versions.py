"""Refuses, in a sentence, a Keras that tfcaps cannot work with.

`pip` keeps to the versions of `setup.cfg`. But a package that is installed
later may replace Keras, of which pip merely warns: TensorFlow 2.15 brings Keras
2. The first layer would then fail with an error that tells nothing.
"""

try:
    import keras
except ModuleNotFoundError as error:
    if error.name not in ("jax", "tensorflow"):
        raise
    raise ImportError(
        f"The backend {error.name} is not installed. Run: pip install "
        f'"tfcaps[{error.name}]"'
    ) from error

# As in setup.cfg: from the first on, before the second.
KERAS = ("3.12", "4")


def check(version: str) -> None:
    """Raises `ImportError` if a version of Keras is not supported."""
    first, end = KERAS
    if not _numbers(first) <= _numbers(version) < _numbers(end):
        raise ImportError(
            f"tfcaps works with keras >= {first}, < {end}. Found: keras "
            f'{version}. Run: pip install "keras>={first},<{end}"'
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Returns `(3, 12)` of `3.12.0rc1`; a pre-release counts as its release."""
    parts = version.split(".")[:2]
    digits = ["".join(c for c in part if c.isdigit()) for part in parts]
    return tuple(int(number or 0) for number in digits)


check(keras.__version__)
