"""Quality of maps: on the object, for the network, beside other methods."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from scipy.stats import rankdata

from tfcaps.rem.maps.attribution import (
    ClassScores,
    grad_cam_of,
    has_features,
    integrated_gradients_of,
    occlusion_of,
)
from tfcaps.rem.maps.explanation import tree_maps
from tfcaps.rem.parse.receptive_fields import receptive_fields
from tfcaps.rem.parse.trees import trees
from tfcaps.rem.results import Result

Array = NDArray[Any]

# The map of the couplings, and the one that any other must beat.
COUPLINGS = "couplings"
RANDOM = "random"
# Measures and their titles in tables.
_TITLES = {
    "relevance_mass": "relevance mass",
    "pointing": "pointing",
    "deletion": "deletion",
    "insertion": "insertion",
    "mu_fidelity": "MuFidelity",
}
# Lengths are relative to the full one, which may be 0.
_SHORTEST = 1e-6
# Decimals of shares below which there is only float32's noise.
_DECIMALS = 7


def relevance_mass(
    maps: ArrayLike, masks: ArrayLike, *, margin: int = 2
) -> Array:
    """Returns the share of each map that lies on its mask.

    Only the positive part of the map counts. A map without one counts as
    constant.

    Args:
        maps: Maps `[n, h, w]`.
        masks: Bool `[n, h, w]`, where what is sought is; at least one pixel of
            each image.
        margin: Int, at least 0. By how many pixels masks are widened in every
            direction, also diagonally. Defaults to `2`.

    Returns:
        Array `[n]`, in [0, 1].

    Raises:
        ValueError: If the shapes differ, a mask is empty, or a map is not
            finite.

    References:
        - Arras, Osman, Samek, 2022, https://arxiv.org/abs/2003.07258
    """
    maps, masks = _checked_masks(maps, masks, margin)
    positive = np.maximum(maps, 0.0)
    positive[~np.any(positive, axis=(1, 2))] = 1.0
    total = np.sum(positive, axis=(1, 2))
    return np.sum(positive * masks, axis=(1, 2)) / total


def pointing(maps: ArrayLike, masks: ArrayLike, *, margin: int = 2) -> Array:
    """Tells whether the highest pixel of each map lies on its mask.

    The mean is the share of images whose highest pixel does. If several pixels
    are the highest, the image counts with the share of these on the mask.

    Args:
        maps: As in `relevance_mass`.
        masks: As in `relevance_mass`.
        margin: As in `relevance_mass`. Defaults to `2`.

    Returns:
        Array `[n]`, in [0, 1].

    Raises:
        ValueError: As in `relevance_mass`.

    References:
        - Zhang et al., 2016, https://arxiv.org/abs/1608.00507
    """
    maps, masks = _checked_masks(maps, masks, margin)
    highest = maps == np.max(maps, axis=(1, 2), keepdims=True)
    on_mask = np.count_nonzero(highest & masks, axis=(1, 2))
    return on_mask / np.count_nonzero(highest, axis=(1, 2))


def widened(masks: NDArray[np.bool_], margin: int) -> NDArray[np.bool_]:
    """Returns masks `[n, h, w]` with all pixels up to `margin` beside them."""
    size = (1, 2 * margin + 1, 2 * margin + 1)
    return ndimage.maximum_filter(masks, size, mode="constant", cval=False)


def _checked_masks(
    maps: ArrayLike, masks: ArrayLike, margin: int
) -> tuple[Array, NDArray[np.bool_]]:
    maps, masks = np.asarray(maps, np.float64), np.asarray(masks)
    if maps.ndim != 3 or maps.shape != masks.shape or masks.dtype != bool:
        raise ValueError(
            "`maps` and `masks` (bool) must have the same shape [n, h, w]. "
            f"Received: {maps.shape} and {masks.shape}, {masks.dtype}."
        )
    if margin < 0:
        raise ValueError(f"`margin` must be at least 0. Received: {margin}.")
    empty = np.flatnonzero(~np.any(masks, axis=(1, 2)))
    if len(empty):
        raise ValueError(
            "Every mask must have at least one pixel. Received: none in "
            f"{len(empty)} of {len(masks)}, the first of them at {empty[0]}. "
            "Leave these images out."
        )
    return finite(maps), widened(masks, margin)


def finite(maps: Array) -> Array:
    """Returns the maps, if every number is finite.

    Raises:
        ValueError: If one is not.
    """
    if not np.all(np.isfinite(maps)):
        raise ValueError(
            "`maps` must be finite. Received: some that are not, the first at "
            f"{np.argwhere(~np.isfinite(maps))[0].tolist()}."
        )
    return maps


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
    return pixel_area(scores, maps, steps, fill, seed)


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
        images: As in `pixel_deletion`.
        maps: As in `pixel_deletion`.
        classes: As in `pixel_deletion`.
        steps: As in `pixel_deletion`. Defaults to `16`.
        fill: What pixels are that have not come yet. Defaults to `0`, black.
        seed: As in `pixel_deletion`. Defaults to `0`.
        batch_size: As in `pixel_deletion`.

    Returns:
        Array `[n]`.

    Raises:
        ValueError: As in `pixel_deletion`.

    References:
        - Petsiuk, Das, Saenko, 2018, https://arxiv.org/abs/1806.07421
    """
    scores = ClassScores(model, images, classes, batch_size)
    maps = checked_maps(maps, scores)
    return pixel_area(scores, maps, steps, fill, seed, insert=True)


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
    """Measures how well maps predict the drop of a class's length.

    The Spearman correlation, over random subsets of pixels, of the sum of the
    map over a subset and the drop of the class's length without it. Where
    either is constant it is 0. All subsets have the same size, as in the paper.
    (Xplique draws every cell by itself, so that even a constant map tells large
    subsets from small ones.)

    Args:
        model: As in `pixel_deletion`.
        images: As in `pixel_deletion`.
        maps: As in `pixel_deletion`.
        classes: As in `pixel_deletion`.
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
        batch_size: As in `pixel_deletion`.

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


@dataclasses.dataclass(frozen=True)
class MapComparison(Result):
    """The result of `compare_maps`.

    Attributes:
        measures: For each method its measures, means over the images:
            `deletion` (the less, the better), `insertion` and `mu_fidelity`
            (the more, the better), and with masks `relevance_mass` and
            `pointing` (the more, the better).
        num_images: The number of images they were measured on.
        settings: The settings, by the names of the arguments.
    """

    measures: dict[str, dict[str, float]]
    num_images: int
    settings: dict[str, Any]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns head and rows of a table as text, a row for each method."""
        first = next(iter(self.measures.values()))
        names = [name for name in _TITLES if name in first]
        rows = [
            [method, *(f"{measured[name]:.3f}" for name in names)]
            for method, measured in self.measures.items()
        ]
        return ["map", *(_TITLES[name] for name in names)], rows

    def __str__(self) -> str:
        head, rows = self.table()
        widths = [
            max(map(len, column)) for column in zip(head, *rows, strict=True)
        ]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0])]
                + [
                    cell.rjust(width)
                    for cell, width in zip(row[1:], widths[1:], strict=True)
                ]
            )
            for row in [head, *rows]
        ]
        return "\n".join([*lines, "", f"means over {self.num_images:,} images"])


