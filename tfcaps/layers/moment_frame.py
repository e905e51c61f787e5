"""Images in the frame of what they show."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers.feature_map import FeatureMapLayer
from tfcaps.ops import Tensor, check_positive

# Variance of rows in pixels that is added, for images of nothing.
_LEAST = 0.1


@keras.saving.register_keras_serializable(package="tfcaps")
class MomentFrame(FeatureMapLayer):
    """Shows one object in its own frame: place, height and slant are undone.

    Nothing is learnt. The values of the pixels, summed over the channels, are
    weights; with their mean place `m` and covariance `C` of rows and columns,
    pixel `p` of the output shows what the image has at

        m + sqrt(C_rr) / spread [[1, 0], [C_rc / C_rr, 1]] (p - middle).

    A network behind it sees the same of an object that is moved, resized or
    sheared along its rows. Of a turn as much is undone as a shear can, more of
    long objects than of round ones. The background must be 0, and there must be
    one object: with others around, the frame is that of all.

    Args:
        size: Int. Rows and columns of the output. Defaults to `28`.
        spread: Float above 0. Standard deviation of the object's rows in pixels
            of the output. Defaults to `4.5`.
        **kwargs: Arguments of `keras.layers.Layer`, and `data_format`, which
            must be `"channels_last"` and defaults to the setting of Keras.

    Input shape:
        `[b, h, w, c]`, at least 0.

    Output shape:
        `[b, size, size, c]`, float32.

    Raises:
        ValueError: If an argument is out of range, or the input is no image.

    Example:

    >>> import numpy as np
    >>> tuple(MomentFrame(20)(np.zeros((2, 40, 40, 1), "float32")).shape)
    (2, 20, 20, 1)

    References:
        - Hu, 1962, "Visual pattern recognition by moment invariants"
    """

    def __init__(self, size: int = 28, spread: float = 4.5, **kwargs: Any):
        check_positive(size=size)
        if spread <= 0:
            raise ValueError(
                f"`spread` must be above 0. Received: spread={spread}."
            )
        # Places are float32 whatever the policy.
        kwargs.setdefault("autocast", False)
        super().__init__(**kwargs)
        self.size = size
        self.spread = float(spread)

    def build(self, input_shape: Any) -> None:
        if len(input_shape) != 4 or None in input_shape[1:]:
            raise ValueError(
                "MomentFrame takes images [batch, rows, columns, channels], all"
                " known but the batch. Received: "
                f"input_shape={tuple(input_shape)}."
            )

    def call(self, inputs: Tensor) -> Tensor:
        images = ops.cast(inputs, "float32")
        sides = images.shape[1:3]
        weights = ops.sum(ops.relu(images), axis=-1)
        total = ops.sum(weights, axis=(1, 2), keepdims=True)
        weights = weights / ops.maximum(total, 1e-6)
        grid = np.indices(sides).astype("float32")

        def mean(values: Any) -> Tensor:
            return ops.sum(weights * values, axis=(1, 2), keepdims=True)

        row, column = mean(grid[0]), mean(grid[1])
        down, right = grid[0] - row, grid[1] - column
        variance = mean(down * down) + _LEAST
        slant = mean(down * right) / variance
        scale = ops.sqrt(variance) / self.spread
        scale, slant = ops.stop_gradient(scale), ops.stop_gradient(slant)
        away = np.arange(self.size, dtype="float32") - (self.size - 1) / 2
        # Bilinear: rows first, as columns depend on them. [b, p], [b, p, q]
        rows = row[..., 0] + scale[..., 0] * away
        columns = column + scale * (slant * away[:, None] + away)
        on_rows, on_columns = (
            ops.relu(
                1.0 - ops.abs(at[..., None] - np.arange(side, dtype="float32"))
            )
            for at, side in zip((rows, columns), sides, strict=True)
        )
        shown = ops.einsum("bph,bhwc->bpwc", on_rows, images)
        return ops.einsum("bpqw,bpwc->bpqc", on_columns, shown)

    def compute_output_spec(self, inputs: Any) -> Any:
        shape = (inputs.shape[0], self.size, self.size, inputs.shape[-1])
        return keras.KerasTensor(shape, dtype="float32")

    def get_config(self) -> dict[str, Any]:
        config = {"size": self.size, "spread": self.spread}
        return {**super().get_config(), **config}
