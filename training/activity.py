"""Measures the activity of each capsule layer while a network trains.

Capsules that are silent, votes that are short, and gradients that do not arrive
are why capsule networks stay near chance (Mitterreiter et al., 2023,
https://arxiv.org/abs/2301.01583).
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import graphs, rem
from tfcaps.layers import ClassCaps, PrimaryCaps, PrimaryMatrixCaps
from tfcaps.ops import Tensor, length

# Capsules below this length for every image are silent, as in
# `rem.faithfulness`.
SILENT = 0.01

# By layer, what is measured of it.
Layers = dict[str, dict[str, float]]


class Activity:
    """Measures the capsule layers of a network again and again.

    Args:
        network: From images to class lengths; its layers are shared.
    """

    def __init__(self, network: keras.Model):
        network = rem.encoder(network)
        shown: dict[str, dict[str, Tensor]] = {}

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = layer(*args, **kwargs)
            if graphs.is_routed(layer) or isinstance(
                layer, (PrimaryCaps, PrimaryMatrixCaps)
            ):
                has_activations = isinstance(outputs, (tuple, list))
                active = outputs[1] if has_activations else length(outputs)
                # Keras builds no model with a tensor that is an output twice.
                shown[layer.name] = {"active": ops.stop_gradient(active)}
                if isinstance(layer, ClassCaps):
                    votes = _VoteLength(layer)(args[0])
                    shown[layer.name]["vote_length"] = votes
            return outputs

        copy = graphs.same_layers(network, call)
        self._layers = {
            layer.name: layer for layer in copy.layers if layer.name in shown
        }
        self._model = keras.Model(copy.input, shown)

    def measure(self, images: Any, optimizer: Any = None) -> Layers:
        """Returns for each capsule layer, by name:

        `silent`, the share of its capsules that are silent for all images;
        `activation`, the mean over capsules and images, 0 to 1;
        `vote_length`, the mean length of the votes for its capsules;
        `gradient`, the root of the mean squared gradient of its weights over
        about the last thousand steps, if `optimizer` is Adam.

        Args:
            images: `[n, h, w, c]`, as the network takes them.
            optimizer: What trains the network, or `None`.
        """
        shown = self._model.predict_on_batch(images)
        found: Layers = {}
        for name, layer in self._layers.items():
            active = shown[name]["active"]
            most = active.max(axis=0)
            found[name] = {
                "silent": float(np.mean(most < SILENT)),
                "activation": float(np.mean(active, dtype="float64")),
            }
            if "vote_length" in shown[name]:
                votes = np.mean(shown[name]["vote_length"], dtype="float64")
                found[name]["vote_length"] = float(votes)
            if (gradient := _gradient(layer, optimizer)) is not None:
                found[name]["gradient"] = gradient
        return found


class _VoteLength(keras.layers.Layer):
    """Returns the mean length of the votes of each image, `[b]`."""

    def __init__(self, layer: ClassCaps):
        super().__init__(dtype=layer.dtype_policy)
        self.layer = layer

    def call(self, children: Tensor) -> Tensor:
        maps, _ = self.layer._weights()
        lengths = self.layer._votes(children, maps).lengths()
        return ops.cast(ops.mean(lengths, axis=(1, 2)), "float32")


def _gradient(layer: Any, optimizer: Any) -> float | None:
    """Returns how large the gradients were, from Adam's running squares.

    So it costs nothing, and is the same on every backend. The layer may be a
    copy, whose variables have the same paths.
    """
    squares = getattr(optimizer, "_velocities", None)
    if not squares:
        return None
    steps = int(ops.convert_to_numpy(optimizer.iterations))
    if not steps:
        return None
    paths = {variable.path for variable in layer.trainable_variables}
    trained = zip(optimizer._trainable_variables, squares, strict=True)
    found = [
        ops.convert_to_numpy(square)
        for variable, square in trained
        if variable.path in paths
    ]
    if not found:
        return None
    total = sum(float(square.sum(dtype="float64")) for square in found)
    correction = 1.0 - float(optimizer.beta_2) ** steps
    return math.sqrt(total / sum(square.size for square in found) / correction)
