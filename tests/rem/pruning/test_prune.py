"""`Prune`: one callback begins a strategy, drives it and ends it."""

import keras
import numpy as np
import pytest

from tests.refusals import refused
from tests.tolerance import assert_all_close
from tfcaps import rem
from tfcaps.rem.pruning.prune import Prune

X = np.random.default_rng(0).normal(size=(64, 6)).astype("float32")
Y = (X[:, 0] > 0).astype(int)
SETTINGS = {"batch_size": 16, "verbose": 0, "shuffle": False}


def network(rate=0.1):
    keras.utils.set_random_seed(0)
    images = keras.Input((6,), name="images")
    hidden = keras.layers.Dense(16, "relu", name="hidden")(images)
    lengths = keras.layers.Dense(2, "softmax", name="lengths")(hidden)
    model = keras.Model(images, lengths)
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy")
    return model


class Shares(keras.callbacks.Callback):
    """Notes the share of zeros after each step."""

    def on_train_begin(self, logs=None):
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.seen.append(rem.sparsity(self.model))


def trained(prune, epochs=4, model=None, **options):
    model = model or network()
    shares = Shares()
    callbacks = [prune, shares, *options.pop("callbacks", ())]
    model.fit(X, Y, epochs=epochs, callbacks=callbacks, **SETTINGS, **options)
    return model, shares.seen


def test_it_is_the_functions_beneath_it():
    model, shares = trained(Prune(0.7, begin=0.25, end=0.75))
    assert model.pruning is None and rem.sparsity(model) == shares[-1]
    assert (
        shares[2]
        == 0.0
        < shares[5]
        < shares[11]
        == pytest.approx(0.7, abs=0.01)
    )
    by_hand = network()

    def schedule(step):
        return 4 <= step <= 12, 0.7 * (1 - (1 - (step - 4) / 8) ** 3)

    rem.prune_low_magnitude(by_hand, schedule, scope="global")
    by_hand.fit(X, Y, epochs=4, callbacks=[rem.UpdatePruningStep()], **SETTINGS)
    rem.strip_pruning(by_hand)
    assert_all_close(model.get_weights(), by_hand.get_weights(), atol=1e-6)


@pytest.mark.parametrize("strategy", ["one_shot", "snip", "iterative"])
def test_every_strategy(strategy):
    data = None if strategy == "one_shot" else (X, Y)
    model, shares = trained(Prune(0.5, strategy, data=data))
    assert 0.0 < rem.sparsity(model) <= 0.51
    first = next(k for k, share in enumerate(shares) if share)
    assert first == {"one_shot": 7, "snip": 0, "iterative": 4}[strategy]


def test_a_resumed_training_ends_as_an_unbroken_one(tmp_path):
    whole, shares = trained(Prune(0.6))
    half = network()

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def backup():
        return keras.callbacks.BackupAndRestore(
            tmp_path, delete_checkpoint=False
        )

    with pytest.raises(KeyboardInterrupt):
        trained(Prune(0.6), model=half, callbacks=[backup(), Stop()])
    again, rest = trained(Prune(0.6), callbacks=[backup()])
    assert rest == shares[8:]
    assert_all_close(again.get_weights(), whole.get_weights(), atol=1e-6)
    # A further training of an old optimiser has a schedule of its own.
    _, third = trained(Prune(0.6), model=whole, epochs=2)
    assert third[-1] == pytest.approx(0.6, abs=0.01)


def test_weights_that_are_restored_after_it_are_told():
    stop = keras.callbacks.EarlyStopping(
        "loss", mode="max", patience=9, restore_best_weights=True
    )
    model, _ = trained(Prune(0.6), callbacks=[stop])
    with pytest.warns(UserWarning, match="must stand before `rem.Prune`"):
        rem.sparsity(model)
    with pytest.warns(UserWarning, match="pruned once more"):
        model, _ = trained(stop, callbacks=[Prune(0.6)])
    assert rem.sparsity(model) == pytest.approx(0.6, abs=0.01)


def test_where_steps_are_not_known_it_prunes_once_an_epoch():
    def batches():
        for _ in range(4):
            yield from (
                (X[k : k + 16], Y[k : k + 16]) for k in range(0, 64, 16)
            )

    class Endless(keras.callbacks.Callback):
        def set_params(self, params):
            params["steps"] = None
            super().set_params(params)

    model, shares = network(), Shares()
    prune = Prune(0.6, begin=0.0, end=1.0)
    model.fit(
        batches(),
        epochs=4,
        steps_per_epoch=4,
        verbose=0,
        shuffle=False,
        callbacks=[Endless(), prune, shares],
    )
    each = np.reshape(shares.seen, (4, 4))
    assert (each == each[:, :1]).all() and len(np.unique(each)) == 4
    assert each[-1, -1] == pytest.approx(0.6, abs=0.01)


test_what_does_not_fit_is_refused = refused(
    """
Prune(1.0)
Prune("0.7")
    `sparsity` must be above 0 and less than 1
Prune(0.5, "random")
    one of ('polynomial', 'one_shot', 'structured', 'snip', 'iterative')
Prune(0.5, begin=0.9)
    the first one first
Prune(0.5, "iterative")
    needs validation images and labels
Prune(0.5, data=1)
    looks at no images
""",
    Prune=Prune,
)
