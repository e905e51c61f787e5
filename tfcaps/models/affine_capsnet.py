"""AffCapsNet: no routing and one transformation for each class."""

from typing import Any

import keras

from tfcaps.models.dr_capsnet import dr_capsnet


def affine_capsnet(
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    name: str = "affine_capsnet",
    **settings: Any,
) -> keras.Model:
    """Builds AffCapsNet: DR-CapsNet with uniform couplings and shared matrices.

    Every child has the same transformation towards a class, and every coupling
    is 1/J, so a class pose is the squash of a linear map of the sum of all
    children. It generalises better from MNIST to affNIST than DR-CapsNet does,
    and is the baseline for any routing.

    Args:
        input_shape: Rows, columns and channels of an image.
        num_classes: Int. Number of classes.
        name: String. Defaults to `"affine_capsnet"`.
        **settings: Other arguments of `dr_capsnet`.

    Returns:
        As `dr_capsnet`.

    Raises:
        ValueError: If the images are too small for the two windows.

    References:
        - Gu, Tresp, 2020, https://arxiv.org/abs/2003.06854
    """
    defaults = {
        "routing": "uniform",
        "share": "all",
        # The usual 0.1 over the root of 1,152 children: one matrix turns them
        # all alike, so that they add up, and at 0.1 every class is long.
        "transformation_initializer": keras.initializers.RandomNormal(
            stddev=0.003
        ),
    }
    return dr_capsnet(
        input_shape, num_classes, name=name, **{**defaults, **settings}
    )
