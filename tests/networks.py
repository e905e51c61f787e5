"""Networks small enough for every test that trains or exports one."""

from functools import partial

import keras
import numpy as np
import pytest

from tests.nightly import nightly
from tfcaps import models
from tfcaps.layers import Length

_STEM = {
    "filters": 4,
    "kernel_size": 3,
    "primary_types": 2,
    "primary_dim": 4,
    "primary_kernel_size": 3,
    "class_dim": 4,
}


def tiny_capsnet(num_classes=3, **changes):
    """Returns DR-CapsNet for 8x8 images with a few hundred weights."""
    return models.dr_capsnet((8, 8, 1), num_classes, **{**_STEM, **changes})


def of_capsules(layer, capsules, components):
    """Returns a model from capsules to the lengths of a layer's classes."""
    images = keras.Input((capsules, components), name="images")
    return keras.Model(images, Length()(layer(images)))


def built(layer, shape, weights):
    """Builds a layer with given weights, those of a generator, or its own."""
    layer.build((None, *shape[1:]))
    if weights is None:
        return layer
    if isinstance(weights, np.random.Generator):
        weights = [weights.normal(size=w.shape) for w in layer.get_weights()]
    layer.set_weights(weights)
    return layer


def draw_weights(model, seed, **transformations):
    """Draws weights that are the same on every backend; returns the model.

    Transformations have the deviations given for their layers, by name.
    """
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        layer = weight.path.split("/")[0]
        scale = {"kernel": 0.3, "bias": 0.1}.get(weight.name)
        scale = transformations[layer] if scale is None else scale
        weight.assign(rng.normal(scale=scale, size=weight.shape))
    return model


def sharpened(model, *layers):
    """Returns the model with couplings that differ from the uniform ones."""
    for name in layers or ("class_caps",):
        weight = model.get_layer(name).transformation
        weight.assign(30.0 * weight)
    return model


def images_of(model, count):
    """Returns random images of the size that the model takes."""
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(1).random(shape, dtype=np.float32)


def outputs_of(model, inputs):
    """Returns the arrays that `predict` would, without tracing the model."""
    return keras.tree.map_structure(np.asarray, model(inputs))


def _backbone(channels):
    """Returns a backbone for 9x9 pixels."""
    return keras.Sequential(
        [
            keras.Input((9, 9, channels)),
            keras.layers.Conv2D(4, 3, data_format="channels_last"),
            keras.layers.BatchNormalization(),
        ],
        name="backbone",
    )


def backbone_capsnet(input_shape, num_classes, **settings):
    """Returns `models.backbone_capsnet` on a backbone for 9x9 pixels."""
    return models.backbone_capsnet(
        _backbone(input_shape[-1]),
        num_classes,
        input_shape=input_shape,
        **settings,
    )


def backbone_parts_capsnet(input_shape, num_classes, **settings):
    """Returns `models.backbone_parts_capsnet` on the same backbone."""
    return models.backbone_parts_capsnet(
        _backbone(input_shape[-1]),
        num_classes,
        input_shape=input_shape,
        **settings,
    )


def backbone_constellation_capsnet(input_shape, num_classes, **settings):
    """Returns `models.backbone_constellation_capsnet` on the same backbone."""
    return models.backbone_constellation_capsnet(
        _backbone(input_shape[-1]),
        num_classes,
        input_shape=input_shape,
        **settings,
    )


# Every public network, by its name, for three classes.
SMALL_NETWORKS = {
    "affine_capsnet": partial(models.affine_capsnet, (8, 8, 1), 3, **_STEM),
    "backbone_capsnet": partial(
        backbone_capsnet,
        (8, 8, 1),
        3,
        padding=1,
        primary_types=2,
        primary_dim=4,
        primary_kernel_size=3,
        class_dim=4,
    ),
    "backbone_constellation_capsnet": partial(
        backbone_constellation_capsnet, (8, 8, 1), 3
    ),
    "backbone_parts_capsnet": partial(
        backbone_parts_capsnet,
        (8, 8, 1),
        3,
        primary_types=4,
        primary_dim=4,
        class_dim=4,
    ),
    "constellation_capsnet": partial(
        models.constellation_capsnet,
        (12, 12, 1),
        3,
        part_types=3,
        filters=(4,),
        kernel_size=3,
        window=3,
    ),
    "deepcaps": partial(models.deepcaps, (8, 8, 1), 3, class_dim=4),
    "dr_capsnet": partial(models.dr_capsnet, (8, 8, 1), 3, **_STEM),
    "efficient_capsnet": partial(models.efficient_capsnet, (12, 12, 1), 3),
    "efficient_conv_capsnet": partial(
        models.efficient_conv_capsnet, (36, 36, 1), 3
    ),
    "em_capsnet": partial(
        models.em_capsnet,
        (13, 13, 1),
        3,
        filters=4,
        primary_types=2,
        conv_types=(2, 3),
    ),
    "gamma_capsnet": partial(
        models.gamma_capsnet,
        (8, 8, 1),
        3,
        hidden_capsules=4,
        hidden_dim=4,
        **_STEM,
    ),
    "multilayer_capsnet": partial(
        models.multilayer_capsnet,
        (8, 8, 1),
        3,
        capsules=(4, 3),
        dim=4,
        kernel_size=3,
    ),
    "parts_capsnet": partial(
        models.parts_capsnet,
        (8, 8, 1),
        3,
        filters=(4, 4),
        primary_types=2,
        primary_dim=4,
        class_dim=4,
    ),
}

# Those of many layers, or of the same as others, are left to the slow tests.
_SLOW = (
    "affine_capsnet",
    "backbone_capsnet",
    "backbone_constellation_capsnet",
    "backbone_parts_capsnet",
    "deepcaps",
    "efficient_conv_capsnet",
)
every_network = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else [])
        for name in SMALL_NETWORKS
    ],
)

# Exports of the first are left to `NIGHTLY=1`.
_ALIKE = ("affine_capsnet", "backbone_capsnet", "parts_capsnet")
NETWORKS = [
    pytest.param(name, marks=[nightly] if name in _ALIKE else [])
    for name in SMALL_NETWORKS
]
