"""Images drawn from the parts that were found in them."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.configs import Configured
from tfcaps.ops import Tensor, check_positive, check_that
from tfcaps.parts.placed import add_float32

# Where templates fade to less, nothing can be said of what they were.
_LEAST_FADING = 0.1
PRESENT = 0.5  # above it, a part is there


@keras.saving.register_keras_serializable(package="tfcaps")
class TemplateDecoder(Configured, keras.layers.Layer):
    """Draws an image by putting the template of each type where it was found.

    The image is a ground plus, at each place, the templates weighted by the
    activations there: a transposed convolution. So a type must be what it looks
    like. Templates fade out from their middle, which keeps it on the part.
    They are not pruned.

    Args:
        image_shape: Rows, columns and channels of an image.
        size: Int, odd. Rows and columns of a template in pixels. Defaults to
            `11`.
        offset: Row and column of the pixel at which the first place is.
            Defaults to `(0, 0)`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        Activations `[b, h, w, t]`; the sides of the image are the same multiple
        of `h` and `w`, rounded up.

    Output shape:
        `[b, *image_shape]`, float32.

    Raises:
        ValueError: If an argument is out of range, or the input's shape does
            not fit.

    Example:

    >>> import numpy as np
    >>> found = np.zeros((2, 16, 16, 5), "float32")
    >>> tuple(TemplateDecoder((32, 32, 1))(found).shape)
    (2, 32, 32, 1)

    References:
        - Kosiorek et al., 2019, https://arxiv.org/abs/1906.06818 (templates of
          part capsules)
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        size: int = 11,
        offset: tuple[int, int] = (0, 0),
        **kwargs: Any,
    ):
        check_positive(size=size, **dict(zip("hwc", image_shape, strict=True)))
        check_that(size % 2, "be odd", size=size)
        kwargs.setdefault("autocast", False)
        super().__init__(**kwargs)
        self.image_shape = tuple(int(side) for side in image_shape)
        self.size = size
        self.offset = tuple(int(pixel) for pixel in offset)

    def build(self, input_shape: Any) -> None:
        _, *counts, types = input_shape
        *sides, channels = self.image_shape
        self._step = max(
            -(-side // count) for side, count in zip(sides, counts, strict=True)
        )
        if [-(-side // self._step) for side in sides] != counts:
            raise ValueError(
                "Images must have a whole number of pixels for each place. "
                f"Received: input_shape={tuple(input_shape)}, "
                f"image_shape={self.image_shape}."
            )
        shape = (self.size, self.size, channels, types)
        random = keras.initializers.RandomNormal(0.2, 0.05)
        grey = keras.initializers.Constant(0.1)
        add_float32(self, "templates", shape, random)
        add_float32(self, "ground", (channels,), grey)
        for weight in self.weights:
            weight.prunable = False

    @property
    def pictures(self) -> Tensor:
        """The templates as they are drawn, `[size, size, channels, t]`."""
        return self.templates * _fading(self.size)

    def call(self, inputs: Tensor) -> Tensor:
        drawn = ops.conv_transpose(
            ops.cast(inputs, "float32"),
            ops.cast(self.pictures, "float32"),
            self._step,
            padding="valid",
            data_format="channels_last",
        )
        rows, columns, _ = self.image_shape
        # The first place is drawn around pixel `size // 2`.
        top, left = (self.size // 2 - offset for offset in self.offset)
        drawn = drawn[:, top : top + rows, left : left + columns]
        return drawn + ops.cast(self.ground, "float32")

    def adapt(self, images: Any, active: Any) -> None:
        """Sets templates to the mean image around the places of their types.

        For the further training of a network whose types stand for something.
        A type that is active nowhere keeps its template. The layer must be
        built.

        Args:
            images: Array `[n, h, w, c]`, some hundreds.
            active: Activations `[n, h, w, t]` of the parts found in them.

        Raises:
            ValueError: If no part is active.
        """
        images, active = np.asarray(images, "float32"), np.asarray(active)
        is_present = active.max(axis=-1) > PRESENT
        if not is_present.any():
            raise ValueError(
                f"`active` must be above {PRESENT} in some image. Received: at "
                f"most {active.max():.2g}."
            )
        ground, half = np.median(images, axis=(0, 1, 2)), self.size // 2
        sides = (half, half + self._step)  # the last place may be beyond
        padded = np.pad(images - ground, ((0, 0), sides, sides, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(
            padded, (self.size, self.size), axis=(1, 2)
        )
        down, right = self.offset
        windows = windows[:, down :: self._step, right :: self._step]
        windows = windows[:, : active.shape[1], : active.shape[2]]
        fading = _fading(self.size)[..., 0]
        # What fades to little cannot be seen there.
        fading = fading / np.maximum(fading, _LEAST_FADING)
        templates = np.array(ops.convert_to_numpy(self.templates))
        types = np.where(is_present, active.argmax(axis=-1), -1)
        for t in np.unique(types[is_present]):
            mean = windows[types == t].mean(axis=0)  # [c, size, size]
            templates[..., t] = np.moveaxis(mean, 0, -1) * fading
        self.templates.assign(templates)
        self.ground.assign(ground)


def _fading(size: int) -> Any:
    """Returns the factors of a template's pixels, `[size, size, 1, 1]`."""
    away = (np.arange(size) - size // 2) / (size / 4.0)
    fading = np.exp(-0.5 * (away[:, None] ** 2 + away**2))
    return fading.astype("float32")[..., None, None]
