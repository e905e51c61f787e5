"""Maps of a network by several methods, and how good each of them is."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from tfcaps.files import write_atomically
from tfcaps.rem.batches import predict_batches
from tfcaps.rem.maps.attribution import integrated_gradients_of, occlusion_of
from tfcaps.rem.maps.class_scores import Array, ClassScores
from tfcaps.rem.maps.explanation import explanation
from tfcaps.rem.maps.grad_cam import grad_cam_of, has_features
from tfcaps.rem.maps.map_faithfulness import (
    checked_maps,
    deletion_area,
    drops_of,
    fidelity,
    insertion_area,
    random_subsets,
)
from tfcaps.rem.maps.relevance import pointing, relevance_mass

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


@dataclasses.dataclass(frozen=True)
class MapComparison:
    """The result of `tfcaps.rem.compare_maps`.

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

    def to_dict(self) -> dict[str, Any]:
        """Returns everything, ready for JSON."""
        return dataclasses.asdict(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_dict()` to a JSON file, which appears complete."""
        with write_atomically(Path(path), "w") as file:
            json.dump(self.to_dict(), file, indent=2)
            file.write("\n")

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
        measured["deletion"] = deletion_area(scores, own, **options)
        measured["insertion"] = insertion_area(scores, own, **options)
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
    explained = explanation(model)
    if "saliency" in explained.output:
        network = keras.Model(explained.input, explained.output["saliency"])
        parts = predict_batches(network, scores.images, scores.batch_size)
        maps[COUPLINGS] = np.concatenate(list(parts))
    maps["integrated gradients"] = integrated_gradients_of(scores, steps)
    if has_features(scores.network):
        maps["Grad-CAM"] = grad_cam_of(scores)
    maps["occlusion"] = occlusion_of(scores)
    rng = np.random.default_rng(seed)
    maps[RANDOM] = rng.random(scores.images.shape[:3], np.float32)
    return maps
