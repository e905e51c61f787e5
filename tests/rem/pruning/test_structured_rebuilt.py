"""Structured pruning that goes on with a compacted network."""

import keras
import numpy as np
import pytest

from tests.compaction import compiled, randomized
from tests.networks import SMALL_NETWORKS, every_network, tiny_capsnet
from tests.rem.compaction.test_compact import sharpen
from tfcaps import rem

SHARES = (0.3, 0.55)


def schedule(step):
    return SHARES[step - 1]


@every_network
def test_the_same_units_leave_as_without_rebuilding(name, rng):
    keras.utils.set_random_seed(0)
    model = randomized(compiled(SMALL_NETWORKS[name]()), rng)
    if name not in ("em_capsnet", "deepcaps", "constellation_capsnet"):
        sharpen(model, 5.0)
    settings = {"units": ("filters", "types"), "min_share": 0.2}
    rem.prune_structured(model, schedule, **settings)
    model.pruning.begin_step(model, 1)
    rebuilt = compiled(rem.compact(model))
    sparsity = model.pruning.sparsity()
    model.pruning.begin_step(model, 2)
    expected = rem.compact(model)
    rem.prune_structured(
        rebuilt, schedule, original=SMALL_NETWORKS[name](), **settings
    )
    assert rebuilt.pruning.sparsity() == pytest.approx(sparsity)
    rebuilt.pruning.begin_step(rebuilt, 2)
    assert rebuilt.pruning.reached() == pytest.approx(model.pruning.reached())
    rebuilt = rem.compact(rem.strip_pruning(rebuilt))
    assert rem.multiply_adds(rebuilt) == rem.multiply_adds(expected)
    for layer, wanted in zip(rebuilt.layers, expected.layers, strict=True):
        for array, other in zip(
            layer.get_weights(), wanted.get_weights(), strict=True
        ):
            np.testing.assert_allclose(array, other, 1e-5, 1e-6)


def test_children_that_have_left_keep_their_numbers(rng):
    model = randomized(compiled(tiny_capsnet()), rng)
    settings = {"units": ("types", "children"), "target": "parameters"}
    rem.prune_structured(model, schedule, **settings)
    model.pruning.begin_step(model, 1)
    rebuilt = compiled(rem.compact(model))
    model.pruning.begin_step(model, 2)
    expected = rem.compact(model).get_layer("class_caps")
    rem.prune_structured(rebuilt, schedule, original=model, **settings)
    rebuilt.pruning.begin_step(rebuilt, 2)
    layer = rem.compact(rebuilt).get_layer("class_caps")
    assert 1 < len(layer.origins) < 10
    assert layer.get_config() == expected.get_config()


def test_a_network_of_more_units_is_not_what_is_left_of_another():
    model = compiled(tiny_capsnet(filters=5))
    with pytest.raises(ValueError, match="one with 4 filters that may leave"):
        rem.prune_structured(model, schedule, original=tiny_capsnet())
