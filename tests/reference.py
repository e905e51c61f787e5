"""The definitions written as loops in NumPy, as slow and plain as they read."""

import numpy as np


def squash(vector, epsilon=1e-7):
    square = np.sum(vector * vector)
    return square / (1 + square) * vector / np.sqrt(square + epsilon)


def softmax(logits):
    exponentials = np.exp(logits - np.max(logits))
    return exponentials / np.sum(exponentials)


def dynamic_routing(votes, bias, iterations, epsilon=1e-7):
    """Returns the poses `[b, j, d]` and the couplings `[b, i, j]`."""
    batch, children, parents, dim = votes.shape
    poses = np.zeros((batch, parents, dim))
    couplings = np.zeros((batch, children, parents))
    for b in range(batch):
        logits = np.zeros((children, parents))
        for iteration in range(iterations):
            for i in range(children):
                couplings[b, i] = softmax(logits[i])
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


def votes(poses, transformation, share):
    """Returns the votes `[b, i, j, d]` of spatial children `[b, h, w, t, k]`.

    Children are counted row by row, in a row column by column, and at one
    position type by type.
    """
    batch, rows, columns, types, _ = poses.shape
    parents, dim = transformation.shape[-3], transformation.shape[-1]
    result = np.zeros((batch, rows * columns * types, parents, dim))
    for b in range(batch):
        child = 0
        for row in range(rows):
            for column in range(columns):
                for type_ in range(types):
                    matrices = {
                        None: lambda i, t: transformation[i],
                        "type": lambda i, t: transformation[t],
                        "all": lambda i, t: transformation,
                    }[share](child, type_)
                    for j in range(parents):
                        pose = poses[b, row, column, type_]
                        result[b, child, j] = pose @ matrices[j]
                    child += 1
    return result


def margin_loss(targets, lengths, m_plus=0.9, m_minus=0.1, down_weight=0.5):
    """Returns the loss of each sample."""
    losses = np.zeros(len(lengths))
    for b, (present, row) in enumerate(zip(targets, lengths, strict=True)):
        for target, length in zip(present, row, strict=True):
            missed = max(0.0, m_plus - length) ** 2
            false = max(0.0, length - m_minus) ** 2
            losses[b] += target * missed + down_weight * (1 - target) * false
    return losses