def attribution_maps(
    model: keras.Model,
    images: Array,
    *,
    steps: int = 32,
    seed: int = 0,
    batch_size: int = 128,
) -> dict[str, Array]:
    """Returns maps of the predicted class by several methods.

    Args:
        model: A capsule network, as in `explanation`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        steps: Int. Steps of the integrated gradients. Defaults to `32`.
        seed: Int. Seed of the random map. Defaults to `0`.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Maps `[n, h, w]` by the name of the method: `couplings`, the `saliency`
        of `explanation` (left out where children have no positions),
        `integrated gradients`, `Grad-CAM` (left out where there are no features
        with positions), `occlusion`, and `random`, as a control.

    Raises:
        ValueError: As in `explanation` and `integrated_gradients`.
    """
    scores = ClassScores(model, images, batch_size=batch_size)
    return _maps_of(model, scores, steps, seed)


def compare_maps(
    model: keras.Model,
    images: Array,
    masks: ArrayLike | None = None,
    *,
    maps: Mapping[str, ArrayLike] | None = None,
    margin: int = 2,
    steps: int = 16,
    grid_size: int | None = 9,
    subset_share: float = 0.2,
    num_subsets: int = 200,
    fill: float | str = 0.0,
    seed: int = 0,
    batch_size: int = 128,
) -> MapComparison:
    """Measures maps of the predicted class by several methods.

    All of them see the same images, subsets and steps. A network with 28x28
    pixels is called about 800 times for each image, most of it for occlusion
    (200) and MuFidelity (`num_subsets`).

    Args:
        model: As in `attribution_maps`.
        images: Its input `[n, h, w, c]`. One or two hundred are enough.
        masks: Bool `[n, h, w]`, where the object is. Defaults to `None`, which
            leaves relevance mass and pointing out.
        maps: Maps `[n, h, w]` by the name of their method. Defaults to those of
            `attribution_maps`.
        margin: As in `relevance_mass`. Defaults to `2`.
        steps: As in `pixel_deletion`. Defaults to `16`.
        grid_size: As in `mu_fidelity`. Defaults to `9`.
        subset_share: As in `mu_fidelity`. Defaults to `0.2`.
        num_subsets: As in `mu_fidelity`. Defaults to `200`.
        fill: What pixels become that are taken away: a number, or `"blurred"`.
            Defaults to `0`, black.
        seed: Int. Seed of the random map, of subsets, and of the order of equal
            pixels. Defaults to `0`.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        A `MapComparison`, which prints as a table and saves as JSON.

    Raises:
        ValueError: If an argument is out of range, or shapes do not fit.
    """
    scores = ClassScores(model, images, batch_size=batch_size)
    if maps is None:
        maps = _maps_of(model, scores, steps=32, seed=seed)
    if not maps:
        raise ValueError("`maps` must have at least one method. Received: {}.")
    given = {name: checked_maps(m, scores) for name, m in maps.items()}
    subsets = random_subsets(
        scores.images.shape[1:3], grid_size, subset_share, num_subsets, seed
    )
    drops = drops_of(scores, subsets, fill)
    options: dict[str, Any] = {"steps": steps, "fill": fill, "seed": seed}
    measures = {}
    for name, own in given.items():
        measured = {}
        if masks is not None:
            mass = relevance_mass(own, masks, margin=margin)
            measured["relevance_mass"] = mass
            measured["pointing"] = pointing(own, masks, margin=margin)
        measured["deletion"] = pixel_area(scores, own, **options)
        measured["insertion"] = pixel_area(scores, own, **options, insert=True)
        measured["mu_fidelity"] = fidelity(own, subsets, drops)
        measures[name] = {k: float(np.mean(v)) for k, v in measured.items()}
    settings = {
        **options,
        "margin": margin,
        "grid_size": grid_size,
        "subset_share": subset_share,
        "num_subsets": num_subsets,
    }
    return MapComparison(measures, len(scores.images), settings)


