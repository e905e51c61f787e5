"""`tfcaps.routing.get`, and the settings and shapes that are refused."""

import keras
import numpy as np
import pytest

from tests.refusals import assert_refused, refused
from tests.registry import ROUTINGS
from tfcaps import routing as routings
from tfcaps.routing import (
    DynamicRouting,
    EMRouting,
    RegularizedRouting,
    ScaledDistanceRouting,
    SelfAttentionRouting,
    UniformRouting,
)

NAMES = {
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "regularized": RegularizedRouting,
    "scaled_distance": ScaledDistanceRouting,
    "self_attention": SelfAttentionRouting,
    "uniform": UniformRouting,
}


def test_get_makes_a_routing_from_each_form():
    routing = DynamicRouting(4, gradient="full", levels=11)
    assert routings.get(routing) is routing
    assert routings.get(2).iterations == 2
    for name, make in NAMES.items():
        assert type(routings.get(name)) is make
        assert routings.get(name).get_config() == make().get_config()
    assert set(NAMES.values()) == {case.public_class for case in ROUTINGS}


def test_get_refuses_anything_else():
    message = (
        f"`routing` must be a number of iterations, one of the names "
        f"{sorted(NAMES)}, a config or a `tfcaps.routing.Routing`. Received: "
        f"routing="
    )
    dense = keras.saving.serialize_keras_object(keras.layers.Dense(2))
    for identifier in (True, 2.5, None, "agreement", dense, {}):
        assert_refused(lambda x=identifier: routings.get(x), message)


@pytest.mark.parametrize(
    ("name", "value", "must"),
    [
        ("iterations", 2.5, "be an integer of at least 1"),
        ("iterations", 0, "be an integer of at least 1"),
        ("gradient", "first", "be one of ('last', 'full')"),
        ("levels", 1, "be an integer of at least 2"),
        ("levels", True, "be an integer of at least 2"),
        ("mode", "middle", "be one of ('midtread', 'midrise')"),
    ],
)
def test_every_routing_refuses_the_same_settings(name, value, must):
    said = f"`{name}` must {must}. Received: {name}={value!r}."
    for routing in NAMES.values():
        if name in routing().get_config():
            assert_refused(lambda r=routing: r(**{name: value}), said)


test_wrong_calls_are_refused = refused(
    """
DynamicRouting(sharpness_mode="x")
    must be one of ('fixed', 'scheduled'). Received: sharpness_mode='x'.
DynamicRouting(leaky=True, orphan=float("nan"))
    `orphan` must be a finite number. Received: orphan=nan.
DynamicRouting(orphan=0.1)
    `orphan` needs `leaky=True`
DynamicRouting(silent_parents=-1)
DynamicRouting(silent_parents=1.5)
DynamicRouting(silent_parents=True)
    must be an integer
DynamicRouting(sharpness=0)
DynamicRouting(sharpness=float("inf"))
SelfAttentionRouting(sharpness=-1.0)
SelfAttentionRouting(sharpness=float("nan"))
    `sharpness` must be a finite number above 0
EMRouting(inverse_temperature=0)
    `inverse_temperature` must be a finite number above 0. Received:
EMRouting(epsilon=0.0)
    `epsilon` must be a finite number above 0. Received: epsilon=0.0.
EMRouting(variant="tensorflow")
    `variant` must be one of ('paper', 'code'). Received: variant='tensorflow'.
RegularizedRouting("l3")
    must be one of ('l1', 'l2'). Received: penalty='l3'
RegularizedRouting(strength=-1)
    `strength` must not be negative. Received: strength=-1.
RegularizedRouting(rate=-1)
    `rate` must not be negative. Received: rate=-1.
ScaledDistanceRouting(distance_scale="child")
    one of ('capsule', 'sample', 'batch'). Received: distance_scale='child'.
UniformRouting()(zeros(2, 3, 4))
    [batch, children, parents, components]. Received: shape=(2, 3, 4)
SelfAttentionRouting()(zeros(2, 5, 3, 4), bias=zeros(3, 4))
    [children, parents]. Received: shape=(3, 4) for couplings (2, 5, 3).
""",
    **vars(routings),
    zeros=lambda *shape: np.zeros(shape, "float32"),
)
