"""Capsules that are parts of an image: a type, a presence and a place."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.layers.feature_map import FeatureMapLayer
from tfcaps.layers.units import LayerUnits, channels_read
from tfcaps.ops import FEATURES, Tensor, check_axes, check_positive, check_that
from tfcaps.parts.placed import add_float32

# Bias of a type that another one has taken in: it is never present again.
SPARE_BIAS = -1e4
# Exponent of the competition in training.
_POWER = 4.0


@keras.saving.register_keras_serializable(package="tfcaps")
class PartCaps(FeatureMapLayer):
    """Finds parts of several types in a feature map, and where they are.

    A 1x1 convolution and a softmax tell which of `num_types` types of part, or
    nothing, is at each place: a place has one type at most. Places compete: of
    all within `window` only the one with the most presence stays active,
    `p = 1 - a(nothing)`. The pose of a part is its place and nothing else, so
    that what it is can only be said by its type.

    At inference the winner of a window takes all. In training the competition
    is soft, `a p^4 / (sum of p^4 in the window)`, until the weight `hardness`
    is 1, see `tfcaps.callbacks.HardenParts`; from then on it is hard, with the
    gradient of the soft one.

    Args:
        num_types: Int. Types of parts.
        window: Int, odd. Rows and columns of the window, in places, in which
            places compete. Defaults to `5`.
        stride: Float. Pixels between two places. Defaults to `1`.
        offset: Row and column in pixels of the first place, the first pixel
            being at 0. Defaults to `(0, 0)`.
        **kwargs: Arguments of `keras.layers.Layer`, and `data_format`, which
            must be `"channels_last"` and defaults to the setting of Keras.

    Call arguments:
        inputs: Feature map.
        return_presence: Bool. Return the presence too. Defaults to `False`.

    Input shape:
        `[b, h, w, channels]`.

    Output shape:
        Poses `[b, h, w, num_types, 2]`, row and column in pixels, and
        activations `[b, h, w, num_types]`, in [0, 1]. The presence `[b, h, w,
        num_types + 1]`, nothing last, sums to 1 at each place. All float32.

    Raises:
        ValueError: If an argument is out of range, or the input's shape does
            not fit.

    Example:

    >>> import numpy as np
    >>> features = np.zeros((2, 8, 8, 16), "float32")
    >>> poses, activations = PartCaps(5, stride=2, offset=(1, 1))(features)
    >>> tuple(poses.shape), tuple(activations.shape)
    ((2, 8, 8, 5, 2), (2, 8, 8, 5))
    >>> float(poses[0, 3, 0, 0, 0])  # row 3 stands at pixel 7
    7.0

    References:
        - Kosiorek et al., 2019, https://arxiv.org/abs/1906.06818 (part
          capsules with a presence and a pose)
    """

    def __init__(
        self,
        num_types: int,
        window: int = 5,
        stride: float = 1.0,
        offset: tuple[float, float] = (0.0, 0.0),
        **kwargs: Any,
    ):
        check_positive(num_types=num_types, window=window)
        check_that(window % 2, "be odd", window=window)
        check_that(stride > 0, "be above 0", stride=stride)
        super().__init__(**kwargs)
        self.num_types = num_types
        self.window = window
        self.stride = float(stride)
        self.offset = tuple(float(pixel) for pixel in offset)
        # Two, so that pruning can take types away, but not nothing.
        self.conv, self.nothing_conv = (
            keras.layers.Conv2D(
                filters,
                1,
                data_format="channels_last",
                bias_initializer=bias,
                dtype=self.dtype_policy,
                trainable=self.trainable,
                name=name,
            )
            for filters, bias, name in (
                (num_types, "zeros", "conv"),
                (1, "ones", "nothing_conv"),
            )
        )

    def build(self, input_shape: Any) -> None:
        check_axes(self, input_shape, "a feature map", *FEATURES, known=True)
        self.conv.build(input_shape)
        self.nothing_conv.build(input_shape)
        add_float32(self, "hardness", (), "zeros", trainable=False)

    def call(
        self,
        inputs: Tensor,
        return_presence: bool = False,
        training: bool | None = None,
    ) -> Any:
        types, nothing = (
            ops.cast(conv(inputs), "float32")
            for conv in (self.conv, self.nothing_conv)
        )
        presence = ops.softmax(ops.concatenate([types, nothing], -1), axis=-1)
        # The presence is 1 beyond 17 log-odds, and neighbours would all win.
        odds = ops.logsumexp(types, axis=-1, keepdims=True) - nothing
        odds = ops.stop_gradient(odds)
        most = ops.max_pool(
            odds, self.window, 1, padding="same", data_format="channels_last"
        )
        there, _ = types_and_nothing(presence)
        active = there * ops.cast(odds >= most, there.dtype)
        if training:
            soft = self.compete(presence)
            active = soft + self.hardness * ops.stop_gradient(active - soft)
        outputs = (self.places(presence), active)
        return (*outputs, presence) if return_presence else outputs

    def compete(self, presence: Tensor) -> Tensor:
        """Returns activations `[b, h, w, t]` of the soft competition.

        Args:
            presence: Tensor `[b, h, w, t + 1]`.
        """
        types, nothing = types_and_nothing(presence)
        strength = (1.0 - nothing + 1e-6) ** _POWER
        half = self.window // 2
        padded = ops.pad(strength, [[0, 0], [half, half], [half, half], [0, 0]])
        mean = ops.average_pool(
            padded, self.window, 1, padding="valid", data_format="channels_last"
        )
        around = self.window**2 * mean  # nothing is beyond the border
        return types * strength / (around + 1e-3)

    def places(self, presence: Tensor) -> Tensor:
        """Returns the mean place `[b, h, w, t, 2]` of near parts, in pixels.

        Args:
            presence: Tensor `[b, h, w, t + 1]`.
        """
        _, rows, columns, _ = presence.shape
        _, nothing = types_and_nothing(ops.stop_gradient(presence))
        power = (1.0 - nothing) ** _POWER
        down, right = (
            centres(count, self.stride, first)
            for count, first in zip((rows, columns), self.offset, strict=True)
        )
        padded = ops.pad(power, [[0, 0], [1, 1], [1, 1], [0, 0]])
        above, same, below = (padded[:, k : k + rows] for k in range(3))
        three, fall = (
            [x[:, :, k : k + columns] for k in range(3)]
            for x in (above + same + below, below - above)
        )
        total = sum(three) + 1e-12
        moved = [
            self.stride * x / total for x in (sum(fall), three[2] - three[0])
        ]
        grid = np.stack(np.meshgrid(down, right, indexing="ij"), axis=-1)
        places = grid[:, :, None] + ops.stack(moved, axis=-1)
        return ops.repeat(places, self.num_types, axis=3)

    @property
    def receptive_windows(self) -> list[Any]:
        return [(self.window, 1, "same")]  # of all only one part stays

    def inner_layers(self, input_shape: Any) -> list[Any]:
        convs = self.conv, self.nothing_conv
        return [(conv, input_shape) for conv in convs]

    def layer_units(self, input_shapes: Any) -> LayerUnits:
        # Types compete, also those that no class has.
        read = channels_read(self.conv) + channels_read(self.nothing_conv)
        return LayerUnits(read=read, outputs=None, stay=True, value=np.nan)


def types_and_nothing(presence: Tensor) -> list[Tensor]:
    """Returns how much the types are there, and how much nothing is.

    `ops.split`: the gradient of a slice of the last axis is slow.
    """
    return list(ops.split(presence, [presence.shape[-1] - 1], axis=-1))


def centres(count: int, stride: float, offset: float) -> NDArray[np.float32]:
    """Returns the pixels `[count]` of the places."""
    return (offset + stride * np.arange(count)).astype("float32")
