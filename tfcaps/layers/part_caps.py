"""Capsules that are parts of an image: a type, a presence and a place."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.layers.feature_map import FeatureMapLayer
from tfcaps.layers.initializers import cloned
from tfcaps.layers.units import LayerUnits, channels_read
from tfcaps.ops import Tensor, check_positive

# Bias of a type that another one has taken in: it is never present again.
SPARE_BIAS = -1e4


@keras.saving.register_keras_serializable(package="tfcaps")
class PartCaps(FeatureMapLayer):
    """Finds parts of several types in a feature map, and where they are.

    A 1x1 convolution and a softmax tell which of `num_types` types of part, or
    nothing, is at each place: a place has one type at most. Places compete: of
    all within `window` only the one with the most presence stays active,
    `p = 1 - a(nothing)`. The pose of a part is its place and nothing else, so
    that what it is can only be said by its type.

    Parts that may cross, such as strokes, compete within their type alone
    (`exclusive=False`): a place may then have several, each with a sigmoid of
    how much more than nothing it is.

    At inference the winner of a window takes all. In training the competition
    is soft, `a p^4 / (sum of p^4 in the window)`, until the weight `hardness`
    is 1, see `tfcaps.callbacks.BlueprintEstimation`; from then on it is hard,
    with the gradient of the soft one.

    Args:
        num_types: Int. Types of parts.
        window: Int, odd. Rows and columns of the window, in places, in which
            places compete. Defaults to `5`.
        stride: Float. Pixels between two places. Defaults to `1`.
        offset: Row and column in pixels of the first place, the first pixel
            being at 0. Defaults to `(0, 0)`.
        power: Float. Exponent of the soft competition. Defaults to `4`.
        per_type: Bool. Types do not compete: of each type the place with most
            of it stays active, in training too. Defaults to `False`.
        kernel_initializer: Initializer of the kernel. Defaults to
            `"glorot_uniform"`.
        exclusive: Bool. Of all types within a window only one stays active.
            Defaults to `True`.
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
        num_types + 1]`, nothing last, sums to 1 at each place if types exclude
        each other. All float32.

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
        power: float = 4.0,
        per_type: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        exclusive: bool = True,
        **kwargs: Any,
    ):
        check_positive(num_types=num_types, window=window)
        if window % 2 == 0:
            raise ValueError(
                f"`window` must be odd. Received: window={window}."
            )
        if stride <= 0 or power <= 0:
            raise ValueError(
                "`stride` and `power` must be above 0. Received: "
                f"stride={stride}, power={power}."
            )
        super().__init__(**kwargs)
        self.num_types = num_types
        self.window = window
        self.stride = float(stride)
        self.offset = tuple(float(pixel) for pixel in offset)
        self.power = float(power)
        self.per_type = per_type
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.exclusive = exclusive
        # Two, so that pruning can take types away, but not nothing.
        self.conv = self._made(num_types, "zeros", "conv")
        self.nothing_conv = self._made(1, "ones", "nothing_conv")

    def _made(self, filters: int, bias: str, name: str) -> Any:
        return keras.layers.Conv2D(
            filters,
            1,
            data_format="channels_last",
            kernel_initializer=cloned(self.kernel_initializer),
            bias_initializer=bias,
            dtype=self.dtype_policy,
            trainable=self.trainable,
            name=name,
        )

    def build(self, input_shape: Any) -> None:
        if len(input_shape) != 4 or None in input_shape[1:]:
            raise ValueError(
                "PartCaps takes a feature map [batch, rows, columns, channels],"
                " all known but the batch. Received: "
                f"input_shape={tuple(input_shape)}."
            )
        self.conv.build(input_shape)
        self.nothing_conv.build(input_shape)
        self.hardness = self.add_weight(
            shape=(),
            initializer="zeros",
            trainable=False,
            autocast=False,
            name="hardness",
        )

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
        presence = self._presence(types, nothing)
        odds = types
        if self.exclusive:
            odds = ops.logsumexp(odds, axis=-1, keepdims=True)
        odds = odds - nothing
        if self.per_type:
            odds, _ = of_types(presence)
        active = winners(presence, odds, self.window)
        if training and not self.per_type:
            soft = compete(presence, self.window, self.power, self.exclusive)
            active = soft + self.hardness * ops.stop_gradient(active - soft)
        outputs = (self.places(presence), active)
        return (*outputs, presence) if return_presence else outputs

    def _presence(self, types: Tensor, nothing: Tensor) -> Tensor:
        if self.exclusive:
            logits = ops.concatenate([types, nothing], axis=-1)
            return ops.softmax(logits, axis=-1)
        there = ops.sigmoid(types - nothing)
        nothing = 1.0 - ops.max(there, axis=-1, keepdims=True)
        return ops.concatenate([there, nothing], axis=-1)

    def places(self, presence: Tensor) -> Tensor:
        """Returns the mean place `[b, h, w, t, 2]` of near parts, in pixels.

        Args:
            presence: Tensor `[b, h, w, num_types + 1]`.
        """
        _, rows, columns, _ = presence.shape
        there, nothing = of_types(ops.stop_gradient(presence))
        if self.exclusive:
            there = 1.0 - nothing
        power = there**self.power
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
        if not self.exclusive:
            return places
        return ops.repeat(places, self.num_types, axis=3)

    def compute_output_spec(
        self,
        inputs: Any,
        return_presence: bool = False,
        training: bool | None = None,
    ) -> Any:
        types, grid = self.num_types, tuple(inputs.shape[:3])
        shapes = ((*grid, types, 2), (*grid, types), (*grid, types + 1))
        specs = [keras.KerasTensor(shape, dtype="float32") for shape in shapes]
        return tuple(specs if return_presence else specs[:2])

    @property
    def receptive_windows(self) -> list[Any]:
        return [(self.window, 1, "same")]  # of all only one part stays

    def inner_layers(self, input_shape: Any) -> list[Any]:
        convs = self.conv, self.nothing_conv
        return [(conv, input_shape) for conv in convs]

    def layer_units(self, input_shapes: Any) -> LayerUnits:
        # Types compete, also those that no class has.
        read = channels_read(self.conv) + channels_read(self.nothing_conv)
        return LayerUnits(read=read, outputs=2, stay=True, value=np.nan)

    def get_config(self) -> dict[str, Any]:
        config = {
            "num_types": self.num_types,
            "window": self.window,
            "stride": self.stride,
            "offset": self.offset,
            "power": self.power,
            "per_type": self.per_type,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "exclusive": self.exclusive,
        }
        return {**super().get_config(), **config}


def compete(
    presence: Tensor, window: int, power: float, exclusive: bool = True
) -> Tensor:
    """Returns activations `[b, h, w, t]` of the soft competition of places.

    Args:
        presence: How much each type, and nothing, is there, `[b, h, w, t + 1]`.
        window: Int. As in `PartCaps`.
        power: Float. As in `PartCaps`.
        exclusive: Bool. As in `PartCaps`. Defaults to `True`.
    """
    types, nothing = of_types(presence)
    there = 1.0 - nothing if exclusive else types
    strength = (there + 1e-6) ** power
    half = window // 2
    padded = ops.pad(strength, [[0, 0], [half, half], [half, half], [0, 0]])
    mean = ops.average_pool(
        padded, window, 1, padding="valid", data_format="channels_last"
    )
    around = window**2 * mean  # nothing is beyond the border
    return types * strength / (around + 1e-3)


def of_types(presence: Tensor) -> list[Tensor]:
    """Returns how much the types are there, and how much nothing is.

    They are split: slices of the last axis have a slow gradient.
    """
    return list(ops.split(presence, [presence.shape[-1] - 1], axis=-1))


def centres(count: int, stride: float, offset: float) -> NDArray[np.float32]:
    """Returns the pixels `[count]` of the places."""
    return (offset + stride * np.arange(count)).astype("float32")


def winners(presence: Tensor, odds: Tensor, window: int) -> Tensor:
    """Returns the types' presence where most is present, 0 elsewhere.

    Args:
        presence: As in `compete`.
        odds: What places are compared by, of each type or of all. Of log-odds
            the presence is 1 beyond 17, and neighbours would all win by it.
        window: Int. As in `PartCaps`.
    """
    odds = ops.stop_gradient(odds)
    most = ops.max_pool(
        odds, window, 1, padding="same", data_format="channels_last"
    )
    types, _ = of_types(presence)
    return types * ops.cast(odds >= most, types.dtype)
