"""Measures how well maps show which pixels matter to the network."""

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from tfcaps.rem.maps.class_scores import Array, ClassScores
from tfcaps.rem.maps.relevance import finite

# Lengths are relative to the full one, which may be 0.
_SHORTEST = 1e-6
# Decimals of shares below which there is only float32's noise.
_DECIMALS = 7


def pixel_deletion(
    model: keras.Model,
    images: Array,
    maps: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    steps: int = 16,
    fill: float | str = 0.0,
    seed: int = 0,
    batch_size: int = 128,
) -> Array:
    """Returns the area under a class's length as pixels are removed.

    Pixels are removed from the highest value of the map to the lowest, equal
    ones in a random order. Lengths are relative to that in the whole image. The
    smaller the area, the better the map.

    Args:
        model: As in `integrated_gradients`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        maps: Maps `[n, h, w]` of the classes.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        steps: Int, at least 1. In how many parts, of equally many pixels, they
            go. Defaults to `16`.
        fill: What pixels become that are gone: a number, or `"blurred"`.
            Defaults to `0`, black.
        seed: Int. Seed of the order of equal pixels. Defaults to `0`.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Array `[n]`.

    Raises:
        ValueError: If the shapes do not fit, an argument is out of range, or a
            map is not finite.

    References:
        - Petsiuk, Das, Saenko, 2018, https://arxiv.org/abs/1806.07421
    """
    scores = ClassScores(model, images, classes, batch_size)
    maps = checked_maps(maps, scores)
    return deletion_area(scores, maps, steps=steps, fill=fill, seed=seed)


def pixel_insertion(
    model: keras.Model,
    images: Array,
    maps: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    steps: int = 16,
    fill: float | str = 0.0,
    seed: int = 0,
    batch_size: int = 128,
) -> Array:
    """Returns the area under a class's length as pixels are added.

    As `pixel_deletion`, but from an image of `fill` only to the whole image.
    The larger the area, the better the map.

    Args:
        model: As in `pixel_deletion`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        maps: Maps `[n, h, w]` of the classes.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        steps: As in `pixel_deletion`. Defaults to `16`.
        fill: What pixels are that have not come yet. Defaults to `0`, black.
        seed: As in `pixel_deletion`. Defaults to `0`.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Array `[n]`.

    Raises:
        ValueError: As in `pixel_deletion`.

    References:
        - Petsiuk, Das, Saenko, 2018, https://arxiv.org/abs/1806.07421
    """
    scores = ClassScores(model, images, classes, batch_size)
    maps = checked_maps(maps, scores)
    return insertion_area(scores, maps, steps=steps, fill=fill, seed=seed)


def mu_fidelity(
    model: keras.Model,
    images: Array,
    maps: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    grid_size: int | None = 9,
    subset_share: float = 0.2,
    num_subsets: int = 200,
    fill: float | str = 0.0,
    seed: int = 0,
    batch_size: int = 128,
) -> Array:
    """Returns how well maps predict the drop of a class's length.

    The Spearman correlation, over random subsets of pixels, of the sum of the
    map over a subset and the drop of the class's length without it. Where
    either is constant it is 0. All subsets have the same size, as in the paper.
    (Xplique draws every cell by itself, so that even a constant map tells large
    subsets from small ones.)

    Args:
        model: As in `pixel_deletion`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        maps: Maps `[n, h, w]` of the classes.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        grid_size: Int. Subsets are made of the cells of a grid of this many
            rows and columns, or of pixels where the image has fewer, or with
            `None`. Defaults to `9`.
        subset_share: Float in (0, 1). Share of the cells in a subset. Defaults
            to `0.2`.
        num_subsets: Int, at least 2. The same ones for all images. Defaults to
            `200`.
        fill: What the pixels of a subset become: a number, or `"blurred"`.
            Defaults to `0`, black.
        seed: Int. Seed of the subsets. Defaults to `0`.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Array `[n]`, in [-1, 1].

    Raises:
        ValueError: As in `pixel_deletion`.

    References:
        - Bhatt, Weller, Moura, 2020, https://arxiv.org/abs/2005.00631,
          definition 3
        - Xplique, https://github.com/deel-ai/xplique, `MuFidelity`
    """
    scores = ClassScores(model, images, classes, batch_size)
    maps = checked_maps(maps, scores)
    subsets = random_subsets(
        scores.images.shape[1:3], grid_size, subset_share, num_subsets, seed
    )
    return fidelity(maps, subsets, drops_of(scores, subsets, fill))


