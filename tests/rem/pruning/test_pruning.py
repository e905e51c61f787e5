"""Pruning during training: schedules, masks, resumption, what undoes it."""

import json
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_optimization as tfmot

import tfcaps
from tests.compaction import compiled, fit
from tests.golden import load
from tests.networks import tiny_capsnet
from tests.tolerance import SUMS, assert_all_close
from tfcaps import rem

_PRUNING = load("11_pruning")
_SCHEDULES = json.loads(str(_PRUNING["schedules_json"]))


def prunable(model):
    return {
        variable.path: keras.ops.convert_to_numpy(variable)
        for variable in model.trainable_variables
        if variable.name in ("kernel", "transformation")
    }


@pytest.mark.parametrize("setting", _SCHEDULES, ids=lambda s: str(s["index"]))
def test_tfmot_schedules_are_read_as_they_are(setting):
    kind = getattr(tfmot.sparsity.keras, setting["kind"])
    arguments = {k: v for k, v in setting.items() if k not in ("index", "kind")}
    schedule = kind(**arguments)
    pruning = rem.prune_low_magnitude(tiny_capsnet(), schedule).pruning
    name = f"schedule{setting['index']}"
    for step, sparsity, update in zip(
        _PRUNING[f"{name}_steps"],
        _PRUNING[f"{name}_sparsity"],
        _PRUNING[f"{name}_update"],
        strict=True,
    ):
        target = pruning._target(int(step))
        assert (target is not None) == update
        if update:
            assert target == pytest.approx(sparsity, abs=SUMS)


def test_masks_during_training_equal_those_of_tfmots_wrapper():
    weights = _PRUNING["wrapper_weights"]
    model = keras.Sequential(
        [keras.Input((weights.shape[0],)), keras.layers.Dense(weights.shape[1])]
    )
    model.layers[0].kernel.assign(weights)
    bias = np.linspace(-0.1, 0.1, weights.shape[1], dtype="float32")
    model.layers[0].bias.assign(bias)
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    setting = json.loads(str(_PRUNING["wrapper_schedule_json"]))
    schedule = tfmot.sparsity.keras.PolynomialDecay(**setting)
    rem.prune_low_magnitude(model, schedule)
    steps, kept = [], []

    def count_kept(batch, logs):
        steps.append(int(model.optimizer.iterations))
        kept.append(np.count_nonzero(model.layers[0].kernel))

    count = keras.callbacks.LambdaCallback(on_train_batch_end=count_kept)
    batches = len(_PRUNING["wrapper_batch"])
    model.fit(
        np.ones((batches, weights.shape[0]), "float32"),
        np.ones((batches, weights.shape[1]), "float32"),
        batch_size=1,
        verbose=0,
        callbacks=[rem.UpdatePruningStep(), count],
    )
    assert steps == _PRUNING["wrapper_pruning_step"].tolist()
    assert kept == _PRUNING["wrapper_kept"].tolist()
    # The wrapper does not prune the bias.
    np.testing.assert_array_equal(model.layers[0].bias, bias)
    np.testing.assert_array_equal(
        model.layers[0].kernel.numpy() != 0, _PRUNING["wrapper_final_mask"] != 0
    )


@pytest.mark.parametrize(
    "jit_compile",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["graph", "xla"],
)
def test_pruned_weights_stay_zero_under_momentum(images, jit_compile):
    model = tiny_capsnet()
    model.compile("adam", tfcaps.losses.MarginLoss(), jit_compile=jit_compile)
    biases = [v for v in model.trainable_variables if v.name == "bias"]
    before = [bias.numpy() for bias in biases]
    rem.prune_low_magnitude(model, lambda step: 0.5 if step >= 3 else 0.0)
    fit(model, images, epochs=3)
    for array in prunable(model).values():
        assert np.mean(array == 0) == pytest.approx(0.5, abs=0.02)
    for bias, old in zip(biases, before, strict=True):
        assert np.all(bias.numpy() != old)
    assert rem.sparsity(model) == pytest.approx(0.5, abs=0.02)


def test_global_scope_prunes_across_weights(images):
    model = compiled(tiny_capsnet())
    kernel = model.get_layer("conv").kernel
    kernel.assign(kernel.numpy() + 10.0)
    rem.prune_low_magnitude(model, lambda step: 0.5, scope="global")
    fit(model, images)
    assert np.all(kernel.numpy() != 0)
    assert rem.sparsity(model) == pytest.approx(0.5, abs=0.02)


