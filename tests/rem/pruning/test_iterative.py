"""The paper's pruning: the search for a threshold, and what it prunes."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.compaction import compiled, fit
from tests.networks import tiny_capsnet
from tfcaps import rem
from tfcaps.rem.pruning.iterative import largest_threshold


@pytest.fixture
def trained(images):
    """A network that needs some of its weights."""
    keras.utils.set_random_seed(1)
    model = compiled(tiny_capsnet(), keras.optimizers.Adam(2e-2))
    model.fit(*images, epochs=30, batch_size=8, verbose=0)
    return compiled(model, keras.optimizers.SGD(0.0))


def reference(loss_at, most, low, start, high):
    """The search as `algorithms.md` writes it."""
    lo, t, hi = low, start, high
    ok, previous_t, previous_loss, same = 0.0, np.inf, np.inf, 0
    tried = []
    while True:
        tried.append(t)
        loss = loss_at(t)
        if loss <= most:
            ok = t
        if loss > most:
            hi, t = t, (t + lo) / 2
        else:
            lo, t = t, (hi + t) / 2
        same = same + 1 if loss == previous_loss else 0
        if abs(previous_t - t) < 1e-10 or same == 10:
            return ok, tried
        previous_t, previous_loss = t, loss


@pytest.mark.parametrize(
    "loss_at",
    [
        lambda t: 1.0 if t <= 0.3 else 2.0,
        lambda t: 1.0 + t if t > 0.123 else 1.0,
        lambda t: t,
        lambda t: 1.0,
        lambda t: 5.0,
        lambda t: 2.0 if 0.2 < t < 0.25 else 1.0,
        lambda t: 0.5 + abs(np.sin(9 * t)),
    ],
    ids=["step", "ramp", "identity", "flat", "never", "hole", "waves"],
)
def test_the_search_is_that_of_the_paper(loss_at):
    tried = []

    def counted(threshold):
        tried.append(threshold)
        return loss_at(threshold)

    found = largest_threshold(counted, 1.0, 0.0, 0.1, 1.7)
    expected, sequence = reference(loss_at, 1.0, 0.0, 0.1, 1.7)
    assert (found, tried) == (expected, sequence)
    assert found == 0.0 or loss_at(found) <= 1.0


def test_searches_can_be_limited_and_no_number_is_too_high():
    calls = []

    def loss_at(threshold):
        calls.append(threshold)
        return 1.0 if threshold <= 0.3 else float("nan")

    found = largest_threshold(loss_at, 1.0, 0.0, 0.1, 1.7, 12)
    assert len(calls) == 12
    assert found == pytest.approx(0.3, abs=2e-3) and found <= 0.3


def prune(model, images, epochs=1, **settings):
    rem.prune_iteratively(model, images, **settings)
    return fit(model, images, epochs=epochs)


def loss_of(model, images):
    lengths = model.predict(images[0], verbose=0)
    return float(tfcaps.losses.MarginLoss()(images[1], lengths))


@pytest.mark.slow
def test_pruning_does_not_raise_the_validation_loss(images, trained):
    model = compiled(trained, keras.optimizers.Adam(3e-3))
    losses, zeros = [], []

    def note(epoch, logs):
        losses.append(loss_of(model, images))
        arrays = [np.ravel(v.numpy() == 0) for v in model.pruning.variables]
        zeros.append(np.concatenate(arrays))

    watch = keras.callbacks.LambdaCallback(on_epoch_end=note)
    rem.prune_iteratively(model, images)
    prune_now = rem.UpdatePruningStep()
    history = model.fit(
        *images,
        epochs=3,
        batch_size=8,
        verbose=0,
        callbacks=[watch, prune_now, watch],
    ).history
    before, after = losses[::2], losses[1::2]
    assert all(a <= b + 1e-6 for a, b in zip(after, before, strict=True))
    assert 0.0 < history["sparsity"][0] <= history["sparsity"][-1] < 1.0
    assert rem.sparsity(model) == pytest.approx(history["sparsity"][-1])
    for earlier, later in zip(zeros[1:], zeros[2:], strict=False):
        assert earlier.any() and later[earlier].all()  # none comes back


@pytest.mark.slow
def test_one_threshold_holds_for_all_weights(images, trained):
    model = trained
    before = [v.numpy() for v in model.trainable_variables]
    prune(model, images, tolerance=0.2)
    threshold = max(
        np.abs(old[v.numpy() != old]).max(initial=0.0)
        for v, old in zip(model.trainable_variables, before, strict=True)
    )
    assert threshold > 0
    for variable, old in zip(model.trainable_variables, before, strict=True):
        kept = np.abs(variable.numpy()[variable.numpy() != 0])
        if variable.name in ("kernel", "transformation"):
            assert kept.min() > threshold
        else:
            np.testing.assert_array_equal(variable.numpy(), old)


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"tolerance": 100.0, "max_sparsity": 0.3}, 0.3),
        ({"min_accuracy": 1.0}, 0.0),
    ],
)
def test_the_sparsity_is_limited_and_waits_for_an_accuracy(
    settings, share, images
):
    shares = prune(compiled(tiny_capsnet()), images, 2, **settings)["sparsity"]
    assert shares == pytest.approx([share, share], abs=1e-3)


def test_the_decoders_loss_does_not_count(images):
    model = tfcaps.models.with_decoder(tiny_capsnet())
    model.compile(
        keras.optimizers.SGD(0.0),
        {
            "lengths": tfcaps.losses.MarginLoss(),
            "reconstruction": tfcaps.losses.ReconstructionLoss(1e3),
        },
        jit_compile=False,
    )
    rem.prune_iteratively(model, images, tolerance=0.2)
    loss, _ = model.pruning._measure(model)
    assert loss == pytest.approx(
        loss_of(rem.classifier(model), images), rel=1e-5
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [("tolerance", -0.1), ("max_searches", 0), ("max_sparsity", 1.0)],
)
def test_wrong_arguments_are_errors(setting, value, images):
    with pytest.raises(ValueError, match=f"{setting}={value}"):
        rem.prune_iteratively(tiny_capsnet(), images, **{setting: value})
