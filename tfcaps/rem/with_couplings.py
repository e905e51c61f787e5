"""A routed layer asked for its couplings, inside a functional model."""

from typing import Any

import keras

from tfcaps.ops import Tensor


def with_couplings(layer: Any, args: Any, kwargs: Any) -> tuple[Any, Tensor]:
    """Calls a routed layer, and returns its outputs and its couplings."""
    *outputs, couplings = WithCouplings(layer)(*args, **kwargs)
    return (tuple(outputs) if outputs[1:] else outputs[0]), couplings


@keras.saving.register_keras_serializable(package="tfcaps")
class WithCouplings(keras.layers.Layer):
    """Calls a routed layer for its couplings too.

    Keras 3.15 builds no functional model in which a layer that returned one
    output before returns two, so a layer of its own makes the second call.
    """

    def __init__(self, layer: Any, **kwargs: Any):
        super().__init__(**{"dtype": layer.dtype_policy, **kwargs})
        self.layer = layer

    def call(
        self, inputs: Tensor, activations: Tensor | None = None, **kwargs: Any
    ) -> Any:
        return self.layer(inputs, **_also(activations, kwargs))

    def compute_output_spec(
        self, inputs: Any, activations: Any = None, **kwargs: Any
    ) -> Any:
        return self.layer.compute_output_spec(
            inputs, **_also(activations, kwargs)
        )

    def get_config(self) -> dict[str, Any]:
        layer = keras.saving.serialize_keras_object(self.layer)
        return {**super().get_config(), "layer": layer}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WithCouplings":
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(**{**config, "layer": layer})


def _also(activations: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns call arguments that ask for couplings."""
    arguments = {**kwargs, "return_couplings": True}
    if activations is not None:
        arguments["activations"] = activations
    return arguments
