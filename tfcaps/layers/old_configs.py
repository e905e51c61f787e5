"""Configs of layers as earlier versions wrote them."""

from typing import Any


def without(
    config: dict[str, Any], *gone: str, **unused: Any
) -> dict[str, Any]:
    """Returns a config without arguments that there were once.

    Those that are `gone`, such as initialisers, have no effect on a layer with
    weights. Of `unused` ones only these values had none; with another one Keras
    says that the argument is unknown.
    """
    return {
        name: value
        for name, value in config.items()
        if name not in gone and (name not in unused or value != unused[name])
    }
