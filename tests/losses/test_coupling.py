"""The loss that wants alike and clear couplings, and how it reaches votes."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.gradients import value_and_gradients
from tests.networks import outputs_of, tiny_capsnet
from tests.refusals import assert_refused, refusals
from tests.tolerance import assert_close
from tfcaps import layers, rem
from tfcaps.losses import CouplingLoss
from tfcaps.routing import DynamicRouting


def by_samples(couplings, labels, spread, polarization, crowding):
    """The formula of the docstring, sample by sample."""
    right = couplings.mean(axis=1).argmax(axis=-1) == labels
    assert {True, False} == set(right)
    losses = np.zeros(len(labels))
    for b in np.flatnonzero(right):
        own, label = couplings[b], labels[b]
        alike = couplings[right & (labels == label)][:, :, label].mean(axis=0)
        deviation = np.mean(np.abs(own[:, label] - alike))
        entropy = np.mean(-np.sum(own * np.log(own), axis=-1))
        excess = max(0.0, own[:, label].mean() - 0.5)
        losses[b] = (
            spread * deviation
            + polarization * entropy / np.log(own.shape[-1])
            + crowding * excess**2
        )
    return losses


@pytest.mark.parametrize(
    "weights",
    [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (3.0, 0.2, 2.0)],
)
def test_it_is_the_formula(weights, rng):
    labels = np.array([0, 2, 0, 1, 2, 0])
    couplings = rng.random((6, 4, 3)).astype("float32")
    couplings[:3, :, 0] += 1.0  # some above a half, some below
    couplings /= couplings.sum(-1, keepdims=True)
    loss = CouplingLoss(*weights, reduction=None)
    expected = by_samples(couplings, labels, *weights)
    np.testing.assert_allclose(loss(labels, couplings), expected, rtol=1e-4)
    negative = np.full((2, 4, 3), -0.5, "float32")  # count as none
    assert float(CouplingLoss(0.0, 1.0)([0, 1], negative)) == 0.0


@pytest.mark.parametrize("iterations", [2, 4])
def test_with_last_gradient_couplings_reach_the_votes_once(rng, iterations):
    """As a softmax of agreements with poses that are constants."""
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    upstream = rng.normal(size=(2, 5, 3)).astype("float32")
    agreed = sum(
        ops.convert_to_numpy(DynamicRouting(t)(votes).poses)
        for t in range(1, iterations)
    )
    _, (gradient,) = value_and_gradients(
        lambda v: DynamicRouting(iterations)(v).couplings,
        votes,
        upstream=upstream,
    )
    _, (wanted,) = value_and_gradients(
        lambda v: ops.softmax(ops.einsum("bijd,bjd->bij", v, agreed)),
        votes,
        upstream=upstream,
    )
    assert_close(gradient, wanted, atol=1e-5)


def test_the_gradient_of_couplings_sets_in_over_the_ramp(rng):
    images = rng.random((4, 8, 8, 1), dtype=np.float32)
    model = tiny_capsnet()
    start = model.get_weights()
    training = rem.add_couplings(model, ramp_steps=4)
    training.compile(
        keras.optimizers.SGD(1e3),
        {
            "lengths": lambda y_true, y_pred: 0.0 * ops.sum(y_pred),
            "couplings": lambda y_true, y_pred: ops.sum(y_pred**2),
        },
        jit_compile=False,
    )
    moved = []
    for _ in range(6):
        model.set_weights(start)
        targets = dict.fromkeys(training.output, np.arange(4) % 3)
        training.train_on_batch(images, targets)
        pairs = zip(model.get_weights(), start, strict=True)
        moved.append(sum(np.abs(new - old).sum() for new, old in pairs))
        training(images)  # no training, no step
    assert_close(
        np.array(moved) / moved[-1], [0, 1 / 4, 2 / 4, 3 / 4, 1, 1], atol=1e-3
    )


def sequential():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.PrimaryCaps(2, 4, kernel_size=5),
            layers.ClassCaps(3, 4, routing=2),
            layers.Length(),
        ]
    )


@pytest.mark.parametrize("make", [tiny_capsnet, sequential])
def test_wanting_couplings_changes_no_output(make, rng):
    images = rng.random((4, 8, 8, 1), dtype=np.float32)
    model = make()
    training = rem.add_couplings(model, ramp_steps=2)
    assert set(training.output) == {"lengths", "couplings"}
    outputs = outputs_of(training, images)
    assert_close(outputs["lengths"], outputs_of(model, images))
    expected = outputs_of(rem.capsule_outputs(model), images)
    np.testing.assert_allclose(outputs["couplings"], expected["couplings"])


def test_a_model_with_a_decoder_gets_the_output_too():
    model = rem.add_couplings(tiny_capsnet(decoder=True))
    assert set(model.output) == {"lengths", "reconstruction", "couplings"}
    assert [tensor.name for tensor in model.inputs] == ["images", "labels"]


@refusals(
    """
add_couplings(tiny_capsnet(), ramp_steps=-1)
    `ramp_steps` must be at least 1
add_couplings(add_couplings(tiny_capsnet()))
    has an output `couplings` already
""",
    add_couplings=rem.add_couplings,
    tiny_capsnet=tiny_capsnet,
)
def test_wrong_calls_are_refused(call, said):
    assert_refused(call, said)
