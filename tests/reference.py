"""The definitions written in NumPy, as slow and plain as they read.

`route` does what any public routing does, with the settings of that routing.
"""

from types import SimpleNamespace

import numpy as np

from tfcaps import routing as routings


def squash(vectors, epsilon=1e-7):
    square = np.sum(vectors * vectors, axis=-1, keepdims=True)
    return square / (1 + square) * vectors / np.sqrt(square + epsilon)


def efficient_squash(vectors):
    norm = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (1 - np.exp(-norm)) * vectors / np.maximum(norm, 1e-30)


def softmax(logits, axis=-1):
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def rounded(couplings, settings):
    """Returns couplings at their levels; what is half way goes down."""
    levels = settings.levels
    if levels is None:
        return couplings
    if settings.mode == "midtread":
        codes = np.ceil(couplings * (levels - 1) - 0.5)
        return np.clip(codes, 0, levels - 1) / (levels - 1)
    codes = np.ceil(couplings * levels) - 1
    return (np.clip(codes, 0, levels - 1) + 0.5) / levels


def weighted_sum(couplings, votes):
    return np.einsum("bij,bijd->bjd", couplings, votes)


def with_lengths(poses, couplings):
    return poses, np.linalg.norm(poses, axis=-1), couplings


def route(routing, votes, activations=None, **weights):
    """Returns poses `[b, j, d]`, activations `[b, j]`, couplings `[b, i, j]`.

    Args:
        routing: A routing, or its name for the default one.
        votes: Votes `[b, i, j, d]`.
        activations: Those of children `[b, i]`.
        **weights: Weights of the routing by their names.
    """
    routing = routings.get(routing)
    settings = SimpleNamespace(**routing.get_config())
    votes = np.asarray(votes, "float64")
    if activations is not None:
        activations = np.asarray(activations, "float64")
    return _ROUTINGS[type(routing)](settings, votes, activations, **weights)


def _uniform(settings, votes, activations, bias=0.0):
    parents = votes.shape[2] + settings.silent_parents
    even = np.full(votes.shape[1:3], 1 / parents)
    return _regularized(settings, votes, activations, even, bias)


def _dynamic(settings, votes, activations, bias=0.0):
    *shape, parents, _ = votes.shape
    logits = np.zeros((*shape, parents))
    for step in range(settings.iterations):
        rivals = [logits, np.zeros((*shape, settings.silent_parents))]
        if settings.leaky:  # at first the orphan is one of equals
            orphan = settings.orphan if step else 0.0
            rivals.append(np.full((*shape, 1), orphan))
        rivals = settings.sharpness * np.concatenate(rivals, axis=-1)
        couplings = softmax(rivals)[..., :parents]
        if step == settings.iterations - 1:
            couplings = rounded(couplings, settings)
        poses = squash(weighted_sum(couplings, votes) + bias)
        logits = logits + np.einsum("bijd,bjd->bij", votes, poses)
    return with_lengths(poses, couplings)


def _scaled_distance(settings, votes, activations, bias=0.0):
    if activations is not None:  # no vote is longer than its child is active
        lengths = np.linalg.norm(votes, axis=-1)
        shorter = np.minimum(activations[..., None], lengths)
        votes = votes * (shorter / np.maximum(lengths, 1e-30))[..., None]
    scale = {"capsule": 2, "sample": (1, 2), "batch": (0, 1, 2)}
    logits = np.zeros(votes.shape[:3])
    for step in range(settings.iterations):
        couplings = softmax(logits)
        if step == settings.iterations - 1:
            couplings = rounded(couplings, settings)
        poses = squash(weighted_sum(couplings, votes) + bias)
        distances = np.linalg.norm(poses[:, None] - votes, axis=-1)
        axes = scale[settings.distance_scale]
        mean = distances.mean(axis=axes, keepdims=True)
        odds = np.log(0.9 * max(votes.shape[2] - 1, 1) / 0.1)
        logits = odds / (0.5 * mean - mean) * distances
    return with_lengths(poses, couplings)


