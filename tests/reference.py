"""The definitions written as loops in NumPy, as slow and plain as they read."""

import numpy as np


def squash(vector, epsilon=1e-7):
    square = np.sum(vector * vector)
    return square / (1 + square) * vector / np.sqrt(square + epsilon)


def efficient_squash(vector):
    norm = np.sqrt(np.sum(vector * vector))
    return (1 - np.exp(-norm)) / norm * vector if norm else 0 * vector


def softmax(logits):
    exponentials = np.exp(logits - np.max(logits))
    return exponentials / np.sum(exponentials)


def dynamic_routing(
    votes,
    bias,
    iterations,
    epsilon=1e-7,
    leaky=False,
    sharpness=1.0,
    orphan=0.0,
):
    """Returns the poses `[b, j, d]` and the couplings `[b, i, j]`."""
    batch, children, parents, dim = votes.shape
    poses = np.zeros((batch, parents, dim))
    couplings = np.zeros((batch, children, parents))
    for b in range(batch):
        logits = np.zeros((children, parents))
        for iteration in range(iterations):
            for i in range(children):
                rivals = logits[i]
                if leaky:  # at first, the orphan is one of equals
                    rivals = np.append(rivals, orphan if iteration else 0.0)
                couplings[b, i] = softmax(sharpness * rivals)[:parents]
            for j in range(parents):
                total = np.array(bias[j], "float64")
                for i in range(children):
                    total += couplings[b, i, j] * votes[b, i, j]
                poses[b, j] = squash(total, epsilon)
            if iteration < iterations - 1:
                for i in range(children):
                    for j in range(parents):
                        logits[i, j] += votes[b, i, j] @ poses[b, j]
    return poses, couplings


def shortened(votes, activations):
    """Returns votes no longer than the activation of the child."""
    result = np.array(votes, "float64")
    for b, i, j in np.ndindex(votes.shape[:3]):
        length = np.sqrt(np.sum(result[b, i, j] ** 2))
        if length > activations[b, i]:
            result[b, i, j] *= activations[b, i] / length
    return result


def scaled_distance_routing(votes, activations, bias, iterations, scale):
    """Returns the poses `[b, j, d]` and the couplings `[b, i, j]`."""
    votes = shortened(votes, activations)
    batch, children, parents, dim = votes.shape
    poses = np.zeros((batch, parents, dim))
    couplings = np.zeros((batch, children, parents))
    logits = np.zeros((batch, children, parents))
    distances = np.zeros((batch, children, parents))
    for iteration in range(iterations):
        for b, i in np.ndindex(batch, children):
            couplings[b, i] = softmax(logits[b, i])
        for b, j in np.ndindex(batch, parents):
            total = np.array(bias[j], "float64")
            for i in range(children):
                total += couplings[b, i, j] * votes[b, i, j]
            poses[b, j] = squash(total)
        if iteration == iterations - 1:
            break
        for b, i, j in np.ndindex(batch, children, parents):
            difference = poses[b, j] - votes[b, i, j]
            distances[b, i, j] = np.sqrt(difference @ difference)
        for b, i in np.ndindex(batch, children):
            mean = {
                "capsule": distances[b, i],
                "sample": distances[b],
                "batch": distances,
            }[scale].mean()
            likelihood = np.log(0.9 * (parents - 1)) - np.log(0.1)
            factor = likelihood / (0.5 * mean - mean)
            logits[b, i] = factor * distances[b, i]
    return poses, couplings


def em_routing(
    votes, activations, beta_u, beta_a, iterations, final, epsilon=1e-9
):
    """Returns means `[b, j, d]`, activations `[b, j]`, shares `[b, i, j]`."""
    batch, children, parents, dim = votes.shape
    means = np.zeros((batch, parents, dim))
    variances = np.zeros((batch, parents, dim))
    active = np.zeros((batch, parents))
    shares = np.full((batch, children, parents), 1 / parents)
    for b, t in np.ndindex(batch, iterations):
        if t > 0:
            for i in range(children):
                logits = np.log(active[b] + 1e-9)
                for j, d in np.ndindex(parents, dim):
                    square = (votes[b, i, j, d] - means[b, j, d]) ** 2
                    logits[j] -= square / (2 * variances[b, j, d])
                    logits[j] -= 0.5 * np.log(2 * np.pi * variances[b, j, d])
                shares[b, i] = softmax(logits)
        for j in range(parents):
            weights = shares[b, :, j] * activations[b]
            mass = np.sum(weights)
            cost = 0.0
            for d in range(dim):
                mean = np.sum(weights * votes[b, :, j, d]) / (mass + 1e-9)
                squares = (votes[b, :, j, d] - mean) ** 2
                variance = np.sum(weights * squares) / (mass + 1e-9)
                variance += epsilon
                cost += (beta_u[j] + 0.5 * np.log(variance)) * mass
                means[b, j, d], variances[b, j, d] = mean, variance
            temperature = final * (1 - 0.95 ** (t + 1))
            active[b, j] = 1 / (1 + np.exp(-temperature * (beta_a[j] - cost)))
    return means, active, shares


def self_attention_routing(votes, bias, sharpness=1.0):
    """Returns poses and couplings by way of all pairs of children."""
    batch, children, parents, dim = votes.shape
    poses = np.zeros((batch, parents, dim))
    couplings = np.zeros((batch, children, parents))
    for b in range(batch):
        attention = np.zeros((parents, children, children))
        for j, i, k in np.ndindex(attention.shape):
            product = votes[b, i, j] @ votes[b, k, j]
            attention[j, i, k] = product / np.sqrt(dim)
        for i in range(children):
            agreements = np.sum(attention[:, i], axis=1)
            couplings[b, i] = softmax(sharpness * agreements)
        for j in range(parents):
            total = np.zeros(dim)
            for i in range(children):
                share = couplings[b, i, j] + bias[i, j]
                total += share * votes[b, i, j]
            poses[b, j] = efficient_squash(total)
    return poses, couplings


