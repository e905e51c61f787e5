"""Class lengths of images without their trees, and with these alone."""

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.evaluation.silencing import Silencer
from tfcaps.rem.parse.trees import Trees


def tree_lengths(
    model: keras.Model,
    images: ArrayLike,
    trees: Trees,
    *,
    batch_size: int = 256,
) -> NDArray[np.float32]:
    """Returns the lengths of all classes when parts of a network are silenced.

    Children that are silenced have pose and activation 0, as in
    `tfcaps.rem.faithfulness`.

    Args:
        model: As in `tfcaps.rem.trees`.
        images: Its input `[n, ...]`.
        trees: What `tfcaps.rem.trees` returns for them.
        batch_size: Int. Images in a batch. Defaults to `256`.

    Returns:
        Array `[n, 3, j]`, float32: the lengths as they are, those with the tree
        silenced, and those with all but the tree silenced.

    Raises:
        ValueError: If there is not one tree for each image, or as in
            `tfcaps.rem.trees`.

    Example:

    >>> import numpy as np
    >>> from tfcaps.models import dr_capsnet
    >>> from tfcaps.rem import trees
    >>> network = dr_capsnet((20, 20, 1), 10, filters=4, primary_types=2)
    >>> images = np.zeros((3, 20, 20, 1), "float32")
    >>> tree_lengths(network, images, trees(network, images)).shape
    (3, 3, 10)
    """
    images = np.asarray(images)
    if len(images) != len(trees):
        raise ValueError(
            "There must be one tree for each image. Received: "
            f"{len(images)} images and {len(trees)} trees."
        )
    silencer = Silencer(model, batch_size=batch_size)
    silencer.rows = min(silencer.rows, max(len(images), 1))
    found = [np.zeros((0, 3, silencer.num_classes), "float32")]
    for start in range(0, len(images), batch_size):
        part = slice(start, start + batch_size)
        taken, _ = silencer.below(images[part])
        inside = trees.in_tree[part]
        each = [
            trees.lengths[part],
            silencer.silence(taken, inside, None),
            silencer.silence(taken, ~inside, None),
        ]
        found.append(np.stack(each, axis=1).astype("float32"))
    return np.concatenate(found)
