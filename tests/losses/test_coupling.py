"""Losses of couplings and of what silencing does, and how they reach votes."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.gradients import value_and_gradients
from tests.networks import (
    named_outputs,
    outputs_of,
    sequential_capsnet,
    tiny_capsnet,
)
from tests.refusals import refused
from tests.tolerance import assert_close
from tfcaps import layers, rem
from tfcaps.losses import CounterfactualLoss, CouplingLoss
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


def in_a_row():
    return sequential_capsnet(layers.Length())


def with_decoder():
    return tiny_capsnet(decoder=True)


@pytest.mark.parametrize("make", [tiny_capsnet, in_a_row, with_decoder])
def test_wanting_couplings_changes_no_output(make, rng):
    images = rng.random((4, 8, 8, 1), dtype=np.float32)
    model = make()
    training = rem.add_couplings(model, ramp_steps=2)
    outputs, before = (named_outputs(m, images) for m in (training, model))
    assert outputs.keys() == {*before, "couplings"}
    assert_close(outputs["lengths"], before["lengths"])
    expected = outputs_of(rem.capsule_outputs(model), images)
    np.testing.assert_allclose(outputs["couplings"], expected["couplings"])


test_wrong_calls_are_refused = refused(
    """
add_couplings(tiny_capsnet(), ramp_steps=-1)
    `ramp_steps` must be at least 1
add_couplings(add_couplings(tiny_capsnet()))
    has an output `couplings` already
""",
    add_couplings=rem.add_couplings,
    tiny_capsnet=tiny_capsnet,
)


def of_silenced(outputs, labels, necessity, sufficiency):
    """The formula of the docstring, sample by sample."""
    losses = []
    for (without, alone, lengths), y in zip(outputs, labels, strict=True):
        stays = max(0.0, lengths[y] - 0.1) ** 2
        false = 0.5 * np.maximum(0.0, lengths - 0.1) ** 2
        missed = max(0.0, 0.9 - lengths[y]) ** 2 + np.delete(false, y).sum()
        losses.append(
            necessity * without[y] * stays + sufficiency * alone[y] * missed
        )
    return losses


@pytest.mark.parametrize("weights", [(1, 0), (0, 1), (2.0, 0.5)])
def test_counterfactual_loss_is_the_formula(weights, rng):
    outputs = rng.random((6, 3, 4)).astype("float32")
    longest = np.eye(4)[[0, 1, 2, 3, 0, 1]]
    outputs[:, 0] = np.array([4, 0, 4, 4, 0, 0])[:, None] * longest
    outputs[:, 1] = np.array([0, 3, 0, 0, 0, 3])[:, None] * longest
    # The fourth and the last are wrong, and the fifth is not asked.
    labels = np.array([0, 1, 2, 0, 0, 2])
    loss = CounterfactualLoss(*weights, reduction=None)
    expected = of_silenced(outputs, labels, *weights)
    assert expected[3:] == [0.0, 0.0, 0.0] and max(expected[:3]) > 0.0
    np.testing.assert_allclose(loss(labels, outputs), expected, rtol=1e-5)


def test_with_a_margin_only_differences_count():
    def of(which, activations, label=0):
        rows = np.zeros((2, 3))
        rows[which, 0] = 3.0  # stands for three images
        loss = CounterfactualLoss(2.0, 5.0, margin=0.2, reduction="sum")
        return float(loss([label], [[*rows, activations]]))

    without, alone = 0, 1
    # EM routing without votes, and all a quarter higher.
    for offset in (0.5, 0.75):
        equal = [offset] * 3
        assert of(without, equal) == pytest.approx(2 * 3 * 0.2**2)
        assert of(alone, equal) == pytest.approx(5 * 3 * 2 * 0.2**2)
        ahead = [offset, offset + 0.05, offset - 0.3]
        assert of(without, ahead) == pytest.approx(2 * 3 * 0.15**2, rel=1e-4)
        assert of(alone, ahead) == pytest.approx(5 * 3 * 0.25**2, rel=1e-4)
    assert of(without, [0.5, 0.7, 0.1]) == pytest.approx(0.0, abs=1e-9)
    assert of(alone, [0.7, 0.5, 0.1]) == pytest.approx(0.0, abs=1e-9)
    assert of(without, [0.9, 0.1, 0.1], label=1) == 0.0


def silenced(model, images, place, children_mean):
    """Routes one image, without its tree or with its tree alone."""
    layer = model.get_layer("class_caps")
    children = keras.Model(model.input, layer.input)(images)
    capsules = ops.convert_to_numpy(children)[place]
    poses, couplings = layer(capsules[None], return_couplings=True)
    longest = np.linalg.norm(poses[0], axis=-1).argmax()
    tree = np.asarray(couplings)[0, :, longest] > 1 / 3 + 1e-6
    tree = tree.reshape(*capsules.shape[:-1], 1)
    kept = tree if place % 2 else ~tree
    poses = layer(np.where(kept, capsules, children_mean)[None])[0]
    return np.eye(3)[longest], np.linalg.norm(poses, axis=-1)


@pytest.mark.parametrize("batch", [1, 7, 8])
def test_the_output_is_what_silencing_does(batch, rng):
    images = rng.random((batch, 8, 8, 1), dtype=np.float32)
    model = tiny_capsnet()
    weights = model.get_layer("class_caps").transformation
    weights.assign(10 * weights)  # so that children choose
    outputs = rem.add_couplings(model, counterfactual=True)(images)
    assert set(outputs) == {"lengths", "couplings", "counterfactual"}
    found = ops.convert_to_numpy(outputs["counterfactual"])
    children = keras.Model(model.input, model.get_layer("class_caps").input)
    mean = ops.convert_to_numpy(children(images)).mean(axis=0)
    asked = (batch + 1) // 2
    for place in range(asked):
        other = mean if place in (2, 3) else np.zeros_like(mean)
        longest, lengths = silenced(model, images, place, other)
        alone = place % 2
        stands_for = batch / len(range(alone, asked, 2))
        assert_close(found[place, 2], lengths, atol=1e-5)
        np.testing.assert_allclose(found[place, alone], stands_for * longest)
        assert not found[place, 1 - alone].any()
    assert found.shape == (batch, 3, 3) and not found[asked:].any()
    assert_close(outputs["lengths"], model(images))


@pytest.mark.parametrize("routing", ["em", "self_attention", "regularized"])
def test_it_takes_any_routing_of_class_capsules(routing, rng):
    model = tiny_capsnet(routing=routing)
    images = rng.random((2, 8, 8, 1), dtype=np.float32)
    training = rem.add_couplings(model, ramp_steps=3, counterfactual=True)
    found = named_outputs(training, images)["counterfactual"]
    assert found.shape == (2, 3, 3)
    assert np.all(np.isfinite(found)) and np.all(found >= 0.0)
