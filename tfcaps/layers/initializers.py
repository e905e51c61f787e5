"""Initialisers that several weights take."""

from typing import Any

import keras


def cloned(initializer: Any) -> Any:
    """Returns an initialiser that draws numbers of its own.

    An initialiser of Keras draws the same numbers each time it is called, so
    that two weights which share one start alike. A clone keeps a seed that was
    given. Anything but an initialiser is returned as it is.
    """
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer
