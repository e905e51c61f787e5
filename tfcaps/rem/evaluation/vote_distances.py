"""Measures the distances of votes from the poses of their parents."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import (
    encoder,
    last_routed_layer,
    same_layers,
)
from tfcaps.layers import ClassCaps, CompactCaps
from tfcaps.layers.routed import child_activations
from tfcaps.ops import Tensor, towards_class
from tfcaps.rem.batches import predict_batches
from tfcaps.rem.parse.couplings import show_last, shown_outputs

_TOWARDS = ("all", "predicted")


@dataclasses.dataclass(frozen=True)
class VoteDistances:
    """Histograms of vote distances, one for each routing iteration.

    Attributes:
        edges: Edges `[n + 1]` of the bins. The first and the last bin also hold
            what lies beyond.
        counts: How many distances are in each bin, `[t, n]`.
        means: Mean distance after each iteration, `[t]`.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    means: NDArray[np.float64]


def vote_distances(
    model: keras.Model,
    images: NDArray[Any],
    *,
    iterations: int | None = None,
    towards: str = "all",
    bins: int = 50,
    batch_size: int = 64,
) -> VoteDistances:
    """Measures the distance of each vote from its parent, as routing goes on.

    It is the Euclidean distance `|û_ij - v_j|`, for each image, child and
    parent of the last routed layer, with the poses `v` after 1, 2, ...
    iterations. Votes are those that children cast; scaled-distance routing
    shortens them before it compares.

    Args:
        model: As in `capsule_outputs`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        iterations: Int. Measure up to this many iterations. Defaults to those
            of the layer's routing, one if it does not iterate.
        towards: `"all"` parents, or the `"predicted"` one. Defaults to `"all"`.
        bins: Int. How many bins reach from the smallest to the largest distance
            in the first batch. Defaults to `50`.
        batch_size: Int. Most images in a batch; all votes of a batch are in
            memory. Defaults to `64`.

    Raises:
        ValueError: If the last routed layer is no `ClassCaps`, or an argument
            is out of range.
    """
    measured = _distances(encoder(model), iterations, towards)
    edges = np.zeros(0)
    counts: Any = 0
    sums: Any = 0.0
    total = 0
    for distances in predict_batches(measured, images, batch_size):
        # [t, b * ...]
        rows = np.moveaxis(distances, 1, 0).reshape(distances.shape[1], -1)
        if not total:
            edges = np.histogram_bin_edges(rows, bins).astype(np.float64)
        clipped = np.clip(rows, edges[0], edges[-1])
        counts = counts + np.stack(
            [np.histogram(row, edges)[0] for row in clipped]
        )
        sums = sums + np.sum(rows, axis=1, dtype=np.float64)
        total += rows.shape[1]
    return VoteDistances(edges, counts, sums / total)


def _distances(
    model: keras.Model, iterations: int | None, towards: str
) -> keras.Model:
    """From images to distances `[b, t, i, j]`, or `[b, t, i]`."""
    if towards not in _TOWARDS:
        raise ValueError(
            f"`towards` must be one of {_TOWARDS}. Received: "
            f"towards={towards!r}."
        )
    layer = last_routed_layer(model)
    if not isinstance(layer, ClassCaps) or isinstance(layer, CompactCaps):
        raise ValueError(
            f"The last routed layer of {model.name!r} is a "
            f"{type(layer).__name__}. Vote distances need all votes of a "
            "`tfcaps.layers.ClassCaps`; of a compact model take the one before."
        )
    shown: dict[str, Tensor] = {}
    copy = same_layers(model, show_last(model, shown, couplings=False))
    outputs = shown_outputs(copy, shown)
    distances = _Distances(layer, iterations)(
        shown["children"], shown.get("activations")
    )
    if towards == "predicted":
        distances = _OfPredicted()(outputs["lengths"], distances)
    return keras.Model(copy.input, distances, name=model.name)


class _Distances(keras.layers.Layer):
    """Routes anew with 1, 2, ... iterations; returns `[b, t, i, j]`."""

    def __init__(self, layer: Any, iterations: int | None):
        super().__init__(dtype=layer.dtype_policy)
        self.layer = layer
        routing = layer.routing
        own: int | None = getattr(routing, "iterations", None)
        if own is None and iterations not in (None, 1):
            raise ValueError(
                f"{type(routing).__name__} does not iterate. Received: "
                f"iterations={iterations}."
            )
        self.routings = [routing]
        if own is not None:
            config = routing.get_config()
            self.routings = [
                type(routing).from_config({**config, "iterations": t + 1})
                for t in range(own if iterations is None else iterations)
            ]

    def call(
        self, children: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        layer = self.layer
        activations = child_activations(children, activations)
        number = math.prod(children.shape[1:-1])
        activations = ops.reshape(activations, (-1, number))
        maps, weights = layer._weights()
        votes = layer._votes(children, maps)
        lengths = votes.lengths()
        distances = [
            votes.distances(
                routing(votes, activations, **weights).poses, lengths
            )
            for routing in self.routings
        ]
        return ops.cast(ops.stack(distances, axis=1), "float32")


class _OfPredicted(keras.layers.Layer):
    """Picks the distances `[b, t, i]` from the longest class."""

    def call(self, lengths: Tensor, distances: Tensor) -> Tensor:
        return towards_class(distances, ops.argmax(lengths, axis=-1))
