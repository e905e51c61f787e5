"""DR-CapsNet, the network of the dynamic routing paper."""

from typing import Any

import keras

from tfcaps.layers import ClassCaps
from tfcaps.models.building_blocks import (
    classic_stem,
    labels_for,
    network,
    routed,
)
from tfcaps.models.with_decoder import with_decoder


def dr_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    filters: int = 256,
    kernel_size: int = 9,
    primary_types: int = 32,
    primary_dim: int = 8,
    primary_kernel_size: int | tuple[int, int] = 9,
    primary_strides: int = 2,
    class_dim: int = 16,
    routing: Any = 3,
    use_bias: bool = True,
    share: str | None = None,
    transformation_initializer: Any = None,
    decoder: bool = False,
    name: str = "dr_capsnet",
) -> keras.Model:
    """Builds DR-CapsNet: convolution, PrimaryCaps, ClassCaps, lengths.

    The defaults are the published network, which has 6,804,384 parameters on
    28x28x1 images and ten classes (6,804,224 with `use_bias=False`), and
    8,215,728 with the decoder. Smaller images need smaller kernels.

    Args:
        input_shape: Rows, columns and channels of an image.
        num_classes: Int. Number of classes.
        filters: Int. Channels of the first convolution. Defaults to `256`.
        kernel_size: Int. Window of the first convolution. Defaults to `9`.
        primary_types: Int. Primary capsule types. Defaults to `32`.
        primary_dim: Int. Components of a primary capsule. Defaults to `8`.
        primary_kernel_size: Int or two ints. Window of PrimaryCaps. Defaults to
            `9`.
        primary_strides: Int. Step of PrimaryCaps. Defaults to `2`.
        class_dim: Int. Components of a class capsule. Defaults to `16`.
        routing: Routing of the class capsules, see `tfcaps.routing.get`.
            Defaults to `3`. `"regularized"` adds an input `labels`, which it
            learns from; prediction gives `None` for it.
        use_bias: Bool. Routing bias of the class capsules. Defaults to `True`.
        share: Sharing of transformations, see `ClassCaps`. Defaults to `None`.
        transformation_initializer: Initializer of the class capsules' matrices.
            Defaults to that of `ClassCaps`.
        decoder: Bool. Add the dense decoder, see `with_decoder`. Defaults to
            `False`.
        name: String. Name of the model. Defaults to `"dr_capsnet"`.

    Returns:
        A functional model from images `[b, h, w, c]` in [0, 1] (input `images`)
        to float32 class lengths `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If the images are too small for the two windows.

    Example:

    >>> dr_capsnet((28, 28, 1), 10).count_params()
    6804384

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          section 4
    """
    images = keras.Input(input_shape, name="images")
    children = classic_stem(
        images,
        filters,
        kernel_size,
        primary_types,
        primary_dim,
        primary_kernel_size,
        primary_strides,
    )
    labels = labels_for(routing)
    layer = ClassCaps(
        num_classes,
        class_dim,
        routing=routing,
        use_bias=use_bias,
        share=share,
        transformation_initializer=transformation_initializer,
        name="class_caps",
    )
    classes = routed(layer, (children, None), labels)
    model = network(images, classes, name, labels)
    return with_decoder(model) if decoder else model
