"""Convolutional capsules written as loops in NumPy."""

import itertools

import numpy as np

from tests.reference import softmax


class Windows:
    """Which child lies at which place of which window.

    `same` padding is TensorFlow's: as many windows as steps, and the odd row or
    column of padding after the map.
    """

    def __init__(self, rows, columns, kernel, strides, padding):
        self.map = (rows, columns)
        self.kernel, self.strides = kernel, strides
        self.before, counts = [], []
        for side, window, step in zip(self.map, kernel, strides, strict=True):
            if padding == "same":
                count = int(np.ceil(side / step))
                missing = max((count - 1) * step + window - side, 0)
            else:
                count, missing = (side - window) // step + 1, 0
            counts.append(count)
            self.before.append(missing // 2)
        self.shape = tuple(counts)

    def __iter__(self):
        """Yields a window and a place in it `y, x, p, q`, and the child there.

        The child is `(row, column)`, or `None` outside of the map.
        """
        for place in np.ndindex(*self.shape, *self.kernel):
            y, x, p, q = place
            row = y * self.strides[0] + p - self.before[0]
            column = x * self.strides[1] + q - self.before[1]
            inside = 0 <= row < self.map[0] and 0 <= column < self.map[1]
            yield place, (row, column) if inside else None


def window_votes(poses, transformation, windows, rows=1, share_types=False):
    """Returns votes `[b, y, x, p, q, t, j, d]`; poses have `rows` rows."""
    batch, _, _, types, components = poses.shape
    parents, _, columns = transformation.shape[-3:]
    dim = rows * columns
    shape = (batch, *windows.shape, *windows.kernel, types, parents, dim)
    votes = np.zeros(shape)
    for place, child in windows:
        if child is None:
            continue
        p, q = place[2:]
        for b, t, j in np.ndindex(batch, types, parents):
            matrices = transformation[p, q]
            matrix = matrices[j] if share_types else matrices[t, j]
            pose = poses[b, *child, t].reshape(rows, components // rows)
            votes[b, *place, t, j] = (pose @ matrix).reshape(dim)
    return votes


def routed_windows(votes, route):
    """Routes each window alone; `route` takes and returns one without batch.

    Returns:
        Poses `[b, y, x, j, d]` and couplings `[b, y, x, p, q, t, j]`.
    """
    *outer, rows, columns, types, parents, dim = votes.shape
    poses = np.zeros((*outer, parents, dim))
    couplings = np.zeros(votes.shape[:-1])
    for window in np.ndindex(*outer):
        flat = votes[window].reshape(1, -1, parents, dim)
        pose, coupling = route(flat)
        poses[window] = pose[0]
        couplings[window] = coupling.reshape(rows, columns, types, parents)
    return poses, couplings


def em_windows(votes, activations, windows, beta_u, beta_a, iterations, final):
    """EM routing in which all parents of a child compete for it.

    Returns:
        Means `[b, y, x, j, d]`, activations `[b, y, x, j]` and shares
        `[b, y, x, p, q, t, j]`, which are zero outside of the map.
    """
    batch, _, _, _, _, types, parents, dim = votes.shape
    means = np.zeros((batch, *windows.shape, parents, dim))
    variances = np.zeros_like(means)
    active = np.zeros(means.shape[:-1])
    shares = np.zeros(votes.shape[:-1])
    # Child -> its places in all windows that hold it.
    places = {}
    for place, child in windows:
        if child is not None:
            places.setdefault(child, []).append(place)
    for b, t in itertools.product(range(batch), range(types)):
        for held in places.values():
            for place in held:
                shares[b, *place, t] = 1 / (parents * len(held))
    for step, b in itertools.product(range(1, iterations + 1), range(batch)):
        if step > 1:
            for held, t in itertools.product(places.values(), range(types)):
                logits = [
                    np.log(active[b, y, x, j] + 1e-9)
                    + _log_density(
                        votes[b, y, x, p, q, t, j],
                        means[b, y, x, j],
                        variances[b, y, x, j],
                    )
                    for y, x, p, q in held
                    for j in range(parents)
                ]
                parts = softmax(np.array(logits)).reshape(len(held), parents)
                for place, part in zip(held, parts, strict=True):
                    shares[b, *place, t] = part
        temperature = final * (1 - 0.95**step)
        for y, x, j in np.ndindex(*windows.shape, parents):
            total, mass = np.zeros(dim), 0.0
            members = [
                (shares[b, *place, t, j] * activations[b, *child, t], place, t)
                for place, child in windows
                for t in range(types)
                if child is not None and place[:2] == (y, x)
            ]
            mass = sum(weight for weight, _, _ in members)
            for weight, place, t in members:
                total += weight * votes[b, *place, t, j]
            mean = total / (mass + 1e-9)
            squares = np.zeros(dim)
            for weight, place, t in members:
                squares += weight * (votes[b, *place, t, j] - mean) ** 2
            variance = squares / (mass + 1e-9) + 1e-9
            cost = np.sum(beta_u[j] + 0.5 * np.log(variance)) * mass
            odds = temperature * (beta_a[j] - cost)
            means[b, y, x, j], variances[b, y, x, j] = mean, variance
            active[b, y, x, j] = 1 / (1 + np.exp(-odds))
    return means, active, shares


def _log_density(vote, mean, variance):
    squares = (vote - mean) ** 2 / variance
    return -0.5 * np.sum(squares + np.log(2 * np.pi * variance))
