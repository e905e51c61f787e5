"""Maps of where a class looks, by the couplings with it."""

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import encoder
from tfcaps.ops import Tensor, as_float32, longest, towards_class
from tfcaps.rem.parse.receptive_fields import ReceptiveFields
from tfcaps.rem.parse.trees import TreeNetwork


def explanation(model: keras.Model) -> keras.Model:
    """Returns a model that shows why a class was predicted.

    It shares the layers, and so the weights, of `model`. The saliency map
    ignores children that cast no vote because their transformation is zero.

    Args:
        model: As in `capsule_outputs`.

    Returns:
        A functional model from images to a dict: `lengths` `[b, j]`, `classes`
        `[b]` (int32, the longest), `couplings` `[b, i]` towards that class,
        `poses` `[b, j, d]`, and `saliency` `[b, rows, columns]`, see
        `saliency_map`, if the input is an image `[b, rows, columns, c]`, and
        the children of the last routed layer, a `ClassCaps`, have more than one
        position.

    Raises:
        ValueError: If the model has no routed layer, or the last one does not
            make classes.
    """
    network = TreeNetwork(encoder(model))
    known = network.model.output
    classes = longest(known["lengths"])
    towards = as_float32(towards_class(known["couplings"], classes))
    outputs = {
        "lengths": known["lengths"],
        "classes": classes,
        "couplings": towards,
        "poses": network.poses,
    }
    if network.fields is not None:
        outputs["saliency"] = Saliency(network.fields)(
            known["activations"], towards
        )
    return keras.Model(network.model.input, outputs, name=model.name)


class Saliency(keras.layers.Layer):
    """Draws `saliency_map` inside of a model, with constants of its own."""

    def __init__(self, fields: ReceptiveFields):
        super().__init__(name="saliency", dtype="float32")
        self.fields = fields

    def call(self, activations: Tensor, couplings: Tensor) -> Tensor:
        return saliency_map(activations, couplings, self.fields)


def saliency_map(
    activations: Tensor, couplings: Tensor, fields: ReceptiveFields
) -> Tensor:
    """Returns a map of the places of the children of a class.

    `E_mn = mean_t a_mnt c_mnt`, drawn at the centre of what these children see;
    pixels between centres are interpolated. Beyond the outermost centres the
    map falls to 0 within one step of the grid, so that a child there counts no
    more than one in the middle. (Along an axis of one position the map is
    constant.) The paper stretches the grid over the whole image instead.

    Args:
        activations: Activations `[b, i]` of the children: `Trees.activations`.
        couplings: Their couplings `[b, i]` towards one class: `Trees.towards`.
        fields: Their receptive fields, of which there is a grid.

    Returns:
        Tensor `[b, rows, columns]`.

    References:
        - "Capsule Networks Do Not Need to Model Everything", eq. 16
    """
    products = ops.multiply(activations, couplings)
    products = ops.reshape(products, (-1, *fields.grid))
    along = fields.centres[:, 0, 0], fields.centres[0, :, 1]
    rows, columns = (
        ops.convert_to_tensor(weights, products.dtype)
        for weights in map(_weights, along, fields.image_shape)
    )
    drawn = ops.matmul(rows, ops.mean(products, axis=-1))
    return ops.matmul(drawn, ops.transpose(columns))


def _weights(places: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """Returns the share of the value at each place that a pixel has."""
    if len(places) == 1:
        return np.ones((side, 1))
    first, last = 2 * places[:1] - places[1:2], 2 * places[-1:] - places[-2:-1]
    around = np.concatenate([first, places, last])
    pixels = np.arange(side)
    each = np.eye(len(around))[1:-1]
    return np.stack([np.interp(pixels, around, one) for one in each], axis=-1)
