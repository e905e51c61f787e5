"""`tfcaps.routing.get`, and the settings and shapes that are refused."""

import math
import re

import keras
import numpy as np
import pytest

from tests.registry import ROUTINGS, parametrize
from tfcaps import routing as routings
from tfcaps.routing import (
    DynamicRouting,
    EMRouting,
    MeanShiftRouting,
    RegularizedRouting,
    ScaledDistanceRouting,
    SelfAttentionRouting,
    UniformRouting,
    Votes,
)

NAMES = {
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "mean_shift": MeanShiftRouting,
    "regularized": RegularizedRouting,
    "scaled_distance": ScaledDistanceRouting,
    "self_attention": SelfAttentionRouting,
    "uniform": UniformRouting,
}


# What a layer with 6 children and 3 parents of 4 components makes: the shape,
# the first value and whether the optimiser moves it. `None` stands for
# a setting of the routing, its types and the logarithm of its width.
BIAS = {"bias": ((3, 4), 0.1, True)}
WEIGHTS = {
    DynamicRouting: BIAS,
    EMRouting: {"beta_u": ((3,), 0.0, True), "beta_a": ((3,), 0.0, True)},
    MeanShiftRouting: {
        "log_width": ((), None, False),
        "slots": ((None, 3), 1.0, False),
    },
    RegularizedRouting: {**BIAS, "coefficients": ((6, 3), 1 / 3, False)},
    ScaledDistanceRouting: BIAS,
    SelfAttentionRouting: {"bias": ((6, 3), 0.0, True)},
    UniformRouting: BIAS,
}


def test_get_makes_a_routing_from_each_form():
    routing = DynamicRouting(4, gradient="full", levels=11)
    assert routings.get(routing) is routing
    assert routings.get(2).iterations == 2
    for name, make in NAMES.items():
        assert type(routings.get(name)) is make
        assert routings.get(name).get_config() == make().get_config()
    assert set(NAMES.values()) == {case.public_class for case in ROUTINGS}
    config = routings.serialize(DynamicRouting(levels=3))
    del config["config"]["levels_mode"]  # as it was written once
    assert routings.get(config).levels_mode == "midtread"


@parametrize(ROUTINGS)
def test_layer_is_asked_for_the_right_weights(case):
    routing = case.make()
    weights = routing.weights(children=6, parents=3, dim=4)
    expected = WEIGHTS[case.public_class]
    assert weights.keys() == expected.keys()
    for name, (shape, start, trainable) in expected.items():
        weight = weights[name]
        shape = tuple(n or routing.types for n in shape)
        start = math.log(routing.width) if start is None else start
        assert (weight.shape, weight.trainable) == (shape, trainable)
        value = keras.initializers.get(weight.initializer)(weight.shape)
        np.testing.assert_allclose(value, start, rtol=1e-6)


@parametrize(ROUTINGS)
def test_get_revives_what_serialize_wrote(case):
    routing = case.make(levels=3, levels_mode="midrise")
    revived = routings.get(routings.serialize(routing))
    assert type(revived) is case.public_class
    assert revived.get_config() == routing.get_config()
    assert (revived.levels, revived.levels_mode) == (3, "midrise")


def test_get_refuses_anything_else():
    message = (
        f"`routing` must be a number of iterations, one of the names "
        f"{sorted(NAMES)}, a config or a `tfcaps.routing.Routing`. Received: "
        f"routing="
    )
    dense = keras.saving.serialize_keras_object(keras.layers.Dense(2))
    for identifier in (True, 2.5, None, "agreement", dense, {}):
        with pytest.raises(ValueError, match=re.escape(message)):
            routings.get(identifier)


@pytest.mark.parametrize(
    ("name", "value", "must"),
    [
        ("iterations", 2.5, "be an integer"),
        ("iterations", True, "be an integer"),
        ("iterations", 0, "be at least 1"),
        ("gradient", "first", 'be "last" or "full"'),
        ("levels", 1, "be an integer of at least 2"),
        ("levels", True, "be an integer of at least 2"),
        ("levels", 2.5, "be an integer of at least 2"),
        ("levels_mode", "middle", 'be "midtread" or "midrise"'),
    ],
)
def test_every_routing_refuses_the_same_settings(name, value, must):
    said = f"`{name}` must {must}. Received: {name}={value!r}."
    for routing in NAMES.values():
        if name in routing().get_config():
            with pytest.raises(ValueError, match=re.escape(said)):
                routing(**{name: value})


FINITE = "`sharpness` must be a finite number above 0"
POSITIVE = "must be positive. Received: inverse_temperature={}, epsilon={}."
NOT_NEGATIVE = "must not be negative. Received: strength={}, rate={}."


@pytest.mark.parametrize(
    ("routing", "settings", "said"),
    [
        (DynamicRouting, {"sharpness": math.inf}, "Received: sharpness=inf"),
        (DynamicRouting, {"iterations": 0}, "Use 1 for equal couplings"),
        (DynamicRouting, {"sharpness_mode": "x"}, "sharpness_mode='x'"),
        (DynamicRouting, {"leaky": True, "orphan": math.nan}, "orphan=nan"),
        (DynamicRouting, {"leaky": True, "orphan_mode": "x"}, "orphan_mode='x"),
        (DynamicRouting, {"orphan": 0.1}, "need `leaky=True`"),
        (DynamicRouting, {"orphan_mode": "learned"}, "need `leaky=True`"),
        (EMRouting, {"inverse_temperature": 0}, POSITIVE.format(0, 1e-9)),
        (EMRouting, {"epsilon": 0.0}, POSITIVE.format(0.01, 0.0)),
        (MeanShiftRouting, {"types": 0}, "`types` must be integers of at leas"),
        (MeanShiftRouting, {"steps": 0}, "`steps` must be integers of at leas"),
        (MeanShiftRouting, {"width": 0.0}, "`width` must be above 0"),
        (MeanShiftRouting, {"epsilon": 1.0}, "`epsilon` must be above 0 and b"),
        (MeanShiftRouting, {"orphan": -1.0}, "`orphan` must be above 0"),
        (
            RegularizedRouting,
            {"penalty": "l3"},
            "of ('l1', 'l2'). Received: pe",
        ),
        (RegularizedRouting, {"strength": -1}, NOT_NEGATIVE.format(-1, 1e-4)),
        (RegularizedRouting, {"rate": -1}, NOT_NEGATIVE.format(0.001, -1)),
        (
            ScaledDistanceRouting,
            {"distance_scale": "child"},
            "`distance_scale` must be one of ('capsule', 'sample', 'batch'). "
            "Received: distance_scale='child'.",
        ),
        *(
            (DynamicRouting, {"silent_parents": count}, "must be an integer")
            for count in (-1, 1.5, True, None)
        ),
        *(
            (routing, {"sharpness": value}, FINITE)
            for routing in (DynamicRouting, SelfAttentionRouting)
            for value in (0, -1.0, math.nan, math.inf)
        ),
    ],
)
def test_wrong_settings_are_refused(routing, settings, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        routing(**settings)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: Votes(np.zeros((2, 3, 4))),
            "[batch, children, parents, components]. Received: shape=(2, 3,",
        ),
        (
            lambda: SelfAttentionRouting()(
                np.zeros((2, 5, 3, 4), "float32"), bias=np.zeros((3, 4))
            ),
            "must have the shape [children, parents]. Received: shape=(3, 4) "
            "for couplings (2, 5, 3).",
        ),
        (
            lambda: MeanShiftRouting(types=4)(np.zeros((1, 6, 2, 2))),
            "Children must be as many of each of the 4 types.",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()
