"""Measures whether saliency maps tell anything of image and network."""

import dataclasses
import random
from typing import Any

import keras
import numpy as np
from scipy import stats

from tfcaps.graphs import classifier
from tfcaps.models.backbone import FrozenModel
from tfcaps.ops import Array
from tfcaps.rem.batches import predict
from tfcaps.rem.evaluation import words
from tfcaps.rem.maps import explanation
from tfcaps.rem.results import Result

# Maps that are so like those of other images or weights tell nothing.
MOST_ALIKE = 0.5


@dataclasses.dataclass(frozen=True)
class SaliencyChecks(Result):
    """Whether a saliency map is one of its image, and of what was learnt.

    Attributes:
        randomization: Mean rank correlation of the map of an image and that of
            the network with weights as before training.
        other_image: Mean rank correlation of the map of an image and that of
            another one.
    """

    properties = ("specific", "verdict")
    words = words.saliency_rows, words.saliency_verdict

    randomization: float
    other_image: float

    @property
    def specific(self) -> bool:
        """Whether both are at most 0.5."""
        return max(self.randomization, self.other_image) <= MOST_ALIKE


def saliency_checks(model: keras.Model, images: Array) -> SaliencyChecks | None:
    """Compares saliency maps with those of other weights and images.

    Returns `None` of a network without such maps, or of fewer than two images
    `[n, h, w, c]`.

    References:
        - Adebayo et al., 2018, https://arxiv.org/abs/1810.03292
    """
    if len(images) < 2 or "saliency" not in explanation(model).output:
        return None
    maps, others = (
        _maps(network, images)
        for network in (model, with_new_weights(model, seed=0))
    )
    return SaliencyChecks(
        randomization=_alike(maps, others),
        other_image=_alike(maps, np.roll(maps, 1, axis=0)),
    )


def with_new_weights(model: keras.Model, seed: int) -> keras.Model:
    """Returns a model like one before training, but for a frozen backbone."""

    def untrained(layer: Any) -> Any:
        if isinstance(layer, FrozenModel):
            return layer
        try:
            return type(layer).from_config(layer.get_config())
        except (NotImplementedError, TypeError):  # one of the user's own
            return layer

    # From it initializers without a seed take theirs.
    state = random.getstate()
    random.seed(seed)
    try:
        return keras.models.clone_model(
            classifier(model), clone_function=untrained
        )
    finally:
        random.setstate(state)


def _maps(model: keras.Model, images: Array) -> Array:
    """Returns saliency maps, `[n, pixels]`."""
    network = explanation(model)
    network = keras.Model(network.input, network.output["saliency"])
    maps = predict(network, images)
    return np.reshape(maps, (len(images), -1))


def _alike(first: Array, second: Array) -> float:
    """Returns the mean rank correlation of maps, 0 of one that is constant."""
    ranks = [stats.rankdata(maps, axis=-1) for maps in (first, second)]
    ranks = [rank - rank.mean(axis=-1, keepdims=True) for rank in ranks]
    norms = np.prod([np.linalg.norm(rank, axis=-1) for rank in ranks], axis=0)
    products = np.sum(ranks[0] * ranks[1], axis=-1)
    return float(np.mean(products / np.where(norms > 0, norms, 1.0)))
