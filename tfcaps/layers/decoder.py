"""Reconstruction of an image from the pose of its class capsule."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.configs import Configured
from tfcaps.layers import decoder_networks
from tfcaps.ops import (
    Tensor,
    check_axes,
    check_that,
    class_targets,
    clear_targets,
    is_integer,
    length,
)


@keras.saving.register_keras_serializable(package="tfcaps")
class Decoder(Configured, keras.layers.Layer):
    """Reconstructs the image from one class capsule, all others being masked.

    In training with `labels` that is the capsule of the label, else the longest
    one. Its weights are not pruned.

    Args:
        image_shape: Rows, columns and channels of an image.
        network: `"dense"` (512, 1024, pixels: dynamic routing),
            `"deconvolution"` (DeepCaps; sides divisible by 4), `"upsampling"`
            (Efficient-CapsNet; sides of at least 24, divisible by 8), or a
            Keras layer from a vector to images. Defaults to `"dense"`.
        class_independent: Bool. Decode the chosen pose alone, `[b, d]`, so that
            the decoder does not know the class; otherwise all poses `[b, j *
            d]` with zeros for the others. Defaults to `False`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Class poses.
        labels: Classes `[b]`, or targets `[b, j]` with a single one or soft,
            of which the largest counts.
        activations: What decides which capsule is longest, `[b, j]`. Defaults
            to the lengths of the poses.

    Input shape:
        `[b, j, d]`.

    Output shape:
        `[b, *image_shape]`, in [0, 1] but for `"deconvolution"`, which ends in
        a ReLU as published.

    Raises:
        ValueError: If an argument or the input's shape does not fit.

    Example:

    >>> import numpy as np
    >>> poses = np.ones((2, 10, 16), "float32")
    >>> tuple(Decoder((28, 28, 1))(poses).shape)
    (2, 28, 28, 1)

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          section 4.1
        - Rajasegaran et al., 2019, https://arxiv.org/abs/1904.09546
          (`class_independent`)
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        network: Any = "dense",
        class_independent: bool = False,
        **kwargs: Any,
    ):
        sides = tuple(image_shape) if np.ndim(image_shape) == 1 else ()
        if len(sides) != 3 or not all(is_integer(n) and n > 0 for n in sides):
            raise ValueError(
                "`image_shape` must be (rows, columns, channels). Received: "
                f"image_shape={image_shape!r}."
            )
        super().__init__(**kwargs)
        self.image_shape = (int(sides[0]), int(sides[1]), int(sides[2]))
        self.class_independent = class_independent
        self._network_name = network if isinstance(network, str) else None
        if isinstance(network, str):
            network = decoder_networks.make(
                network, self.image_shape, self.dtype_policy
            )
        elif isinstance(network, dict):
            network = keras.saving.deserialize_keras_object(network)
        is_layer = isinstance(network, keras.layers.Layer)
        check_that(is_layer, "be a name or a Keras layer", network=network)
        self.network = network
        if not self.trainable:
            network.trainable = False

    def build(self, input_shape: Any) -> None:
        axes = ("batch", "classes", "components")
        check_axes(self, input_shape, "class poses", *axes, known=True)
        if not self.network.built:
            [(_, (_, features))] = self.inner_layers(input_shape)
            self.network.build((None, features))
        for weight in self.network.weights:
            weight.prunable = False

    def call(
        self,
        inputs: Tensor,
        labels: Tensor | None = None,
        activations: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        classes = inputs.shape[1]
        if training and labels is not None:
            mask = class_targets(labels, classes, inputs.dtype)
            mask = clear_targets(mask, classes)
        else:
            if activations is None:
                activations = length(inputs)
            longest = ops.argmax(activations, axis=-1)
            mask = ops.one_hot(longest, classes, dtype=inputs.dtype)
        return self.decode(inputs, mask)

    def decode(self, poses: Tensor, mask: Tensor) -> Tensor:
        """Returns images of poses `[b, j, d]` that `mask` `[b, j]` selects."""
        masked = poses * ops.expand_dims(mask, -1)
        if self.class_independent:
            vectors = ops.sum(masked, axis=1)
        else:
            features = int(poses.shape[1] * poses.shape[2])
            vectors = ops.reshape(masked, (-1, features))
        # A network of the user's may have a policy of its own.
        images = ops.cast(self.network(vectors), self.compute_dtype)
        return ops.reshape(images, (-1, *self.image_shape))

    def inner_layers(self, input_shape: Any) -> list[Any]:
        _, classes, dim = input_shape
        features = dim if self.class_independent else classes * dim
        return [(self.network, (1, features))]

    def perturbed(self, poses: Tensor, offsets: Any) -> Any:
        """Decodes a sample with one component of its longest pose moved.

        Offsets `[n]` are added to each component of poses `[j, d]`. The images
        `[d, n, *image_shape]` show what a component stands for (Sabour, Frosst,
        Hinton, 2017, figure 4).
        """
        poses = ops.convert_to_numpy(poses)
        classes, dim = poses.shape
        longest = np.argmax(np.linalg.norm(poses, axis=-1))
        moves = np.reshape(offsets, (-1, 1)) * np.eye(dim)[:, None]
        # The same move for all classes; only one is decoded.
        moved = poses + moves.reshape(-1, 1, dim).astype(poses.dtype)
        mask = np.tile(np.eye(classes)[longest], (len(moved), 1))
        images = self.decode(moved, mask.astype(poses.dtype))
        return ops.reshape(images, (dim, -1, *self.image_shape))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self._network_name is not None:
            config["network"] = self._network_name
        return config
