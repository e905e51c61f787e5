"""Configs of layers and losses."""

import inspect
from typing import Any

import keras


class Configured:
    """Has the arguments that it keeps under their names as its config.

    It stands before a class of Keras among the bases. Classes below that keep
    an argument otherwise add it in a `get_config` of theirs.
    """

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments from which an equal object can be made."""
        base: Any = super()
        config: dict[str, Any] = base.get_config()
        for cls in type(self).__mro__:
            if issubclass(cls, Configured) and "__init__" in vars(cls):
                for name in inspect.signature(vars(cls)["__init__"]).parameters:
                    value = getattr(self, name, ...)
                    if name in config or value is ...:
                        continue
                    if not isinstance(value, keras.Variable):
                        value = keras.saving.serialize_keras_object(value)
                        config[name] = value
        return config