def deletion_area(
    scores: ClassScores,
    maps: Array,
    *,
    steps: int,
    fill: float | str,
    seed: int,
) -> Array:
    """`pixel_deletion` for given scores."""
    ranks, counts = _order(maps, steps, seed)
    lengths = scores.of_parts(
        len(counts),
        lambda image, step: ranks[image] >= counts[step][:, None, None],
        fill,
    )
    return _area(lengths, counts, scores)


def insertion_area(
    scores: ClassScores,
    maps: Array,
    *,
    steps: int,
    fill: float | str,
    seed: int,
) -> Array:
    """`pixel_insertion` for given scores."""
    ranks, counts = _order(maps, steps, seed)
    lengths = scores.of_parts(
        len(counts),
        lambda image, step: ranks[image] < counts[step][:, None, None],
        fill,
    )
    return _area(lengths, counts, scores)


def random_subsets(
    image_shape: tuple[int, ...],
    grid_size: int | None,
    share: float,
    count: int,
    seed: int,
) -> NDArray[np.bool_]:
    """Returns the pixels `[count, h, w]` of random subsets of a grid's cells.

    Raises:
        ValueError: If an argument is out of range.
    """
    if grid_size is not None and grid_size < 1:
        raise ValueError(
            f"`grid_size` must be at least 1, or None. Received: {grid_size}."
        )
    if not 0.0 < share < 1.0:
        raise ValueError(
            f"`subset_share` must be in (0, 1). Received: {share}."
        )
    if count < 2:
        raise ValueError(
            f"`num_subsets` must be at least 2. Received: {count}."
        )
    rows, columns = (min(grid_size or side, side) for side in image_shape)
    chosen = max(1, round(share * rows * columns))
    order = np.random.default_rng(seed).random((count, rows * columns))
    cells = np.argsort(np.argsort(order, axis=1), axis=1) < chosen
    cells = cells.reshape(count, rows, columns)
    # The cell in which the centre of a pixel lies.
    row, column = (
        ((np.arange(side) + 0.5) * number / side).astype(int)
        for side, number in zip(image_shape, (rows, columns), strict=True)
    )
    return cells[:, row[:, None], column]


def drops_of(
    scores: ClassScores, subsets: NDArray[np.bool_], fill: float | str
) -> Array:
    """Returns by how much lengths fall `[n, subsets]` without each subset.

    Relative to the full lengths.
    """
    lengths = scores.of_parts(
        len(subsets), lambda _, subset: ~subsets[subset], fill
    )
    return 1.0 - _relative(lengths, scores)


def fidelity(maps: Array, subsets: NDArray[np.bool_], drops: Array) -> Array:
    """Returns the rank correlation `[n]` of sums over subsets and drops."""
    sums = np.einsum("nhw,shw->ns", maps, subsets.astype(np.float64))
    total = np.sum(np.abs(maps), axis=(1, 2))[:, None]
    shares = sums / np.where(total > 0, total, 1.0)
    first, second = (
        rankdata(np.round(values, _DECIMALS), axis=1)
        for values in (shares, drops)
    )
    first -= np.mean(first, axis=1, keepdims=True)
    second -= np.mean(second, axis=1, keepdims=True)
    spread = np.sqrt(np.sum(first**2, axis=1) * np.sum(second**2, axis=1))
    products = np.sum(first * second, axis=1)
    return np.divide(
        products, spread, out=np.zeros_like(products), where=spread > 0
    )


def _order(maps: Array, steps: int, seed: int) -> tuple[Array, Array]:
    """Returns ranks `[n, h, w]`, 0 for the highest, and pixels at each step."""
    if steps < 1:
        raise ValueError(
            f"`steps` must be at least 1. Received: steps={steps}."
        )
    flat = maps.reshape(len(maps), -1)
    chance = np.random.default_rng(seed).random(flat.shape)
    order = np.lexsort((chance, -flat), axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(flat.shape[1])[None], axis=1)
    steps = min(steps, flat.shape[1])
    counts = np.linspace(0, flat.shape[1], steps + 1).astype(int)
    return ranks.reshape(maps.shape), counts


def _area(lengths: Array, counts: Array, scores: ClassScores) -> Array:
    """Returns the areas `[n]` under relative lengths, `[n, counts]`."""
    shares = counts / counts[-1]
    return np.trapezoid(_relative(lengths, scores), shares, axis=1)


def _relative(lengths: Array, scores: ClassScores) -> Array:
    """Returns lengths `[n, ...]` as shares of the full ones."""
    return lengths / np.maximum(scores.full, _SHORTEST)[:, None]


def checked_maps(maps: ArrayLike, scores: ClassScores) -> Array:
    maps = np.asarray(maps, np.float64)
    expected = scores.images.shape[:3]
    if maps.shape != expected:
        raise ValueError(
            f"`maps` must have the shape of the images, {expected}. Received: "
            f"{maps.shape}."
        )
    return finite(maps)
