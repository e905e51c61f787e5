"""The losses of networks of parts."""

import numpy as np

from tfcaps.losses import EvidenceLoss, PresenceLoss, constellation_losses


def test_evidence_loss_is_cross_entropy_less_the_evidence(rng):
    evidence = rng.normal(size=(4, 3)).astype("float32")
    labels = np.array([0, 2, 1, 1])
    exponents = np.exp(evidence)
    shares = exponents / exponents.sum(axis=1, keepdims=True)
    rows = np.arange(4)
    expected = -np.log(shares[rows, labels]) - 0.3 * evidence[rows, labels]
    loss = EvidenceLoss(0.3, reduction=None)
    np.testing.assert_allclose(loss(labels, evidence), expected, rtol=1e-5)
    soft = 0.7 * np.eye(3)[labels] + 0.1
    expected = -np.sum(soft * (np.log(shares) + 0.3 * evidence), axis=1)
    np.testing.assert_allclose(loss(soft, evidence), expected, rtol=1e-5)


def test_presence_loss_counts_parts_and_their_ambiguity(rng):
    presence = rng.dirichlet([1.0] * 3, size=(2, 3, 4)).astype("float32")
    types = presence[..., :-1]
    present = types.sum(axis=-1, keepdims=True)
    entropy = -np.sum(types * np.log(types / present), axis=(1, 2, 3))
    expected = 0.2 * present.sum(axis=(1, 2, 3)) + 0.3 * entropy
    loss = PresenceLoss(0.2, 0.3, reduction=None)
    np.testing.assert_allclose(loss(np.zeros(2), presence), expected, rtol=1e-3)


def test_losses_are_named_as_outputs():
    losses = constellation_losses(0.1, 0.2, 0.3, 0.4)
    assert set(losses) == {"evidence", "presence", "reconstruction"}
    assert losses["evidence"].generative == 0.1
    assert losses["presence"].sparsity == 0.2
    assert losses["presence"].ambiguity == 0.3
    assert losses["reconstruction"].weight == 0.4
