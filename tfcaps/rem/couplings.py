"""Models that quantise couplings, and models that return them."""

from typing import Any

import keras

from tfcaps.layers import Length
from tfcaps.ops import Tensor
from tfcaps.routing import Routing


def quantize_couplings(model: keras.Model, levels: int) -> keras.Model:
    """Returns a copy of a model whose couplings take `levels` values.

    Every routed layer rounds the couplings of its last iteration, see
    `tfcaps.rem.quantize`. Weights are copied; later changes of one model do not
    reach the other.

    Args:
        model: A functional or sequential model with at least one routed layer.
        levels: Int, at least 2.

    Returns:
        A `keras.Model` with the same inputs and outputs.

    Raises:
        ValueError: If the model has no routed layer or `levels` is below 2.
    """
    last_routed_layer(model)

    def with_levels(layer: Any) -> Any:
        config = layer.get_config()
        if is_routed(layer):
            routing = config["routing"]
            routing["config"] = {**routing["config"], "levels": levels}
        return type(layer).from_config(config)

    copy = keras.models.clone_model(model, clone_function=with_levels)
    copy.set_weights(model.get_weights())
    return copy


def capsule_outputs(model: keras.Model) -> keras.Model:
    """Returns a model that shows what the last routed layer does.

    It shares the layers, and so the weights, of `model`.

    Args:
        model: A functional or sequential model from images to class lengths
            `[b, j]`, or to class poses `[b, j, d]`.

    Returns:
        A functional model with the same inputs and the outputs `lengths`
        `[b, j]`, `poses` `[b, j, d]` and `couplings` `[b, i, j]`, a dict.

    Raises:
        ValueError: If the model has no routed layer.
    """
    last = last_routed_layer(model)
    shown: dict[str, Tensor] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer is not last:
            return layer(*args, **kwargs)
        shown["poses"], shown["couplings"] = _WithCouplings(layer)(*args)
        return shown["poses"]

    copy = keras.models.clone_model(
        functional(model),
        clone_function=lambda layer: layer,
        call_function=call,
    )
    lengths = copy.outputs[0]
    if len(lengths.shape) != 2:
        lengths = Length(dtype="float32")(shown["poses"])
    return keras.Model(copy.input, {"lengths": lengths, **shown})


def functional(model: keras.Model) -> keras.Model:
    """Returns a functional model of the same layers, without optimiser."""
    if isinstance(model, keras.Sequential):
        # It has no `input` of its own before it is called.
        return keras.Model(model.inputs[0], model.outputs[0], name=model.name)
    return keras.Model(model.input, model.output, name=model.name)


def is_routed(layer: Any) -> bool:
    """Tells whether a layer routes."""
    return isinstance(getattr(layer, "routing", None), Routing)


def last_routed_layer(model: keras.Model) -> Any:
    """Returns the routed layer nearest to the output.

    Raises:
        ValueError: If there is none.
    """
    routed = [layer for layer in model.layers if is_routed(layer)]
    if not routed:
        raise ValueError(
            f"The model {model.name!r} has no routed capsule layer such as "
            "`tfcaps.layers.ClassCaps` among its own layers."
        )
    return routed[-1]


class _WithCouplings(keras.layers.Layer):
    """Calls a routed layer for its couplings too.

    Keras 3.15 builds no functional model in which a layer that returned one
    output before returns two, so a layer of its own makes the second call.
    """

    def __init__(self, layer: Any):
        super().__init__(dtype=layer.dtype_policy)
        self.layer = layer

    def call(self, inputs: Tensor) -> Any:
        return self.layer(inputs, return_couplings=True)

    def compute_output_spec(self, inputs: Any) -> Any:
        return self.layer.compute_output_spec(inputs, return_couplings=True)
