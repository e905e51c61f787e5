"""Networks to prune and compact, and a look at what compaction leaves."""

import keras
import numpy as np

from tests.networks import images_of
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.layers import PrimaryCaps
from tfcaps.losses import MarginLoss
from tfcaps.rem.pruning.masks import target_variables

# Variables that start as constants, which would hide what is mixed up.
CONSTANT = ("bias", "beta", "gamma", "moving_mean", "moving_variance")


def randomized(model, rng):
    """Gives the model random biases and statistics."""
    for weight in model.weights:
        if weight.name in CONSTANT:
            weight.assign(rng.uniform(0.2, 0.6, weight.shape))
    return model


def with_dead_units(model, rng, share=0.4):
    """Sets whole channels and capsules of a model to zero; returns it."""
    for variable in target_variables(model.variables):
        array = np.array(variable)
        if variable.name == "transformation":
            alive = rng.random(array.shape[:-3]) >= share
            alive = alive[..., None, None, None]
        else:
            alive = rng.random(array.shape[-2:]) >= share
        variable.assign(array * alive)
    return model


def fill(variable, where, value=0.0):
    array = np.array(variable)
    array[where] = value
    variable.assign(array)


def silence(layer, units, bias=0.0):
    """Makes channels of a convolution constant before its activation."""
    fill(layer.kernel, np.s_[..., units])
    fill(layer.bias, units, bias)


def compacted(model, atol=SUMS):
    """Returns the compacted model, after a look at its outputs."""
    compact = rem.compact(model)
    inputs = images_of(model, 4)
    expected = keras.tree.flatten(model(inputs))
    outputs = keras.tree.flatten(compact(inputs))
    for output, wanted in zip(outputs, expected, strict=True):
        assert np.any(wanted)
        np.testing.assert_allclose(output, wanted, atol=atol)
    return compact


def assert_same(outputs, expected, atol=1e-6):
    """Compares dicts of outputs of a compacted model and the whole one.

    Couplings `[b, i, ...]` are those of the children left, in their order, and
    a saliency map is a mean over their types.
    """
    assert list(outputs) == list(expected)
    for name, wanted in expected.items():
        value, wanted = np.array(outputs[name]), np.array(wanted)
        if name == "saliency" and wanted.any():
            value, wanted = value / value.max(), wanted / wanted.max()
        if name != "couplings":
            np.testing.assert_allclose(value, wanted, 1e-4, atol)
            continue
        rest = iter(np.moveaxis(wanted, 1, 0))
        for child in np.moveaxis(value, 1, 0):
            assert any(np.allclose(child, w, 1e-4, atol) for w in rest)


def is_left_alone(model):
    return compacted(model).count_params() == model.count_params()


def filters(model, name="first"):
    return model.get_layer(name).filters


def capsnet(*parents, rng):
    """Returns PrimaryCaps of three types and the layers given after them."""
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2, name="primary")(images)
    for layer in parents:
        capsules = layer(capsules)
    return randomized(keras.Model(images, capsules), rng)


def compiled(model, optimizer="adam", loss=None, **options):
    loss = loss or MarginLoss()
    model.compile(optimizer, loss, jit_compile=False, **options)
    return model


def fit(model, images, callbacks=(), **options):
    """Trains and prunes as was set up; returns the history."""
    return model.fit(
        *images,
        verbose=0,
        callbacks=[rem.UpdatePruningStep(), *callbacks],
        **{"batch_size": 8, "shuffle": False, **options},
    ).history
