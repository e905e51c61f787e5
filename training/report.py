"""The figures and the report of a run."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras

from tfcaps import viz
from tfcaps.rem import Report
from training import figures, named_trees, summary
from training.datasets import Data
from training.folder import RunFolder
from training.tables import TITLES


def write(
    folder: RunFolder,
    data: Data,
    reports: Mapping[str, Report],
    decoded: keras.Model | None = None,
    models: Mapping[str, keras.Model] | None = None,
    notes: Iterable[str] = (),
    compared: float | None = None,
) -> Path:
    """Draws the figures and writes `report.html`; returns its path.

    Each figure is `figures/<name>.png`, and its data `figures/<name>.json`.

    Args:
        folder: Where the run is.
        data: Images and class names.
        reports: One for each model.
        decoded: The model with its decoder, or `None`.
        models: The models by name. Defaults to `None`, which leaves out figures
            for which models look at images.
        notes: More sentences, such as those that `summary.sentences` returns.
            Defaults to nothing.
        compared: Accuracy with a dense head. Defaults to `None`, not measured.
    """
    folder.figures.mkdir(exist_ok=True)
    last = list(reports.values())[-1]
    first = figures.Figures()
    shown = figures.of_dictionaries(folder, data, reports)
    if models:
        kinds = None if last.named_parts is None else last.named_parts.names
        first = named_trees.of_test_images(models, folder, data, kinds)
        shown |= figures.of_models(models, folder.config, data)
        if not first:
            first["tree_fields"] = shown.pop("tree_fields")
    if decoded is not None:
        shown |= figures.of_decoder(decoded, data)

    def saved(some: figures.Figures) -> list[tuple[Any, ...]]:
        return [
            (one.drawing.save(folder.figures / name), one.heading, one.caption)
            for name, one in some.items()
        ]

    head, *rows = summary.cells(reports, compared)
    measures = {TITLES[n]: _all_measures(one) for n, one in reports.items()}
    page = folder.path / "report.html"
    viz.write_report(
        page,
        viz.Section(
            f"tfcaps: {folder.config.model} on {data.name}",
            sentences=[(summary.sentence(last), summary.is_warning(last))],
            figures=saved(first),
            table=(head, rows),
            note=summary.note(reports),
        ),
        [
            viz.Section(
                "All measures",
                sentences=[(note, False) for note in notes],
                texts=measures,
            ),
            viz.Section("All figures", figures=saved(shown)),
            viz.Section(
                "Settings", table=(("setting", "value"), _settings(folder))
            ),
        ],
    )
    return page


def _all_measures(report: Report) -> str:
    """Returns everything that was measured of a model, in lines."""
    every = (report, report.parts, report.named_parts)
    return "\n\n".join(str(part) for part in every if part is not None)


def _settings(folder: RunFolder) -> list[tuple[str, str]]:
    path = folder.path / "environment.json"
    environment = json.loads(path.read_text("utf-8"))
    packages = environment.pop("packages")
    everything = {
        **dataclasses.asdict(folder.config),
        **environment,
        **packages,
    }
    return [(name, str(value)) for name, value in everything.items()]
