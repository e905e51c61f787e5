"""Draws the images that a decoder makes of class capsules."""

from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.viz.drawing import Drawing, figure, show_rows, with_our_look

Array = NDArray[Any]

_OFFSETS = np.linspace(-0.25, 0.25, 11)


@with_our_look
def reconstructions(images: Array, decoded: Array) -> Drawing:
    """Draws images over their reconstructions.

    Args:
        images: Images `[n, h, w, c]` in [0, 1]; a dozen at most look well.
        decoded: Their reconstructions, in the same shape.

    Returns:
        A figure with two rows of pictures.

    Raises:
        ValueError: If the shapes differ.
    """
    if np.shape(images) != np.shape(decoded):
        raise ValueError(
            "Images and reconstructions must have the same shape. Received: "
            f"{np.shape(images)} and {np.shape(decoded)}."
        )
    page, panels = figure(1.1 * len(images) + 0.8, 2.4, 2, len(images))
    show_rows(panels, [images, decoded])
    panels[0, 0].set_ylabel("image")
    panels[1, 0].set_ylabel("decoded")
    return page


@with_our_look
def perturbations(
    decoder: Any, poses: Array, activations: Array | None = None
) -> Drawing:
    """Draws how the reconstruction changes with each component of the pose.

    Args:
        decoder: A built `tfcaps.layers.Decoder`.
        poses: Class poses `[j, d]` of one sample, of which the longest capsule
            is decoded.
        activations: What decides which capsule is longest, `[j]`. Defaults to
            the lengths of the poses.

    Returns:
        A figure with a row for each component and a column for each of the
        eleven published offsets, from -0.25 to 0.25.

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          figure 4
    """
    decoded = perturbed(decoder, poses, _OFFSETS, activations)
    rows, columns = decoded.shape[:2]
    size = 0.65 * columns + 0.6, 0.65 * rows + 0.5
    page, panels = figure(*size, rows, columns)
    show_rows(panels, decoded)
    for component, panel in enumerate(panels[:, 0]):
        panel.set_ylabel(component, rotation=0, labelpad=10)
    for panel, offset in zip(panels[0], _OFFSETS, strict=True):
        panel.set_title(f"{offset:+.2f}")
    return page


def perturbed(
    decoder: Any, poses: Array, offsets: Array, activations: Array | None = None
) -> Array:
    """Decodes a pose with one component moved at a time.

    Returns:
        Images `[d, n, *image_shape]` of `n` offsets.
    """
    poses = np.asarray(poses)
    classes, dim = poses.shape
    if activations is None:
        activations = np.linalg.norm(poses, axis=-1)
    moves = np.asarray(offsets)[None, :, None] * np.eye(dim)[:, None]
    # The same move for all classes; only one is decoded.
    moved = poses + moves.reshape(-1, 1, dim).astype(poses.dtype)
    mask = np.eye(classes, dtype=poses.dtype)[np.argmax(activations)]
    masks = np.broadcast_to(mask, (len(moved), classes))
    decoded = keras.ops.convert_to_numpy(decoder.decode(moved, masks))
    return decoded.reshape(dim, len(offsets), *decoder.image_shape)
