"""The layout of feature maps: channels last."""

from typing import Any

import keras

from tfcaps.configs import Configured

_LAST = "channels_last"


class FeatureMapLayer(Configured, keras.layers.Layer):
    """A layer that takes maps `[b, h, w, channels]`, whatever Keras is set to.

    A map with the channels first would be read with channels as rows. The
    format defaults to the setting of Keras, as in `keras.layers.Conv2D`.
    """

    gone = {"kernel_initializer": ..., "bias_initializer": ...}

    def __init__(self, *, data_format: str | None = None, **kwargs: Any):
        given = data_format or keras.config.image_data_format()
        if given != _LAST:
            origin = ", the setting of Keras" if data_format is None else ""
            raise ValueError(
                f"{type(self).__name__} takes maps with the channels last. "
                f"Received: data_format={given!r}{origin}. Give data_format="
                f"{_LAST!r}, and such maps: those of layers with the channels "
                "first by `keras.layers.Permute((2, 3, 1))`."
            )
        super().__init__(**kwargs)
        self.data_format = given

    def inner_settings(self, name: str) -> dict[str, Any]:
        """Returns what a convolution inside has of the layer."""
        return {
            "data_format": _LAST,
            "dtype": self.dtype_policy,
            "trainable": self.trainable,
            "name": name,
        }

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if (maker := _with_channels_first(inputs)) is not None:
            raise ValueError(
                f"{type(self).__name__} takes maps with the channels last. "
                f"Received: that of {maker.name!r}, which has the channels "
                "first. Put `keras.layers.Permute((2, 3, 1))` in between."
            )
        return super().__call__(inputs, *args, **kwargs)


def _with_channels_first(tensor: Any) -> Any:
    """Returns the layer that makes a map, if it has the channels first.

    Layers that change no shape are looked through, and models looked into.
    """
    while (history := getattr(tensor, "_keras_history", None)) is not None:
        layer = history.operation
        if isinstance(layer, keras.Model) and len(layer.outputs or ()) == 1:
            tensor = layer.outputs[0]
            continue
        if hasattr(layer, "data_format"):
            return layer if layer.data_format == "channels_first" else None
        taken = layer._inbound_nodes[history.node_index].input_tensors
        moves = isinstance(layer, keras.layers.Permute)
        if moves or not taken or taken[0].shape != tensor.shape:
            return None
        tensor = taken[0]
    return None
