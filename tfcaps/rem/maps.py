"""Maps of where a class looks, by the couplings with it."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from tfcaps.graphs import encoder
from tfcaps.ops import Tensor, longest, towards_class
from tfcaps.rem.parse.receptive_fields import ReceptiveFields
from tfcaps.rem.parse.trees import TreeNetwork, Trees

Array = NDArray[Any]


def saliency_map(
    activations: Tensor,
    couplings: Tensor,
    image_shape: tuple[int, int],
    *,
    centres: ArrayLike | None = None,
) -> Tensor:
    """Returns a map of the places of the children of a class.

    `E_mn = mean_t a_mnt c_mnt`, enlarged to the image bilinearly.

    The value `E_mn` is drawn at the centre of what these children see, and
    pixels between centres are interpolated. Beyond the outermost centres the
    map falls to 0 within one step of the grid, so that a child there counts no
    more than one in the middle. (Along an axis of one position the map is
    constant.)

    Without centres the grid is stretched over the whole image, as in the paper,
    so that the first child lies in the corner, wherever it looks. After
    convolutions without padding this is off by some pixels: the cells of a
    window of 17 pixels that moves by 2 are at pixels 8, 10, ..., 18 of 28, but
    would be drawn at 1.8, 6.5, ..., 25.2.

    Args:
        activations: Activations `[b, h, w, t]` of the children, the lengths of
            vector capsules.
        couplings: Their couplings `[b, h, w, t]` towards one class.
        image_shape: Rows and columns of an image.
        centres: Row and column `[h, w, 2]` in the image of each position, in
            pixels, the first of which is at 0; as in `receptive_fields`, where
            rows depend on rows alone, columns on columns, and both increase.
            Defaults to `None`, for which the grid is stretched.

    Returns:
        Tensor `[b, rows, columns]`.

    Example:

    >>> halves = ops.full((1, 2, 2, 1), 0.5)
    >>> centres = [[[1, 1], [1, 3]], [[3, 1], [3, 3]]]
    >>> shown = saliency_map(halves, halves, (5, 5), centres=centres)
    >>> ops.convert_to_numpy(shown)[0, 1].tolist()
    [0.125, 0.25, 0.25, 0.25, 0.125]

    References:
        - "Capsule Networks Do Not Need to Model Everything", eq. 16
    """
    grid = ops.mean(activations * couplings, axis=-1, keepdims=True)
    if centres is not None:
        places = np.asarray(centres, np.float64)
        along = places[:, 0, 0], places[0, :, 1]
        rows, columns = (
            ops.convert_to_tensor(_weights(each, side), grid.dtype)
            for each, side in zip(along, image_shape, strict=True)
        )
        grid = ops.matmul(rows, ops.squeeze(grid, axis=-1))
        return ops.matmul(grid, ops.transpose(columns))
    enlarged = ops.image.resize(
        grid,
        image_shape,
        interpolation="bilinear",
        data_format="channels_last",
    )
    return ops.squeeze(enlarged, axis=-1)


def _weights(places: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """Returns the share of the value at each place that a pixel has."""
    if len(places) == 1:
        return np.ones((side, 1))
    first, last = 2 * places[:1] - places[1:2], 2 * places[-1:] - places[-2:-1]
    around = np.concatenate([first, places, last])
    pixels = np.arange(side)
    each = np.eye(len(around))[1:-1]
    return np.stack([np.interp(pixels, around, one) for one in each], axis=-1)


def explanation(model: keras.Model) -> keras.Model:
    """Returns a model that shows why a class was predicted.

    It shares the layers, and so the weights, of `model`. The saliency map
    ignores children that cast no vote because their transformation is zero:
    they influence no class. (Their couplings are not zero; dynamic routing
    couples them equally with all classes.)

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
    model = encoder(model)
    network = TreeNetwork(model)
    known = network.model.output
    classes = longest(known["lengths"])
    towards = towards_class(known["couplings"], classes)
    towards = ops.cast(towards, "float32")
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
        grid = (-1, *self.fields.grid)
        return saliency_map(
            ops.reshape(activations, grid),
            ops.reshape(couplings, grid),
            self.fields.image_shape,
            centres=self.fields.centres,
        )


def tree_maps(
    trees: Trees,
    fields: ReceptiveFields,
    classes: Array | None = None,
) -> Array:
    """Returns maps of where a class looks, by the couplings towards it.

    For the predicted class it is the `saliency` of `explanation`.

    Args:
        trees: Trees of `n` images, with all couplings if `classes` are given.
        fields: The receptive fields of the children, which have more than one
            position.
        classes: Class of each image, `[n]`, ints. Defaults to the predicted
            one.

    Returns:
        Array `[n, rows, columns]`, float32.
    """
    couplings = trees.towards
    if classes is not None:
        of_class = classes[:, np.newaxis, np.newaxis]
        couplings = np.take_along_axis(trees.couplings, of_class, axis=-1)
    grid = (len(trees), *fields.grid)
    maps = saliency_map(
        ops.convert_to_tensor(trees.activations.reshape(grid)),
        ops.convert_to_tensor(couplings.reshape(grid)),
        fields.image_shape,
        centres=fields.centres,
    )
    return ops.convert_to_numpy(maps)


def widened(masks: NDArray[np.bool_], margin: int) -> NDArray[np.bool_]:
    """Returns masks `[n, h, w]` with all pixels up to `margin` beside them."""
    size = (1, 2 * margin + 1, 2 * margin + 1)
    return ndimage.maximum_filter(masks, size, mode="constant", cval=False)
