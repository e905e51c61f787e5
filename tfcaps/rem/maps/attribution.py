"""Attribution maps: integrated gradients and occlusion."""

from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.maps.class_scores import ClassScores, full_batches
from tfcaps.rem.maps.gradients import ClassGradients, with_full_gradients

Array = NDArray[Any]

# An occluded window is this share of an image's side.
_WINDOW = 1 / 8


def integrated_gradients(
    model: keras.Model,
    images: Array,
    classes: ArrayLike | None = None,
    *,
    steps: int = 32,
    baseline: float | ArrayLike = 0.0,
    batch_size: int = 128,
) -> Array:
    """Returns how much each pixel adds to the length of a class.

    `(x - x') * mean_k dl/dx(x' + (k - 1/2) / steps * (x - x'))`, summed over
    channels, with the image x, the baseline x', the length l of the class, and
    k from 1 to `steps`. A map sums to `l(x) - l(x')`, but for the error of the
    sum over steps.

    Gradients go through the couplings too, whatever `gradient` the routing was
    trained with. Quantised couplings are constants, so maps of a network with
    such couplings do not sum to the difference.

    Args:
        model: A functional or sequential model from images to class lengths
            `[b, j]`, or to class poses `[b, j, d]`, as in `capsule_outputs`; a
            network without capsules serves too.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        steps: Int, at least 1. Points between baseline and image. Defaults to
            `32`.
        baseline: Number, or an image `[h, w, c]`, in which nothing is to be
            seen. Defaults to `0`, black.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Array `[n, h, w]`, float32. Pixels that speak against the class are
        negative.

    Raises:
        ValueError: If an argument is out of range, or the backend is neither
            TensorFlow nor JAX.

    References:
        - Sundararajan, Taly, Yan, 2017, https://arxiv.org/abs/1703.01365
    """
    if steps < 1:
        raise ValueError(
            f"`steps` must be at least 1. Received: steps={steps}."
        )
    scores = ClassScores(model, images, classes, batch_size)
    return integrated_gradients_of(scores, steps, baseline)


def occlusion(
    model: keras.Model,
    images: Array,
    classes: ArrayLike | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    stride: int | tuple[int, int] | None = None,
    fill: float | str = 0.0,
    batch_size: int = 128,
) -> Array:
    """Returns how much shorter a class gets where a window is covered.

    A pixel's value is the mean, over all windows that contain it, of how much
    the class's length falls when the window is covered. This works on every
    backend.

    Args:
        model: As in `integrated_gradients`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        size: Int, or rows and columns of a window. Defaults to an eighth of the
            image, at least 1.
        stride: Int, or rows and columns from a window to the next, at most
            `size`. The last ones end where the image does. Defaults to half of
            the size, at least 1.
        fill: What covers a window: a number, or `"blurred"`. Defaults to `0`,
            black.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Array `[n, h, w]`, float32.

    Raises:
        ValueError: If an argument is out of range.

    References:
        - Zeiler, Fergus, 2014, https://arxiv.org/abs/1311.2901
    """
    scores = ClassScores(model, images, classes, batch_size)
    return occlusion_of(scores, size, stride, fill)


def integrated_gradients_of(
    scores: ClassScores, steps: int = 32, baseline: float | ArrayLike = 0.0
) -> Array:
    """`integrated_gradients` for given scores."""
    images = scores.images
    start = np.broadcast_to(np.asarray(baseline, np.float32), images.shape)
    network = with_full_gradients(scores.network)
    gradients = ClassGradients(
        keras.Model([network.input], {"lengths": network.output})
    )
    sums = np.zeros(images.shape, np.float64)
    for pair, new in full_batches(len(images) * steps, scores.batch_size):
        image, step = np.divmod(pair, steps)
        share = ((step + 0.5) / steps).astype(np.float32)[:, None, None, None]
        points = start[image] + share * (images[image] - start[image])
        _, slopes = gradients([points], scores.classes[image])
        np.add.at(sums, image[:new], slopes[:new])
    maps = (images - start) * (sums / steps)
    return np.sum(maps, axis=-1).astype(np.float32)


def occlusion_of(
    scores: ClassScores,
    size: int | tuple[int, int] | None = None,
    stride: int | tuple[int, int] | None = None,
    fill: float | str = 0.0,
) -> Array:
    """`occlusion` for given scores."""
    windows = _windows(scores.images.shape[1:3], size, stride)
    lengths = scores.of_parts(
        len(windows), lambda _, window: ~windows[window], fill
    )
    drops = scores.full[:, None] - lengths
    sums = np.einsum("nw,whv->nhv", drops, windows.astype(np.float32))
    return (sums / np.sum(windows, axis=0)).astype(np.float32)


def _windows(
    image_shape: tuple[int, ...],
    size: int | tuple[int, int] | None,
    stride: int | tuple[int, int] | None,
) -> NDArray[np.bool_]:
    """Returns the pixels `[windows, h, w]` of each window."""
    sizes = [max(1, round(_WINDOW * side)) for side in image_shape]
    if size is not None:
        sizes = list(np.broadcast_to(size, 2))
    strides = [max(1, s // 2) for s in sizes]
    if stride is not None:
        strides = list(np.broadcast_to(stride, 2))
    if any(
        not 1 <= s <= side or not 1 <= step <= s
        for s, side, step in zip(sizes, image_shape, strides, strict=True)
    ):
        raise ValueError(
            "`size` must be from 1 to the image's, and `stride` from 1 to "
            f"`size`. Received: size={size}, stride={stride}, images of "
            f"{image_shape[0]}x{image_shape[1]} pixels."
        )
    rows, columns = (
        _intervals(*axis)
        for axis in zip(image_shape, sizes, strides, strict=True)
    )
    windows = rows[:, None, :, None] & columns[None, :, None, :]
    return windows.reshape(-1, *image_shape)


def _intervals(side: int, size: int, stride: int) -> NDArray[np.bool_]:
    """Returns which pixels `[intervals, side]` each interval covers."""
    starts = [*range(0, side - size, stride), side - size]
    pixels = np.arange(side)
    return np.array([(a <= pixels) & (pixels < a + size) for a in starts])
