"""Measures the activity of each capsule layer while a network trains.

Capsules that are silent and votes that are short are why capsule networks stay
near chance (Mitterreiter et al., 2023, https://arxiv.org/abs/2301.01583).
"""

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
    """Measures the capsule layers of a network again and again."""

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

        copy = graphs.clone_with_call(network, call)
        self._model = keras.Model(copy.input, shown)

    def measure(self, images: Any) -> Layers:
        """Returns for each capsule layer, by name:

        `silent`, the share of its capsules that are silent for all images;
        `activation`, the mean over capsules and images, 0 to 1;
        `vote_length`, the mean length of the votes for its capsules.
        """
        shown = self._model.predict_on_batch(images)
        return {
            layer.name: {
                "silent": float(np.mean(values["active"].max(axis=0) < SILENT)),
                "activation": float(np.mean(values["active"], dtype="float64")),
                **{
                    name: float(np.mean(value, dtype="float64"))
                    for name, value in values.items()
                    if name == "vote_length"
                },
            }
            for layer in self._model.layers
            if (values := shown.get(layer.name)) is not None
        }


class _VoteLength(keras.layers.Layer):
    """Returns the mean length of the votes of each image, `[b]`."""

    def __init__(self, layer: ClassCaps):
        super().__init__(dtype=layer.dtype_policy)
        self.layer = layer

    def call(self, children: Tensor) -> Tensor:
        maps, _ = self.layer._weights()
        lengths = self.layer._votes(children, maps).lengths()
        return ops.cast(ops.mean(lengths, axis=(1, 2)), "float32")
