"""The figures and the report of a run."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras

from tfcaps import viz
from tfcaps.rem import Report
from training import figures, summary, tree_figures
from training.datasets import Data
from training.folder import RunFolder
from training.tables import COLUMNS, NOTHING, TITLES, Column

# The sparsity of what is pruned is not the only one that is called so.
_COLUMNS = (
    *COLUMNS[:2],
    Column("always one class, %", "majority_share", 2, 100),
    *COLUMNS[2:],
    Column("other active, %", "necessity_active.zero", 1, 100, optional=True),
    Column("most active, %", "sufficiency_longest.zero", 1, 100, optional=True),
    Column("with biases, %", "sparsity_paper", 1, 100),
    Column("of all, %", "sparsity_all", 1, 100),
    Column("multiply-adds, millions", "multiply_adds", 3, 1e-6, optional=True),
    *(
        Column(title, f"parts.{field}", 1, 100, optional=True)
        for title, field in (
            ("tree on own parts, %", "own"),
            ("all children, %", "own_of_all"),
            ("all activations, %", "own_of_active"),
            ("tree on loose parts, %", "loose"),
            ("parts found, %", "parts_found"),
        )
    ),
    *(
        Column(title, f"named_parts.{field}", digits, factor, optional=True)
        for title, field, digits, factor in (
            ("parts with one leaf, %", "found_once", 1, 100),
            ("NMI of types and kinds", "information", 2, 1),
        )
    ),
)

_ON_PARTS = (
    " Of a tree's weight, coupling times activation, the share on the object's "
    "own parts stands beside that of all children, each counted once, and of "
    "all activations, whatever they are coupled with; loose parts belong to no "
    "object. Parts found are those with a child in the tree; parts with one "
    "leaf have exactly one near their centre. NMI is the normalised mutual "
    "information of a leaf's type and the kind of the part under it."
)


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
        notes: More sentences, such as those that `sentences` returns. Defaults
            to nothing.
        compared: Accuracy with a dense head. Defaults to `None`, not measured.
    """
    folder.figures.mkdir(exist_ok=True)
    last = list(reports.values())[-1]
    first: dict[str, figures.Shown] = {}
    shown: dict[str, figures.Shown] = {}
    if models:
        measured = last.named_parts
        kinds = None if measured is None else measured.names
        first = tree_figures.named(models, folder, data, kinds)
        of_trees = tree_figures.right_and_wrong(models, folder.config, data)
        if first:
            shown |= of_trees
        else:
            first = of_trees
    shown |= figures.of_dictionaries(folder, data, reports)
    if models:
        shown |= figures.of_models(models, folder.config, data)
    if decoded is not None:
        shown |= figures.of_decoder(decoded, data)
    head, *rows = summary.cells(reports, compared)
    page = folder.path / "report.html"
    viz.write_report(
        page,
        viz.Section(
            f"tfcaps: {folder.config.model} on {data.name}",
            sentences=[(summary.sentence(last), summary.is_warning(last))],
            figures=_saved(folder, first),
            table=(head, rows),
            note=summary.note(reports),
        ),
        [
            viz.Section(
                "All measures",
                sentences=[
                    *(
                        (
                            f"{TITLES[name]}. {report.verdict}",
                            summary.is_warning(report),
                        )
                        for name, report in reports.items()
                    ),
                    *((sentence, False) for sentence in notes),
                ],
                table=all_measures(reports, compared),
                note=_definitions(data, reports),
            ),
            viz.Section("All figures", figures=_saved(folder, shown)),
            viz.Section(
                "Settings",
                table=(("setting", "value"), _settings(folder).items()),
            ),
        ],
    )
    return page


def _saved(
    folder: RunFolder, shown: Mapping[str, figures.Shown]
) -> list[tuple[Any, ...]]:
    """Writes figures, and returns what a section of the page takes."""
    return [
        (drawing.save(folder.figures / name), *about)
        for name, (drawing, *about) in shown.items()
    ]


def all_measures(
    reports: Mapping[str, Report], compared: float | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns head and rows of the large table.

    Args:
        reports: One for each model.
        compared: Accuracy with a dense head. Defaults to `None`, not measured.
    """
    head = ("model", *(column.title for column in _COLUMNS))
    rows = [
        (
            TITLES[name],
            *(column.write([report.to_dict()]) for column in _COLUMNS),
        )
        for name, report in reports.items()
    ]
    if compared is not None:
        accuracy, *unknown = _COLUMNS
        known = accuracy.write([{accuracy.field: compared}])
        rows.append(("Dense head", known, *[NOTHING] * len(unknown)))
    return head, rows


def _definitions(data: Data, reports: Mapping[str, Report]) -> str:
    levels = next(iter(reports.values())).levels
    return (
        f"{len(data.train.labels):,} training and {len(data.test.labels):,} "
        f"test images, {data.num_classes} classes; couplings at {levels} "
        "levels. Entropy is the mean over classes, its ceiling log2 of the "
        "images predicted as a class; keys are the median over classes; the "
        "entropy of types is that of trees that do not tell where in the image "
        "things are, for networks whose children have positions; parameters "
        "are those that are not zero; sparsity is that of the weights that are "
        "pruned, then with the biases of their layers, as in the REM paper, "
        "and of all parameters. Necessity is the share of images that lose "
        "their class without their tree (its children at zero, or at their "
        "mean), beside as many random children and as many other active ones; "
        "sufficiency that of images which keep it with the tree alone, beside "
        "as many of the most active children."
        + (_ON_PARTS if any(r.parts for r in reports.values()) else "")
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
