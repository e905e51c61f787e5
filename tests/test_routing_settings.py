"""`tfcaps.routing.get`, and the settings and shapes that are refused."""

import re

import keras
import numpy as np
import pytest

from tfcaps import routing as routings
from tfcaps.routing import DynamicRouting, Votes


def test_get_makes_a_routing_from_each_form():
    routing = DynamicRouting(4, gradient="full", levels=11)
    assert routings.get(routing) is routing
    assert routings.get(2).iterations == 2
    assert routings.get("dynamic").iterations == 3
    revived = routings.get(routings.serialize(routing))
    assert type(revived) is DynamicRouting
    assert revived.get_config() == routing.get_config()


@pytest.mark.parametrize(
    "identifier",
    [
        True,
        2.5,
        None,
        "agreement",
        keras.saving.serialize_keras_object(keras.layers.Dense(2)),
        {},
    ],
    ids=["bool", "float", "none", "name", "layer", "empty"],
)
def test_get_refuses_anything_else(identifier):
    message = (
        "`routing` must be a number of iterations, one of the names "
        "['dynamic'], a config or a `tfcaps.routing.Routing`. Received: "
        "routing="
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        routings.get(identifier)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"iterations": 2.5},
            "`iterations` must be an integer. Received: iterations=2.5.",
        ),
        (
            {"iterations": True},
            "`iterations` must be an integer. Received: iterations=True.",
        ),
        (
            {"iterations": 0},
            "`iterations` must be at least 1. Received: iterations=0. Use 1 "
            "for equal couplings.",
        ),
        (
            {"gradient": "first"},
            '`gradient` must be "last" or "full". Received: '
            "gradient='first'.",
        ),
        (
            {"levels": 1},
            "`levels` must be an integer of at least 2. Received: levels=1.",
        ),
    ],
    ids=["float", "bool", "zero", "gradient", "levels"],
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        DynamicRouting(**arguments)


def test_votes_of_another_rank_are_refused():
    message = (
        "Votes must have the shape [batch, children, parents, components]. "
        "Received: shape=(2, 3, 4)."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        Votes(np.zeros((2, 3, 4)))
