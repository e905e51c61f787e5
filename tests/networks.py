"""Networks small enough for every test that trains or exports one."""

from functools import partial

import keras
import numpy as np
import pytest

from tfcaps import models
from tfcaps.layers import ClassCaps, Length, PrimaryCaps

_STEM = {
    "filters": 4,
    "kernel_size": 3,
    "primary_types": 2,
    "primary_dim": 4,
    "primary_kernel_size": 3,
}


def made(build, *arguments, decoder=False, **settings):
    """Returns a network, with the dense decoder if it is wanted."""
    model = build(*arguments, **settings)
    return models.with_decoder(model) if decoder else model


def tiny_capsnet(num_classes=3, **changes):
    """Returns DR-CapsNet for 8x8 images with a few hundred weights."""
    changes = {**_STEM, "class_dim": 4, **changes}
    return made(models.dr_capsnet, (8, 8, 1), num_classes, **changes)


def sequential_capsnet(*last):
    """Returns a network for 8x8 images in a row, which may end in others."""
    stack = PrimaryCaps(2, 4, 4, strides=2), ClassCaps(3, 4), *last
    return keras.Sequential([keras.Input((8, 8, 1)), *stack])


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


def sharpened(model, *layers, factor=30.0):
    """Returns the model with couplings that differ from the uniform ones."""
    for name in layers or ("class_caps",):
        weight = model.get_layer(name).transformation
        weight.assign(factor * weight)
    return model


def images_of(model, count):
    """Returns random images of the size that the model takes."""
    shape = (count, *model.inputs[0].shape[1:])
    return np.random.default_rng(1).random(shape, dtype=np.float32)


def outputs_of(model, inputs):
    """Returns the arrays that `predict` would, without tracing the model."""
    return keras.tree.map_structure(np.asarray, model(inputs))


def named_outputs(model, images):
    """Returns outputs without labels, by name; `lengths` if there is one."""
    inputs = images
    if len(model.inputs) > 1:
        inputs = {"images": images, "labels": None}
    outputs = outputs_of(model, inputs)
    return outputs if isinstance(outputs, dict) else {"lengths": outputs}


def on_backbone(make, input_shape, num_classes, **settings):
    """Returns a network on a backbone for 9x9 pixels."""
    backbone = keras.Sequential(
        [
            keras.Input((9, 9, input_shape[-1])),
            keras.layers.Conv2D(4, 3, data_format="channels_last"),
            keras.layers.BatchNormalization(),
        ],
        name="backbone",
    )
    return make(input_shape, num_classes, backbone=backbone, **settings)


_PRIMARY = {
    **{"primary_types": 2, "primary_kernel_size": 3},
    **{"primary_dim": 4, "class_dim": 4},
}
# Every public network, by its name, some also on a backbone: side of the
# images, and settings.
_SETTINGS = {
    "affine_capsnet": (8, _STEM),
    "backbone_dr_capsnet": (8, {"padding": 1, **_PRIMARY}),
    "backbone_constellation_capsnet": (8, {}),
    "backbone_parts_capsnet": (8, {"primary_types": 4}),
    "constellation_capsnet": (
        12,
        {"num_types": 3, "filters": (4,), "kernel_size": 3, "window": 3},
    ),
    "deepcaps": (8, {}),
    "dr_capsnet": (8, _STEM),
    "efficient_capsnet": (12, {}),
    "efficient_conv_capsnet": (36, {}),
    "em_capsnet": (
        13,
        {"filters": 4, "primary_types": 2, "conv_types": (2, 3)},
    ),
    "gamma_capsnet": (8, {"hidden_capsules": 4, **_STEM}),
    "multilayer_capsnet": (8, {"capsules": (4, 3), "kernel_size": 3}),
    "parts_capsnet": (8, {"filters": (4, 4), "primary_types": 2}),
}


def _builder(name):
    build = getattr(models, name.removeprefix("backbone_"))
    return partial(on_backbone, build) if "backbone" in name else build


# The networks for three classes.
SMALL_NETWORKS = {
    name: partial(
        made, _builder(name), (side, side, 1), 3, **{"name": name, **settings}
    )
    for name, (side, settings) in _SETTINGS.items()
}

# Those of many layers, or of the same as others, are left to the slow tests.
_SLOW = (
    "affine_capsnet",
    "backbone_dr_capsnet",
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