def mean_shift_routing(
    votes,
    activations,
    slots,
    *,
    anchors=None,
    scanned=None,
    width=2.0,
    steps=3,
    epsilon=0.02,
    orphan=0.2,
):
    """Returns poses, activations, couplings and the evidence of each parent.

    `slots` are `[t, j]`; child `i` has type `i % t`. `anchors` `[x, d]` are the
    places that are tried, for all parents, and `scanned` the votes as they are
    for these; by default the votes for each parent, and these votes.
    """
    batch, children, parents, dim = votes.shape
    types = len(slots)
    scanned = votes if scanned is None else scanned
    poses = np.zeros((batch, parents, dim))
    evidence = np.zeros((batch, parents))
    found = np.zeros((batch, children, parents))

    def ratio(mass):
        share = epsilon + (1.0 - epsilon) * min(mass, 1.0)
        return np.log(share) + 0.5 * np.log(1.0 / epsilon)

    def near(vote, place):
        return np.exp(-np.sum((vote - place) ** 2) / (2.0 * width**2))

    def mean_of(weights, b, j, before):
        if weights.sum() <= 0.1:
            return before
        return weights @ votes[b, :, j] / weights.sum()

    for b, j in np.ndindex(batch, parents):
        tried = votes[b, :, j] if anchors is None else anchors
        logs = np.zeros(len(tried))
        for x, place in enumerate(tried):
            for t in range(types):
                mass = sum(
                    activations[b, i] * near(scanned[b, i, j], place)
                    for i in range(t, children, types)
                )
                logs[x] += slots[t, j] * ratio(mass)
        evidence[b, j] = np.log(np.sum(np.exp(logs)))
        poses[b, j] = tried[np.argmax(logs)]
        for step in range(steps):
            amounts = np.array(
                [
                    activations[b, i]
                    * near(votes[b, i, j], poses[b, j])
                    * slots[i % types, j]
                    for i in range(children)
                ]
            )
            for t in range(types):
                amounts[t::types] *= amounts[t::types] / (
                    amounts[t::types].sum() + 1e-9
                )
            if step < steps - 1:
                poses[b, j] = mean_of(amounts, b, j, poses[b, j])
        found[b, :, j] = amounts
    couplings = (1.0 + orphan) * found / (found + orphan)
    active = np.zeros((batch, parents))
    most = max(slots.sum(axis=0).max(), 1.0)
    for b in range(batch):
        couplings[b] *= softmax(evidence[b])
        for j in range(parents):
            poses[b, j] = mean_of(couplings[b, :, j], b, j, poses[b, j])
            total = sum(
                slots[t, j] * ratio(couplings[b, t::types, j].sum())
                for t in range(types)
            )
            active[b, j] = 0.5 + total / (most * np.log(1.0 / epsilon))
    return poses, np.clip(active, 0.0, 1.0), couplings, evidence


def regularized_routing(votes, coefficients, bias):
    """Returns the poses of all samples, coupled alike."""
    batch, children, parents, dim = votes.shape
    poses = np.zeros((batch, parents, dim))
    for b, j in np.ndindex(batch, parents):
        total = np.array(bias[j], "float64")
        for i in range(children):
            total += coefficients[i, j] * votes[b, i, j]
        poses[b, j] = squash(total)
    return poses


def regularized_objective(votes, coefficients, targets, penalty, strength):
    """Returns what the coefficients climb."""
    batch, children, parents, dim = votes.shape
    objective = 0.0
    for j in range(parents):
        for b in range(batch):
            total = np.zeros(dim)
            for i in range(children):
                total += coefficients[i, j] * votes[b, i, j]
            sign = 1 if targets[b, j] else -1
            objective += sign * (total @ total) / batch
        for i in range(children):
            size = abs(coefficients[i, j])
            objective -= strength * (size if penalty == "l1" else size**2)
    return objective


def votes(poses, transformation, share):
    """Returns the votes `[b, i, j, d]` of spatial children `[b, h, w, t, k]`.

    Children are counted row by row, in a row column by column, and at one
    position type by type.
    """
    types, components = poses.shape[3:]
    children = poses.reshape(len(poses), -1, components)
    result = np.zeros((*children.shape[:2], *transformation.shape[-3::2]))
    for b, i, j in np.ndindex(result.shape[:3]):
        which = {None: i, "type": i % types, "all": ()}[share]
        result[b, i, j] = children[b, i] @ transformation[which][j]
    return result


def spread_loss(targets, activations, margin):
    """Returns the loss of each sample, summed over its present classes."""
    losses = np.zeros(len(activations))
    for b, (present, row) in enumerate(zip(targets, activations, strict=True)):
        for t, j in np.ndindex(len(row), len(row)):
            if present[t] and not present[j]:
                losses[b] += max(0.0, margin - (row[t] - row[j])) ** 2
    return losses


def reconstruction_loss(images, reconstructions, weight):
    """Returns the loss of each sample."""
    losses = np.zeros(len(images))
    for b, (image, other) in enumerate(
        zip(images, reconstructions, strict=True)
    ):
        for value, wanted in zip(other.flat, image.flat, strict=True):
            losses[b] += weight * (value - wanted) ** 2
    return losses