def test_keras_schedules_are_followed_until_they_end(images):
    model = compiled(tiny_capsnet())
    schedule = keras.optimizers.schedules.PolynomialDecay(0.0, 4, 0.8, power=3)
    rem.prune_low_magnitude(model, schedule)
    pruning = model.pruning
    targets = [pruning._target(step) for step in range(1, 8)]
    assert [t is not None for t in targets] == [True] * 4 + [False] * 3
    assert targets[3] == pytest.approx(0.8)


@pytest.mark.slow
def test_masks_move_to_a_new_optimizer_and_stripping_frees_weights(images):
    model = rem.prune_low_magnitude(compiled(tiny_capsnet()), lambda step: 0.5)
    fit(model, images)
    zeros = {path: array == 0 for path, array in prunable(model).items()}
    fit(compiled(model), images)
    share = rem.sparsity(model)
    assert rem.strip_pruning(model) is model
    assert rem.sparsity(model) == share
    for path, array in prunable(model).items():
        np.testing.assert_array_equal(array == 0, zeros[path])
    assert all(v.constraint is None for v in model.trainable_variables)
    model.fit(*images, verbose=0)
    with pytest.warns(UserWarning, match="zeros .* ended, 0 are left"):
        assert rem.sparsity(model) < 0.1


def decay_to_a_half(end):
    return tfmot.sparsity.keras.PolynomialDecay(0.0, 0.5, 0, end, frequency=1)


@pytest.mark.slow
def test_pruning_that_did_not_come_to_its_end_is_told(images):
    model = rem.prune_low_magnitude(tiny_capsnet(), decay_to_a_half(6))
    with pytest.warns(UserWarning, match=r"^0\.0% .* not the 50\.0% of the"):
        rem.strip_pruning(model)  # not even compiled
    compiled(model)
    for epochs, callbacks, reached in (
        (4, [], "0.0%"),
        (1, [rem.UpdatePruningStep()], "43.[0-9]%"),
    ):
        rem.prune_low_magnitude(model, decay_to_a_half(6))
        compiled(model).fit(
            *images, batch_size=8, epochs=epochs, verbose=0, callbacks=callbacks
        )
        with pytest.warns(UserWarning, match=f"^{reached} of the weights"):
            rem.strip_pruning(model)
    rem.prune_low_magnitude(model, decay_to_a_half(3))
    fit(compiled(model), images)
    rem.strip_pruning(model)  # a warning would be an error here


def test_own_constraints_act_too_and_come_back(images):
    model = compiled(tiny_capsnet())
    kernel = model.get_layer("conv").kernel
    kernel.constraint = keras.constraints.NonNeg()
    rem.prune_low_magnitude(model, lambda step: 0.3)
    fit(model, images)
    assert np.all(kernel.numpy() >= 0)
    rem.strip_pruning(model)
    assert isinstance(kernel.constraint, keras.constraints.NonNeg)