def _self_attention(settings, votes, activations, bias=0.0):
    """By way of all pairs of children."""
    dim = votes.shape[-1]
    parents = votes.shape[2]
    pairs = np.einsum("bijd,bkjd->bjik", votes, votes) / np.sqrt(dim)
    agreements = settings.sharpness * pairs.sum(axis=-1).swapaxes(1, 2)
    silent = np.zeros((*votes.shape[:2], settings.silent_parents))
    couplings = softmax(np.concatenate([agreements, silent], axis=-1))
    couplings = rounded(couplings[..., :parents], settings)
    poses = efficient_squash(weighted_sum(couplings + bias, votes))
    return with_lengths(poses, couplings)


def _regularized(settings, votes, activations, coefficients, bias=0.0):
    couplings = rounded(np.asarray(coefficients, "float64"), settings)
    couplings = np.broadcast_to(couplings, votes.shape[:3])
    return with_lengths(
        squash(weighted_sum(couplings, votes) + bias), couplings
    )


def _em(settings, votes, activations, beta_u, beta_a, bias=0.0):
    *shape, parents, dim = votes.shape
    is_paper = settings.variant == "paper"
    least, freshness = (1e-9, 1.0) if is_paper else (1e-5, 0.9)
    shares = np.full((*shape, parents), 1 / parents)
    means = 0.0
    for step in range(1, settings.iterations + 1):
        if step == settings.iterations:
            shares = rounded(shares, settings)
        weights = shares * activations[..., None]
        mass = weights.sum(axis=1)
        weights = weights / (mass[:, None] + least)
        fresh = weighted_sum(weights, votes)
        means = freshness * fresh + (1 - freshness) * means
        squares = (votes - means[:, None]) ** 2
        variances = weighted_sum(weights, squares) + settings.epsilon
        if is_paper:
            cost = np.sum(beta_u[:, None] + 0.5 * np.log(variances), axis=-1)
            odds = beta_a - cost * mass
        else:
            room = dim * (np.log(2 * np.pi) + 1) * beta_u
            odds = -mass * (np.log(variances).sum(axis=-1) + room)
            odds = odds - 5000 * beta_a
        odds = settings.inverse_temperature * (1 - 0.95**step) * odds
        active = 1 / (1 + np.exp(-odds))
        density = squares / variances[:, None]
        density = density + np.log(2 * np.pi * variances[:, None])
        logits = np.log(active + 1e-9)[:, None] - 0.5 * density.sum(axis=-1)
        before = shares
        shares = softmax(logits)
    return means + bias, active, before


_ROUTINGS = {
    routings.DynamicRouting: _dynamic,
    routings.EMRouting: _em,
    routings.RegularizedRouting: _regularized,
    routings.ScaledDistanceRouting: _scaled_distance,
    routings.SelfAttentionRouting: _self_attention,
    routings.UniformRouting: _uniform,
}


def regularized_objective(votes, coefficients, targets, penalty, strength):
    """Returns what the coefficients climb."""
    totals = np.einsum("ij,bijd->bjd", coefficients, votes)
    signs = np.where(targets, 1, -1)
    objective = np.sum(signs * np.sum(totals**2, axis=-1)) / len(votes)
    sizes = abs(coefficients) if penalty == "l1" else coefficients**2
    return objective - strength * np.sum(sizes)


def votes(poses, transformation, share):
    """Returns the votes `[b, i, j, d]` of spatial children `[b, h, w, t, k]`.

    Children are counted row by row, in a row column by column, and at one
    position type by type.
    """
    types, components = poses.shape[3:]
    children = poses.reshape(len(poses), -1, components)
    number = children.shape[1]
    which = {
        None: transformation,
        "type": np.tile(transformation, (number // types, 1, 1, 1)),
        "all": np.broadcast_to(transformation, (number, *transformation.shape)),
    }[share]
    return np.einsum("bik,ijkd->bijd", children, which)
