"""Reconstruction of an image from the pose of its class capsule."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers import decoder_networks
from tfcaps.ops import Tensor, class_targets, clear_targets, is_integer, length


@keras.saving.register_keras_serializable(package="tfcaps")
class Decoder(keras.layers.Layer):
    """Reconstructs the image from one class capsule, all others being masked.

    In training with `labels` that is the capsule of the label, else the longest
    one. Its weights are not pruned.

    Args:
        image_shape: Rows, columns and channels of an image.
        network: `"dense"` (512, 1024, pixels: dynamic routing),
            `"deconvolution"` (DeepCaps; sides divisible by 4), `"upsampling"`
            (Efficient-CapsNet on smallNORB; sides of at least 24, divisible by
            8), or a Keras layer from a vector to images. Defaults to
            `"dense"`.
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
        ValueError: If an argument is out of range, or the input's shape does
            not fit.

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
        if (
            len(np.shape(image_shape)) != 1
            or len(image_shape) != 3
            or not all(is_integer(side) and side > 0 for side in image_shape)
        ):
            raise ValueError(
                "`image_shape` must be (rows, columns, channels). Received: "
                f"image_shape={image_shape!r}."
            )
        super().__init__(**kwargs)
        rows, columns, channels = image_shape
        self.image_shape = (int(rows), int(columns), int(channels))
        self.class_independent = class_independent
        self._network_name = network if isinstance(network, str) else None
        if isinstance(network, str):
            network = decoder_networks.make(
                network, self.image_shape, self.dtype_policy
            )
        elif isinstance(network, dict):
            network = keras.saving.deserialize_keras_object(network)
        if not isinstance(network, keras.layers.Layer):
            raise ValueError(
                "`network` must be a name or a Keras layer. Received: "
                f"network={network!r}."
            )
        self.network = network
        if not self.trainable:
            network.trainable = False

    def build(self, input_shape: Any) -> None:
        if len(input_shape) != 3 or None in input_shape[1:]:
            raise ValueError(
                "Decoder takes class poses [batch, classes, components]. "
                f"Received: input_shape={tuple(input_shape)}."
            )
        _, classes, dim = input_shape
        features = dim if self.class_independent else classes * dim
        if not self.network.built:
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
        """Reconstructs from the poses `[b, j, d]` that `mask` `[b, j]` selects.

        Returns:
            Images `[b, *image_shape]`.
        """
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

    def compute_output_shape(
        self, input_shape: Any, *shapes: Any, **named_shapes: Any
    ) -> Any:
        del shapes, named_shapes  # of labels and activations
        return (input_shape[0], *self.image_shape)

    def compute_output_spec(
        self,
        inputs: Any,
        labels: Any = None,
        activations: Any = None,
        training: bool | None = None,
    ) -> Any:
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        network: Any = self._network_name
        if network is None:
            network = keras.saving.serialize_keras_object(self.network)
        config = {
            "image_shape": self.image_shape,
            "network": network,
            "class_independent": self.class_independent,
        }
        return {**super().get_config(), **config}


def perturb_dimensions(
    decoder: Decoder,
    poses: Tensor,
    offsets: Any = None,
    activations: Tensor | None = None,
) -> Any:
    """Decodes poses with one component moved at a time.

    How the image changes shows what the component stands for.

    Args:
        decoder: A built `Decoder`.
        poses: Class poses `[b, j, d]`. The longest capsule of each sample is
            decoded.
        offsets: Numbers added to a component, `[n]`. Defaults to the published
            eleven from -0.25 to 0.25.
        activations: What decides which capsule is longest, `[b, j]`. Defaults
            to the lengths of the poses.

    Returns:
        NumPy array of images `[b, d, n, *image_shape]`.

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          figure 4
    """
    poses = ops.convert_to_numpy(poses)
    if activations is None:
        activations = np.linalg.norm(poses, axis=-1)
    if offsets is None:
        offsets = np.linspace(-0.25, 0.25, 11)
    offsets = np.asarray(offsets, poses.dtype)
    batch, classes, dim = poses.shape
    longest = np.argmax(ops.convert_to_numpy(activations), axis=-1)
    mask = np.eye(classes, dtype=poses.dtype)[longest]
    moves = offsets[None, :, None] * np.eye(dim, dtype=poses.dtype)[:, None]
    images = []
    for pose, row in zip(poses, mask, strict=True):
        # [d * n, j, d]: the same move for all classes; only one is decoded.
        moved = pose[None] + moves.reshape(-1, 1, dim)
        masks = np.broadcast_to(row, (len(moved), classes))
        decoded = decoder.decode(ops.convert_to_tensor(moved), masks)
        images.append(ops.convert_to_numpy(decoded))
    shape = (batch, dim, len(offsets), *decoder.image_shape)
    return np.reshape(np.stack(images), shape)