def test_wrong_arguments_are_errors():
    model, half = tiny_capsnet(), lambda step: 0.5
    begin = rem.prune_low_magnitude
    pruned = begin(tiny_capsnet(), half)
    unweighted = keras.Sequential([keras.Input((3,)), keras.layers.ReLU()])
    for call, said in (
        (lambda: begin(model, 0.5), "`pruning_schedule` must be a function"),
        (lambda: begin(model, half, scope="layer"), "`scope` must be one of"),
        (lambda: begin(unweighted, half), "no trainable kernel and no transf"),
        (lambda: begin(pruned, half), "is being pruned already"),
        (lambda: rem.prune_structured(pruned, half), "is being pruned already"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


@pytest.mark.parametrize("steps_per_execution", [3, 4])
def test_no_update_is_missed_between_executions(images, steps_per_execution):
    schedule = tfmot.sparsity.keras.PolynomialDecay(
        0.0, 0.8, 0, 24, frequency=8
    )
    model = compiled(tiny_capsnet(), steps_per_execution=steps_per_execution)
    rem.prune_low_magnitude(model, schedule)
    first, last = fit(model, images, epochs=2, batch_size=2)["sparsity"]
    assert first == pytest.approx(float(schedule(8)[1]), abs=0.02)
    assert last == pytest.approx(0.8, abs=0.02)


@pytest.mark.slow
def test_the_optimiser_goes_on_after_stripping_saving_and_loading(
    images, tmp_path
):
    model = compiled(tiny_capsnet())
    rem.prune_low_magnitude(model, lambda step: 0.5)
    fit(model, images, batch_size=24)
    before = len(model.optimizer.variables)
    rem.strip_pruning(model)
    assert len(model.optimizer.variables) == before - 3
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        each.fit(*images, shuffle=False, verbose=0)
        assert int(each.optimizer.iterations) == 2
    assert_all_close(model.optimizer.variables, loaded.optimizer.variables)


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True], ids=["use_ema", "swapped"])
def test_averaged_weights_are_pruned_once_more_and_it_is_said(
    swapped, images, tmp_path
):
    model = compiled(
        tiny_capsnet(filters=6),
        keras.optimizers.Adam(use_ema=True, ema_momentum=0.9),
    )
    rem.prune_low_magnitude(model, lambda step: min(0.1 * step, 0.8))
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    with pytest.warns(UserWarning, match=r"of the \d.* pruned weights.*% were"):
        fit(model, images, [swap] if swapped else [], epochs=4)
        rem.strip_pruning(model)
    assert rem.sparsity(model) >= 0.79
    model.save(tmp_path / "stripped.keras")
    loaded = keras.models.load_model(tmp_path / "stripped.keras")
    assert rem.sparsity(loaded) == rem.sparsity(model)


USES = {
    "sparsity": rem.sparsity,
    "classifier": rem.classifier,
    "compact": rem.compact,
    "quantize_couplings": lambda model: rem.quantize_couplings(model, 11),
    "capsule_outputs": rem.capsule_outputs,
}


@pytest.mark.parametrize("name", USES)
def test_masks_act_where_weights_are_used(name):
    model = compiled(tiny_capsnet(filters=6))
    before = model.get_weights()
    rem.prune_low_magnitude(model, lambda step: 0.8)
    model.pruning.begin_step(model, 1)
    sparsity = model.pruning.sparsity()
    model.set_weights(before)
    assert model.pruning.sparsity() < 0.01  # that of the weights
    # A model that shares the layers is pruned with it.
    shared = keras.Model(model.input, model.output)
    with pytest.warns(UserWarning, match="so that 0.0% were pruned and not 8"):
        USES[name](shared)
    assert model.pruning.sparsity() == sparsity > 0.79
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        USES[name](shared)


UNUSED = -1


def step(model, optimizer, images):
    loss = tfcaps.losses.MarginLoss()
    with tf.GradientTape() as tape:
        value = loss(images[1][:4], model(images[0][:4], training=True))
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)


def schedule(step):
    return min(0.2 * (step - 1), 0.8)


@pytest.mark.parametrize("kind", ["set", "compiled", "another", "numbered"])
def test_the_published_order_prunes_step_by_step(kind, images):
    model = tiny_capsnet()
    optimizer = keras.optimizers.Adam()
    if kind != "set":
        model.compile(optimizer)
    rem.prune_low_magnitude(model, schedule)
    if kind == "set":
        model.optimizer = optimizer
    if kind == "another":  # does the steps; Keras applies constraints anyway
        optimizer = keras.optimizers.Adam()
    update = rem.UpdatePruningStep()
    update.set_model(model)
    update.on_train_begin()
    found = []
    for epoch in range(2):
        if kind == "numbered":
            update.on_epoch_begin(epoch)
        for batch in range(3):
            numbered = batch if kind == "numbered" else UNUSED
            update.on_train_batch_begin(batch=numbered)
            step(model, optimizer, images)
            found.append(rem.sparsity(model))
        update.on_epoch_end(batch=UNUSED)
    expected = [schedule(number) for number in range(1, 7)]
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert rem.sparsity(rem.strip_pruning(model)) == pytest.approx(
        0.8, abs=0.01
    )


def test_what_is_missing_is_one_sentence(images):
    update = rem.UpdatePruningStep()
    with pytest.raises(ValueError, match=r"Call `set_model\(model\)` before"):
        update.on_train_begin()
    model = tiny_capsnet()
    update.set_model(model)
    with pytest.raises(ValueError, match="is not being pruned. Call"):
        update.on_train_begin()
    rem.prune_low_magnitude(model, schedule)
    with pytest.raises(ValueError, match="no optimiser.*set `model.optimizer`"):
        update.on_train_begin()
