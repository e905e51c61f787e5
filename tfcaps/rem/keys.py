"""The key of each image, where a dictionary only counts them."""

from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.ops import quantize
from tfcaps.rem.batches import predict_batches
from tfcaps.rem.couplings import quantize_couplings
from tfcaps.rem.explanation import explanation


class SampleKeys(NamedTuple):
    """The parse trees of images, one by one.

    Attributes:
        keys: Codes `[n, i]` (uint8) of all children towards the predicted
            class.
        predicted: Predicted classes `[n]`, with quantised couplings.
    """

    keys: NDArray[np.uint8]
    predicted: NDArray[np.int32]


def sample_keys(
    model: keras.Model,
    images: NDArray[Any],
    levels: int = 11,
    *,
    batch_size: int = 256,
) -> SampleKeys:
    """Returns which key each image has.

    A `CouplingDictionary` that is updated with them is that of
    `tfcaps.rem.evaluate`.

    Args:
        model: As in `explanation`.
        images: Its input `[n, h, w, c]`.
        levels: Int in [2, 256]. Levels of the couplings. Defaults to `11`.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    Raises:
        ValueError: If `levels` is out of range, or as in `explanation`.
    """
    if not 2 <= levels <= 256:
        raise ValueError(
            f"`levels` must be in [2, 256]. Received: levels={levels}."
        )
    shown = explanation(quantize_couplings(model, levels))
    wanted = {name: shown.output[name] for name in ("classes", "couplings")}
    parts = list(
        predict_batches(keras.Model(shown.input, wanted), images, batch_size)
    )
    couplings = np.concatenate([part["couplings"] for part in parts])
    codes = keras.ops.convert_to_numpy(quantize(couplings, levels))
    classes = np.concatenate([part["classes"] for part in parts])
    return SampleKeys(codes.astype(np.uint8), classes)
