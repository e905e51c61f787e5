"""The key of each image, where a dictionary only counts them."""

from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.ops import quantize
from tfcaps.rem.batches import predict_batches
from tfcaps.rem.couplings import last_routed_layer, quantize_couplings
from tfcaps.rem.explanation import explanation
from tfcaps.rem.layer_levels import Levels


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
    levels: Levels = 11,
    *,
    mode: str = "midtread",
    batch_size: int = 256,
) -> SampleKeys:
    """Returns which key each image has.

    A `CouplingDictionary` that is updated with them is that of
    `tfcaps.rem.evaluate`.

    Args:
        model: As in `explanation`.
        images: Its input `[n, h, w, c]`.
        levels: As in `quantize_couplings`; those of the last routed layer in
            [2, 256]. Defaults to `11`.
        mode: As in `quantize_couplings`. Defaults to `"midtread"`.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    Raises:
        ValueError: If `levels` is out of range, or as in `explanation`.
    """
    rounded = quantize_couplings(model, levels, mode=mode)
    routing = last_routed_layer(rounded).routing
    if routing.levels is None or routing.levels > 256:
        raise ValueError(
            "The last routed layer must have levels in [2, 256]. Received: "
            f"levels={levels}."
        )
    shown = explanation(rounded)
    wanted = {name: shown.output[name] for name in ("classes", "couplings")}
    parts = list(
        predict_batches(keras.Model(shown.input, wanted), images, batch_size)
    )
    couplings = np.concatenate([part["couplings"] for part in parts])
    codes = keras.ops.convert_to_numpy(
        quantize(couplings, routing.levels, mode=mode)
    )
    classes = np.concatenate([part["classes"] for part in parts])
    return SampleKeys(codes.astype(np.uint8), classes)
