"""The figures, the report and the closing table of a run."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfcaps import rem, viz
from tfcaps.layers import perturb_dimensions
from tfcaps.rem import Report
from training.batches import to_float
from training.datasets import Data
from training.folder import RunFolder
from training.tables import COLUMNS, TITLES, markdown

# Test images that are shown decoded.
_SHOWN = 8


def write(
    folder: RunFolder,
    data: Data,
    reports: Mapping[str, Report],
    decoded: keras.Model | None = None,
) -> Path:
    """Draws the figures and writes `report.html`; returns its path.

    Args:
        folder: Where the run is.
        data: Images and class names.
        reports: One for each model.
        decoded: The model with its decoder, or `None`.
    """
    folder.figures.mkdir(exist_ok=True)
    config = folder.config
    trees = {TITLES[n]: report.dictionary for n, report in reports.items()}
    names = data.class_names
    main = config.model_names[-1]
    drawings = {
        "curves": (
            viz.curves(
                {**row, "model": TITLES[row["model"]]}
                for row in folder.read_metrics()
            ),
            "Training",
            "Measured during training on test images, at most 1,000 of them. "
            "Nothing is selected by these curves: the last epoch counts.",
        ),
        "keys_per_class": (
            viz.keys_per_class(trees, class_names=names),
            "Parse trees per class",
            "How many distinct keys (rows of quantised couplings towards the "
            "predicted class) the test images of a class have. A grey line is "
            "the number of images, the most there could be.",
        ),
        "coupling_histograms": (
            viz.coupling_histograms(trees, config.levels, class_names=names),
            "Couplings",
            "Each child's coupling towards a class, averaged over the images "
            "predicted as that class. Mass at the dotted line is no routing.",
        ),
        "parse_trees": (
            viz.parse_trees(
                reports[main].dictionary, config.levels, class_names=names
            ),
            f"Most frequent parse trees, {TITLES[main]}",
            "The children are the primary capsules, in the same order in every "
            "picture. A blue line joins a class with each child whose coupling "
            "exceeds the uniform one; the stronger, the thicker. The title "
            "says how many of the class's images have exactly this tree.",
        ),
    }
    if decoded is not None:
        drawings |= _decoder_figures(decoded, data)
    figures = []
    for name, (drawing, heading, caption) in drawings.items():
        path = folder.figures / f"{name}.png"
        drawing.savefig(path)
        figures.append((path, heading, caption))
    page = folder.path / "report.html"
    viz.write_report(
        page,
        title=f"tfcaps: {config.model} on {data.name}",
        subtitle=_subtitle(data, reports),
        table=_cells(reports),
        verdicts=[
            (f"{TITLES[name]}. {report.verdict}", report.trivial)
            for name, report in reports.items()
        ],
        figures=figures,
        settings=_settings(folder),
    )
    return page


def _decoder_figures(decoded: keras.Model, data: Data) -> dict[str, Any]:
    """Returns what the decoder makes of the first test images."""
    images = to_float(data.test[0][:_SHOWN])
    outputs = decoded.predict({"images": images, "labels": None}, verbose=0)
    decoder = decoded.get_layer("reconstruction")
    shown = rem.capsule_outputs(decoded).predict(images[:1], verbose=0)
    offsets = np.linspace(-0.25, 0.25, 11)
    moved = perturb_dimensions(
        decoder, shown["poses"], offsets, shown["lengths"]
    )[0]
    return {
        "reconstructions": (
            viz.reconstructions(images, outputs["reconstruction"]),
            "Reconstructions",
            "The first test images, and what the decoder makes of the pose of "
            "their longest class capsule.",
        ),
        "perturbations": (
            viz.perturbations(moved, offsets),
            "What the components of a pose stand for",
            "The first test image, decoded with one component of its pose "
            "(row) moved by the number above.",
        ),
    }


def table(reports: Mapping[str, Report]) -> str:
    """Returns the closing table of a run in Markdown."""
    head, rows = _cells(reports)
    return markdown([head, *rows])


def _cells(
    reports: Mapping[str, Report],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    head = ("model", *(column.title for column in COLUMNS))
    rows = [
        (
            TITLES[name],
            *(column.write([report.to_dict()]) for column in COLUMNS),
        )
        for name, report in reports.items()
    ]
    return head, rows


def _subtitle(data: Data, reports: Mapping[str, Report]) -> str:
    levels = next(iter(reports.values())).levels
    return (
        f"{len(data.train[1]):,} training and {len(data.test[1]):,} test "
        f"images, {data.num_classes} classes; couplings at {levels} levels. "
        "Entropy is the mean over classes, its ceiling log2 of the images "
        "predicted as a class; keys are the median over classes; parameters "
        "are those that are not zero."
    )


def _settings(folder: RunFolder) -> dict[str, str]:
    environment = json.loads(
        (folder.path / "environment.json").read_text("utf-8")
    )
    packages = environment.pop("packages")
    everything = {
        **dataclasses.asdict(folder.config),
        **environment,
        **packages,
    }
    return {name: str(value) for name, value in everything.items()}
