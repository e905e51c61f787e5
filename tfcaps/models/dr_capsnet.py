"""DR-CapsNet, the network of the dynamic routing paper, and three like it."""

from collections.abc import Sequence
from typing import Any

import keras

from tfcaps.layers import ClassCaps, FcCaps
from tfcaps.layers.windows import as_pair
from tfcaps.models import building_blocks
from tfcaps.models.backbone import on_backbone
from tfcaps.ops import Tensor
from tfcaps.routing import DynamicRouting

# Components of all capsules of the network with several layers.
_DIM = 8


def dr_capsnet(
    input_shape: tuple[int, int, int] | None,
    num_classes: int,
    *,
    backbone: keras.Model | None = None,
    class_dim: int = 16,
    routing: Any = 3,
    use_bias: bool = True,
    share: str | None = None,
    name: str = "dr_capsnet",
    **stem: Any,
) -> keras.Model:
    """Builds DR-CapsNet: convolution, PrimaryCaps, ClassCaps, lengths.

    The defaults are the published network, which has 6,804,384 parameters on
    28x28x1 images and ten classes (6,804,224 with `use_bias=False`). Smaller
    images need smaller kernels. `with_decoder` adds the published decoder.

    On a `backbone` the feature map goes through a ReLU and a border of zeros
    into PrimaryCaps and ClassCaps, which alone are trained. The defaults are
    then those of the REM paper on Tiny ImageNet (table 10): on the 7x7x512 map
    of a ResNet-18 36 primary capsules and, for 200 classes, 1,256,584 trainable
    parameters.

    Args:
        input_shape: Rows, columns and channels of an image. On a backbone in
            its scale, resized in the network if need be; `None` is its own.
        num_classes: Int. Number of classes.
        backbone: Trained model from images `[b, h, w, c]` to a feature map
            `[b, rows, columns, channels]`, such as one of `keras.applications`
            with `include_top=False`. It is frozen in place, and works as in
            prediction: batch normalisation keeps its statistics. Defaults to
            `None`.
        class_dim: Int. Components of a class capsule. Defaults to `16`.
        routing: Routing of the class capsules, see `tfcaps.routing.get`.
            Defaults to `3`. `"regularized"` adds an input `labels`, which it
            learns from; prediction gives `None` for it.
        use_bias: Bool. Routing bias of the class capsules. Defaults to `True`.
        share: Sharing of transformations, see `ClassCaps`. Defaults to `None`.
        name: String. Name of the model. Defaults to that of the function.
        **stem: Other sizes. Of the convolution `filters=256` and
            `kernel_size=9`, or `padding=6` of the backbone's map; of
            PrimaryCaps `primary_types=32`, or 1 on a backbone, `primary_dim=8`,
            `primary_kernel_size=9`, an int or two, and `primary_strides=2`.

    Returns:
        A functional model from images `[b, h, w, c]` in [0, 1] (input `images`)
        to float32 class lengths `[b, num_classes]` (output `lengths`).

    Raises:
        ValueError: If an argument is out of range, the images are too small
            for the windows, or the backbone makes no map of them.

    Example:

    >>> dr_capsnet((28, 28, 1), 10).count_params()
    6804384

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          section 4
    """
    # One matrix turns all children alike, so that they add up: at the usual
    # 0.1, not over the root of 1,152 children, every class is long.
    shared = None
    if share == "all":
        shared = keras.initializers.RandomNormal(stddev=0.003)
    if backbone is None:
        images = keras.Input(input_shape, name="images")
        children = _stem(images, **stem)
    else:
        images, features = on_backbone(backbone, input_shape)
        children = _stem_on_map(features, **stem)
    layer = ClassCaps(
        num_classes,
        class_dim,
        routing=routing,
        use_bias=use_bias,
        share=share,
        transformation_initializer=shared,
        name="class_caps",
    )
    return building_blocks.capsule_network(images, children, [layer], name)


def affine_capsnet(
    input_shape: tuple[int, int, int], num_classes: int, **settings: Any
) -> keras.Model:
    """Builds AffCapsNet: DR-CapsNet with uniform couplings and shared matrices.

    Every child has the same transformation towards a class, and every coupling
    is 1/J, so a class pose is the squash of a linear map of the sum of all
    children. It generalises better from MNIST to affNIST than DR-CapsNet does,
    and is the baseline for any routing.

    Arguments, results and errors are those of `dr_capsnet`.

    References:
        - Gu, Tresp, 2020, https://arxiv.org/abs/2003.06854
    """
    defaults = {"routing": "uniform", "share": "all", "name": "affine_capsnet"}
    return dr_capsnet(input_shape, num_classes, **{**defaults, **settings})


