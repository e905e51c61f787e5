"""Draws the weights of a routed layer anew."""

from typing import Any

import keras


def draw_weights(layer: Any, children: int, seed: int) -> None:
    """Draws all weights of a routed layer anew, the same for each seed."""
    bias = layer.bias_initializer
    parents = layer.num_capsules
    weights = layer.routing.weights(children, parents, layer.dim)
    initializers = {name: w.initializer for name, w in weights.items()}
    if bias is not None:
        initializers["bias"] = bias
    for name in ("blueprint", "transformation"):
        initializers[name] = layer.transformation_initializer
    for number, weight in enumerate(layer.weights):
        initializer = keras.initializers.get(initializers[weight.name])
        config = initializer.get_config()
        if "seed" in config:
            config["seed"] = seed + number
            initializer = type(initializer).from_config(config)
        weight.assign(initializer(weight.shape, dtype=weight.dtype))
