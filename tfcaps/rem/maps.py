"""What a class looks at: maps by couplings, places and pictures of parts."""

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import classifier, last_routed_layer
from tfcaps.ops import (
    Tensor,
    as_float32,
    check_positive,
    check_that,
    longest,
    towards_class,
)
from tfcaps.rem.parse.receptive_fields import ReceptiveFields
from tfcaps.rem.parse.trees import TreeNetwork, Trees


def explanation(model: keras.Model) -> keras.Model:
    """Returns a model that shows why a class was predicted.

    It shares the weights of `model`. The saliency map ignores children without
    a vote. It may be the same for any image: `Faithfulness.saliency` tells.

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
    network = TreeNetwork(classifier(model))
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
    """Draws `saliency_map` in a model, where its weights are no inputs."""

    def __init__(self, fields: ReceptiveFields):
        super().__init__(dtype="float32")
        self.fields = fields

    def call(self, activations: Tensor, couplings: Tensor) -> Tensor:
        return saliency_map(activations, couplings, self.fields)


def saliency_map(
    activations: Tensor, couplings: Tensor, fields: ReceptiveFields
) -> Tensor:
    """Returns a map of the places of the children of a class.

    `E_mn = mean_t a_mnt c_mnt`, drawn at the centre of what these children see;
    pixels between centres are interpolated. Beyond the outermost centres the
    map falls to 0 within one step of the grid. The paper stretches the grid
    over the whole image instead.

    Args:
        activations: As `Trees.activations`, `[b, i]`.
        couplings: As `Trees.towards`, `[b, i]`.
        fields: The receptive fields of the children, of which there is a grid.

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


def blueprints(model: keras.Model) -> NDArray[np.float64] | None:
    """Returns the place of each type of part in each class.

    Args:
        model: A functional or sequential model.

    Returns:
        Array `[j, t, 2]`, float64: rows and columns in pixels from the place of
        class `j` to its part of type `t`, NaN where the class has no such part.
        `None` if the last routed layer is no `ConstellationCaps`.

    Example:

    >>> from tfcaps.models import constellation_capsnet
    >>> network = constellation_capsnet((20, 20, 1), 10, num_types=5)
    >>> blueprints(network).shape
    (10, 5, 2)
    """
    layer = last_routed_layer(classifier(model))
    if not hasattr(layer, "shifts"):
        return None
    shifts = ops.convert_to_numpy(layer.shifts).astype(np.float64)
    slots = ops.convert_to_numpy(layer.slots)
    shifts[slots < 0.5] = np.nan
    return np.swapaxes(shifts, 0, 1)


def part_pictures(
    images: ArrayLike,
    trees: Trees,
    window: int | None = None,
    *,
    count: int = 4,
) -> NDArray[np.float32]:
    """Returns windows of images around some leaves of each type.

    Leaves are the children in a tree. They are drawn at random, of each image
    one before an image gives two.

    Args:
        images: Images `[n, h, w, c]`, uint8 or float.
        trees: What `tfcaps.rem.trees` returns for them.
        window: Int, odd. Rows and columns of a window, in pixels. Defaults to
            `None`, about a third of the shorter side of an image.
        count: Int. Windows of each type, `m`. Defaults to `4`.

    Returns:
        Array `[t, m, window, window, c]`, float32, in the units of the images;
        NaN beyond the border of an image, and where a type has fewer leaves.

    Raises:
        ValueError: If there is not one tree for each image, the children have
            no places, `window` is no odd number above 0, or `count` is below 1.
    """
    images = trees.match(images)
    if window is None:
        window = min(images.shape[1:3]) // 6 * 2 + 1
    check_positive(window=window, count=count)
    check_that(window % 2, "be odd", window=window)
    if not trees.has_places:
        raise ValueError("The children of these trees have no places.")
    half, channels = window // 2, images.shape[-1]
    shape = (trees.num_types, count, window, window, channels)
    pictures = np.full(shape, np.nan, "float32")
    draw = np.random.default_rng(0)
    image, child = draw.permutation(np.argwhere(trees.in_tree)).T
    for kind in range(trees.num_types):
        rows = np.flatnonzero(trees.types[child] == kind)
        _, first = np.unique(image[rows], return_index=True)
        again = np.setdiff1d(np.arange(len(rows)), first)
        chosen = rows[np.concatenate([np.sort(first), again])][:count]
        for n, k in enumerate(chosen):
            middle = np.rint(trees.places[image[k], child[k]]).astype(int)
            low, size = middle - half, np.array(images.shape[1:3])
            start, stop = low.clip(0, size), (low + window).clip(0, size)
            (top, left), (bottom, right) = start - low, stop - low
            pictures[kind, n, top:bottom, left:right] = images[
                image[k], start[0] : stop[0], start[1] : stop[1]
            ]
    return pictures