def _maps_of(
    model: keras.Model, scores: ClassScores, steps: int, seed: int
) -> dict[str, Array]:
    maps = {}
    found = trees(
        model, scores.images, couplings=False, batch_size=scores.batch_size
    )
    if found.has_places:
        maps[COUPLINGS] = tree_maps(found, receptive_fields(model))
    maps["integrated gradients"] = integrated_gradients_of(scores, steps)
    if has_features(scores.network):
        maps["Grad-CAM"] = grad_cam_of(scores)
    maps["occlusion"] = occlusion_of(scores)
    rng = np.random.default_rng(seed)
    maps[RANDOM] = rng.random(scores.images.shape[:3], np.float32)
    return maps


def pixel_area(
    scores: ClassScores,
    maps: Array,
    steps: int,
    fill: float | str,
    seed: int,
    *,
    insert: bool = False,
) -> Array:
    """`pixel_deletion` or `pixel_insertion` for given scores."""
    ranks, counts = _order(maps, steps, seed)
    lengths = scores.of_parts(
        len(counts),
        lambda image, step: (
            (ranks[image] < counts[step][:, None, None]) == insert
        ),
        fill,
    )
    shares = counts / counts[-1]
    return np.trapezoid(_relative(lengths, scores), shares, axis=1)


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
