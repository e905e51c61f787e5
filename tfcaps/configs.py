"""Configs of layers and losses, also as earlier versions wrote them."""

import inspect
from collections.abc import Mapping
from typing import Any

import keras


class Configured:
    """Has the arguments that it keeps under their names as its config.

    It stands before a class of Keras among the bases. Classes below that keep
    an argument otherwise add it in a `get_config` of theirs.
    """

    # Arguments of earlier versions, and the value with which they had no
    # effect; of another one Keras says that the argument is unknown. `...`
    # stands for any, as of initialisers of a layer that has its weights.
    gone: Mapping[str, Any] = {}

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

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes an object from a config, of this or an earlier version."""
        base: Any = super()
        taken = inspect.signature(cls.__init__).parameters
        gone = {k: v for k, v in cls.gone.items() if k not in taken}
        return base.from_config(
            {
                name: value
                for name, value in config.items()
                if name not in gone or gone[name] not in (..., value)
            }
        )
