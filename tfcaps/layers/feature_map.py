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
