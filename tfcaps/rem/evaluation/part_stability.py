"""Measures whether trees find the same parts of an image under noise."""

from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.evaluation.known_parts import KnownParts, known_parts
from tfcaps.rem.parse.trees import Trees, trees

Array = NDArray[Any]


def part_stability(
    model: keras.Model,
    images: Array,
    parts: ArrayLike,
    *,
    noise: float = 0.2,
    most: float = 0.25,
    reach: float = 2.5,
    seed: int = 0,
    batch_size: int = 256,
) -> float:
    """Returns the share of images whose found parts stay the same under noise.

    A part is found if a leaf of the tree is at most `reach` pixels from its
    centre, as in `named_parts`. The noise is drawn for each pixel from a normal
    distribution, and cut off.

    Args:
        model: As in `trees`.
        images: Its input `[n, h, w, c]`.
        parts: As in `named_parts`, masks or centres of the object's parts.
        noise: Float. Standard deviation of the noise, in units of the images.
            Defaults to `0.2`.
        most: Float. Noise beyond it is cut off. Defaults to `0.25`.
        reach: Float, above 0, in pixels. Defaults to `2.5`.
        seed: Int. Seed of the noise. Defaults to `0`.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    Returns:
        Float in [0, 1].

    Raises:
        ValueError: As in `trees` and `named_parts`.

    References:
        - Huang et al., 2022, https://arxiv.org/abs/2212.05946 (stability)
    """
    draw = np.random.default_rng(seed)
    images = np.asarray(images)
    added = draw.normal(0.0, noise, images.shape).clip(-most, most)
    before = trees(model, images, batch_size=batch_size)
    noisy = (images + added).astype(np.float32)
    after = trees(model, noisy, batch_size=batch_size)
    known = known_parts(before, parts, None, reach, reach)
    first, second = (_found(known, each) for each in (before, after))
    return float(np.mean(np.all(first == second, axis=1)))


def _found(known: KnownParts, found: Trees) -> Array:
    """Returns which parts are found, bool `[n, parts]`."""
    hits = [known.hits(leaves) for leaves in known.leaves_of(found)]
    return np.concatenate(hits) > 0
