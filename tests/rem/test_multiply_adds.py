"""Multiply-adds: by hand, against TensorFlow's profiler, and reported."""

import contextlib

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, every_network, tiny_capsnet
from tests.registry import ROUTINGS, parametrize
from tfcaps import models, rem
from tfcaps.parts import ConstellationCaps
from tfcaps.rem.evaluation import evaluate
from tfcaps.rem.multiply_adds import UnknownSizeError
from tfcaps.routing.votes import Votes

# How often each method multiplies votes. Squares count once for both methods.
_PASSES = {
    "sum": 1,
    "weighted_sum": 1,
    "agreement": 1,
    "lengths": 1,
    "distances": 1,
    "weighted_squares": 2,
    "squared_distances": 1,
}


def profile(model):
    """Returns TensorFlow's float operations for one image."""
    import tensorflow as tf

    profiler = tf.compat.v1.profiler
    one = tf.TensorSpec((1, *model.inputs[0].shape[1:]), tf.float32)
    traced = tf.function(lambda x: model(x, training=False), autograph=False)
    options = profiler.ProfileOptionBuilder.float_operation()
    return profiler.profile(
        traced.get_concrete_function(one).graph,
        cmd="op",
        options={**options, "output": "none"},
    ).total_float_ops


# Of published sizes their profile has no other products of note.
@pytest.mark.parametrize(
    "name", ["deepcaps", "dr_capsnet", "efficient_capsnet"]
)
def test_counts_are_within_two_percent_of_the_profiler(name):
    model = getattr(models, name)((28, 28, 1), 10)
    counted = rem.multiply_adds(model)
    assert counted.uncounted == ()
    assert 2 * counted.total == pytest.approx(profile(model), rel=0.02)


# The mean shift takes the components of the votes apart.
@parametrize(ROUTINGS)
def test_routing_passes_over_the_votes_as_often_as_it_says(case, rng):
    passes = 0

    class Counted(Votes):
        def __getattribute__(self, name):
            nonlocal passes
            passes += _PASSES.get(name, 0)
            return super().__getattribute__(name)

    routing = case.make()
    votes = Counted(rng.normal(size=(2, 4, 3, 4)).astype("float32"))
    routing(votes, activations=np.full((2, 4), 0.5, "float32"))
    assert passes == routing.vote_passes


def test_layers_are_counted_by_hand():
    counted = rem.multiply_adds(tiny_capsnet(decoder=True))
    assert counted.per_layer == {
        "conv": 6 * 6 * 3 * 3 * 1 * 4,
        "primary_caps": 2 * 2 * 3 * 3 * 4 * 8,
        "class_caps": 8 * 3 * 4 * (4 + 5),
        "reconstruction": 12 * 512 + 512 * 1024 + 1024 * 64,
    }
    assert counted.total == sum(counted.per_layer.values())
    assert f"{counted.total:,}" in str(counted)


@every_network
def test_every_layer_of_every_network_is_known(name):
    model = SMALL_NETWORKS[name]()
    counted = rem.multiply_adds(model)
    assert counted.uncounted == ()
    assert {"class_caps"} <= set(counted.per_layer)
    if "backbone" in name:
        assert counted.per_layer["backbone"] == 7 * 7 * 3 * 3 * 1 * 4


def test_matrices_and_windows():
    model = SMALL_NETWORKS["em_capsnet"]()
    counted = rem.multiply_adds(model).per_layer
    windows = 3 * 3
    children = 3 * 3 * 2
    passes = 7  # of the votes, by two iterations of EM
    assert counted["conv_caps1"] == windows * children * 2 * 16 * (4 + passes)


def test_unknown_layers_are_named_and_unknown_sizes_refused():
    inputs = keras.Input((6, 4))
    attention = keras.layers.MultiHeadAttention(2, 3, name="attention")
    model = keras.Model(inputs, attention(inputs, inputs))
    assert rem.multiply_adds(model).uncounted == ("attention",)
    assert "not counted: attention" in str(rem.multiply_adds(model))
    images = keras.Input((None, 8, 1))
    model = keras.Model(images, keras.layers.Conv2D(2, 3)(images))
    with pytest.raises(ValueError, match="inputs of a known size"):
        rem.multiply_adds(model)


def test_constellations_are_counted():
    """Of three types at 8x8 places, of which each class has some."""
    places, present = keras.Input((8, 8, 3, 2)), keras.Input((8, 8, 3))
    for settings, slots in (
        ({"max_of_type": 2}, 6),
        ({"max_of_type": 2, "max_parts": 5}, 5),
        ({"max_parts": 5}, 3),
    ):
        layer = ConstellationCaps(4, name="classes", **settings)
        model = keras.Model([places, present], layer(places, present))
        searched, passes = 8 * 8 * 6 + 6 * 8 * 6, 6
        wanted = slots * 4 * (searched + 8 * 8 * 2 * passes)
        assert rem.multiply_adds(model).per_layer == {"classes": wanted}


@pytest.mark.parametrize(
    "error", [UnknownSizeError("of any size"), ValueError("a mistake")]
)
def test_evaluate_swallows_no_error_but_that_of_unknown_sizes(
    error, monkeypatch
):
    def fail(model):
        raise error

    monkeypatch.setattr(evaluate, "multiply_adds", fail)
    data = np.ones((6, 8, 8, 1), "float32"), np.arange(6) % 3
    with contextlib.ExitStack() as stack:
        if type(error) is ValueError:
            stack.enter_context(pytest.raises(ValueError, match="a mistake"))
        assert rem.evaluate(tiny_capsnet(), data).multiply_adds is None
