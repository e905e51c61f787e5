"""The key of each image; a dictionary only counts keys."""

from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.graphs import last_routed_layer
from tfcaps.ops import quantize
from tfcaps.rem.batches import predict_batches
from tfcaps.rem.maps.explanation import explanation
from tfcaps.rem.parse.couplings import quantize_couplings
from tfcaps.rem.parse.layer_levels import Levels
from tfcaps.rem.parse.type_keys import children_grid, pool_types


class SampleKeys(NamedTuple):
    """The parse trees of images, one by one.

    Attributes:
        keys: Codes `[n, i]` (uint8) of all children towards the predicted
            class, or `[n, t]` of all types.
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
    of_types: bool = False,
) -> SampleKeys:
    """Returns which key each image has.

    A `CouplingDictionary` that is updated with them is that of
    `tfcaps.rem.evaluate`: `Report.dictionary`, or `Report.type_dictionary`.

    Args:
        model: As in `explanation`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        levels: As in `quantize_couplings`; those of the last routed layer in
            [2, 256]. Defaults to `11`.
        mode: As in `quantize_couplings`. Defaults to `"midtread"`.
        batch_size: Int. Most images in a batch. Defaults to `256`.
        of_types: Bool. Return keys of types, which do not tell where in the
            image things are, see `pool_types`. Defaults to `False`.

    Raises:
        ValueError: If `levels` is out of range, the children have no positions
            and keys of types are wanted, or as in `explanation`.
    """
    grid = children_grid(model) if of_types else None
    if of_types and grid is None:
        raise ValueError(
            "Keys of types need children at several places, `[b, h, w, t, k]`, "
            "and a `tfcaps.layers.ClassCaps` above them. Received: "
            f"{model.name!r}, whose children have no positions. Leave out "
            "`of_types`."
        )
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
    if grid is not None:
        codes = keras.ops.convert_to_numpy(pool_types(codes, grid))
    classes = np.concatenate([part["classes"] for part in parts])
    return SampleKeys(codes.astype(np.uint8), classes)
