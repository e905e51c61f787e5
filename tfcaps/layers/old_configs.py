"""Configs of layers as earlier versions wrote them."""

from typing import Any


def without(
    config: dict[str, Any], *gone: str, **unused: Any
) -> dict[str, Any]:
    """Returns a config without arguments that there were once.

    Args:
        config: Config of a layer.
        *gone: Names of arguments that have no effect on a layer with weights,
            such as initialisers.
        **unused: Values of others that had no effect; with another value Keras
            says that the argument is unknown.
    """
    return {
        name: value
        for name, value in config.items()
        if name not in gone and (name not in unused or value != unused[name])
    }