def gamma_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    hidden_capsules: int = 32,
    routing: Any = "scaled_distance",
    name: str = "gamma_capsnet",
    **stem: Any,
) -> keras.Model:
    """Builds γ-CapsNet: DR-CapsNet with a hidden layer and another routing.

    The defaults are the published network, which has 7,730,336 parameters on
    28x28x1 images and ten classes. (The published decoder sees all class
    capsules, that of `with_decoder` only one.) What is not listed is that of
    `dr_capsnet`.

    Args:
        hidden_capsules: Int. Capsules of the hidden layer. Defaults to `32`.
        routing: Routing of both layers, see `tfcaps.routing.get`. Defaults to
            `"scaled_distance"`.

    References:
        - Peer, Stabinger, Rodríguez-Sánchez, 2018,
          https://arxiv.org/abs/1812.09707
    """
    images = keras.Input(input_shape, name="images")
    children = _stem(images, **stem)
    hidden = building_blocks.hidden_routing(routing)
    layers = [
        FcCaps(hidden_capsules, 8, routing=hidden, name="hidden_caps"),
        ClassCaps(num_classes, 16, routing=routing, name="class_caps"),
    ]
    return building_blocks.capsule_network(images, children, layers, name)


def multilayer_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    capsules: Sequence[int] = (16, 16, 16, 16),
    kernel_size: int = 9,
    routing: Any = None,
    name: str = "multilayer_capsnet",
) -> keras.Model:
    """Builds the network whose parse trees REM draws over all layers.

    The defaults are its capsule layers: 16, 16, 16, 16 and the classes, all of
    8 components, with dynamic routing. The layers before them are not
    published; here they are a convolution of `16 * 8` channels and depthwise
    PrimaryCaps that see the whole map. What is not listed is that of
    `dr_capsnet`.

    Args:
        capsules: Ints. Capsules of the primary and the hidden layers. Defaults
            to `(16, 16, 16, 16)`.
        kernel_size: Int. Window of the convolution. Defaults to `9`.
        routing: Routing of all layers, see `tfcaps.routing.get`. Defaults to
            `DynamicRouting(gradient="full")`: layers upon layers learn less if
            couplings are constants of the backward pass.

    References:
        - "Capsule Networks Do Not Need to Model Everything", appendix B.1
    """
    if routing is None:
        routing = DynamicRouting(gradient="full")
    if not capsules or min(capsules) < 1:
        raise ValueError(
            "`capsules` must be one or more numbers of at least 1. Received: "
            f"capsules={tuple(capsules)}."
        )
    window = (kernel_size, kernel_size)
    building_blocks.check_input_shape(
        input_shape, window, f"for kernel_size={kernel_size}"
    )
    primary, *hidden = capsules
    images = keras.Input(input_shape, name="images")
    features = building_blocks.Conv2D(
        primary * _DIM, kernel_size, activation="relu", name="conv"
    )(images)
    children = building_blocks.PrimaryCaps(
        primary, _DIM, features.shape[1:3], depthwise=True
    )(features)
    names = [f"hidden_caps{number}" for number in range(1, len(capsules))]
    of_hidden = building_blocks.hidden_routing(routing)
    layers = [
        FcCaps(
            count,
            _DIM,
            routing=routing if layer == "class_caps" else of_hidden,
            # With the usual 0.1, sixteen children make a parent so short that
            # nothing is left of it after four squashes.
            transformation_initializer=keras.initializers.RandomNormal(0, 1),
            name=layer,
        )
        for layer, count in zip(
            (*names, "class_caps"), (*hidden, num_classes), strict=True
        )
    ]
    return building_blocks.capsule_network(images, children, layers, name)


def _stem(
    images: Tensor,
    filters: int = 256,
    kernel_size: int = 9,
    primary_types: int = 32,
    primary_dim: int = 8,
    primary_kernel_size: int | tuple[int, int] = 9,
    primary_strides: int = 2,
) -> Tensor:
    """Returns primary capsules `[b, h', w', types, dim]` as in the paper."""
    rows, columns = as_pair(primary_kernel_size, "primary_kernel_size")
    building_blocks.check_input_shape(
        images.shape[1:],
        (rows + kernel_size - 1, columns + kernel_size - 1),
        f"for kernel_size={kernel_size} and "
        f"primary_kernel_size={primary_kernel_size}",
    )
    features = building_blocks.Conv2D(
        filters, kernel_size, activation="relu", name="conv"
    )(images)
    return building_blocks.PrimaryCaps(
        primary_types, primary_dim, primary_kernel_size, primary_strides
    )(features)


def _stem_on_map(
    features: Tensor,
    padding: int = 6,
    primary_types: int = 1,
    primary_dim: int = 8,
    primary_kernel_size: int = 9,
    primary_strides: int = 2,
) -> Tensor:
    """Returns primary capsules of a backbone's map, as in the REM paper."""
    features = keras.layers.ReLU(name="relu")(features)
    features = keras.layers.ZeroPadding2D(
        padding, data_format="channels_last", name="padding"
    )(features)
    sides, least = features.shape[1:3], primary_kernel_size
    if any(side is not None and side < least for side in sides):
        raise ValueError(
            f"A feature map of {sides[0]} rows and {sides[1]} columns, with "
            f"padding={padding}, is too small for primary_kernel_size={least}."
        )
    return building_blocks.PrimaryCaps(
        primary_types, primary_dim, primary_kernel_size, primary_strides
    )(features)
