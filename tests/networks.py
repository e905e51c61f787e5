"""A network small enough for every test that trains or exports one."""

import tfcaps


def tiny_capsnet(num_classes=3, **changes):
    """Returns DR-CapsNet for 8x8 images with a few hundred weights."""
    sizes = {
        "filters": 4,
        "kernel_size": 3,
        "primary_types": 2,
        "primary_dim": 4,
        "primary_kernel_size": 3,
        "class_dim": 4,
    }
    return tfcaps.models.dr_capsnet(
        (8, 8, 1), num_classes, **{**sizes, **changes}
    )
