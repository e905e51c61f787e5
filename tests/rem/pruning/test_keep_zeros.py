"""A pruned network that is trained on, resumed, or frozen in between."""

import keras
import numpy as np
import pytest

from tests.compaction import compiled, fit
from tests.networks import tiny_capsnet
from tfcaps import rem
from tfcaps.rem.pruning.masks import target_variables


def rising(step):
    return min(step / 12, 0.8)


STRATEGIES = {
    "magnitudes": lambda m, data: rem.prune_low_magnitude(m, rising),
    "structured": lambda m, data: rem.prune_structured(m, rising),
    "iterative": lambda m, data: rem.prune_iteratively(m, data, tolerance=0.2),
}


def pruned(share=0.5):
    model = tiny_capsnet()
    for weight in target_variables(model.variables):
        array = np.array(weight)
        least = np.quantile(np.abs(array), share)
        weight.assign(array * (np.abs(array) > least))
    return model


def zeros(model):
    return [np.array(w) == 0 for w in target_variables(model.variables)]


@pytest.mark.parametrize("when", ["before", "after", "stripped"])
def test_zeros_stay_and_the_rest_is_trained(when, images):
    model = pruned()
    if when == "after":
        compiled(model)
    assert rem.keep_zeros(model) is model
    if when != "after":
        compiled(model)
    expected, before = zeros(model), model.get_weights()
    callbacks = [rem.UpdatePruningStep()] if when == "before" else []
    model.fit(*images, verbose=0, callbacks=callbacks)
    assert all(map(np.array_equal, zeros(model), expected))
    assert not any(map(np.array_equal, model.get_weights(), before))
    # It has nothing that files would have to hold.
    assert not any("mask" in v.path for v in model.optimizer.variables)
    if when == "stripped":
        rem.strip_pruning(model).fit(*images, verbose=0)
        with pytest.warns(UserWarning, match=r"zeros .* ended, \d+ are left"):
            assert rem.sparsity(model) < 0.1
        assert rem.sparsity(model) < 0.1  # it is said once


def test_a_network_that_is_not_pruned_has_no_zeros_to_keep():
    model = tiny_capsnet()
    with pytest.raises(ValueError, match="must be pruned before"):
        rem.keep_zeros(model)
    rem.prune_low_magnitude(model, rising)
    target_variables(model.variables)[0].assign(0 * np.array(model.weights[0]))
    with pytest.raises(ValueError, match="is being pruned already"):
        rem.keep_zeros(model)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_frozen_in_between_stays_as_it_is(strategy, images):
    model = STRATEGIES[strategy](compiled(tiny_capsnet()), images)
    fit(model, images, epochs=1)
    frozen = model.get_layer("conv")
    frozen.trainable = False
    before, share = frozen.get_weights(), model.pruning.sparsity()
    fit(compiled(model), images, epochs=4)
    assert all(map(np.array_equal, frozen.get_weights(), before))
    assert model.pruning.sparsity() >= share
    if strategy == "magnitudes":
        assert model.pruning.reached() == pytest.approx(0.8, abs=0.02)


class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def dense():
    layers = [keras.Input((8, 8, 1)), keras.layers.Flatten()]
    return keras.Sequential([*layers, keras.layers.Dense(3)])


@pytest.mark.parametrize(
    ("strategy", "network"),
    [
        ("magnitudes", dense),
        pytest.param("structured", tiny_capsnet, marks=pytest.mark.slow),
        pytest.param("iterative", tiny_capsnet, marks=pytest.mark.slow),
    ],
)
def test_a_back_up_may_stand_before_the_masks(
    strategy, network, images, tmp_path
):
    def run(*more):
        keras.utils.set_random_seed(3)
        model = compiled(STRATEGIES[strategy](network(), images))
        back_up = keras.callbacks.BackupAndRestore(tmp_path)
        options = {"batch_size": 8, "shuffle": False, "epochs": 4, "verbose": 0}
        callbacks = [back_up, rem.UpdatePruningStep(), *more]
        model.fit(*images, callbacks=callbacks, **options)
        return model

    whole = run()
    with pytest.raises(KeyboardInterrupt):
        run(Stop())
    resumed = run()
    assert all(map(np.array_equal, zeros(resumed), zeros(whole)))
