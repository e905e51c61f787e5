"""The figures of an experiment, one for each data set."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.experiment import Row
from experiments.folder import ExperimentFolder
from tfcaps import viz

_DRAWINGS = {
    "frontier": lambda points: viz.frontier(points, setting="group"),
}
_MEASURES = ("accuracy_quantized", "entropy_bits", "t_score", "sparsity")


def write(folder: ExperimentFolder) -> list[str]:
    """Draws the finished runs; returns the names of the pictures.

    Each is `<figure>-<data set>.png` in the folder, its data beside it.
    """
    experiment = folder.experiment
    if not experiment.figures:
        return []
    written = []
    for dataset in dict.fromkeys(row.labels[0] for row in experiment.rows):
        points = [
            _point(experiment.labels, row, models, experiment.group)
            for row in experiment.rows
            if row.labels[0] == dataset and (models := _models(folder, row))
        ]
        # Of fewer there is nothing to compare.
        if len(points) < 2:
            continue
        for name in experiment.figures:
            path = folder.path / f"{name}-{dataset}"
            written.append(_DRAWINGS[name](points).save(path).name)
    return written


def _models(folder: ExperimentFolder, row: Row) -> list[Mapping[str, Any]]:
    """Returns the reports of the row's model, one for each finished seed."""
    shown = next(field for field in row.fields if field is not None)
    name = shown.split(".")[0]
    return [
        run.read("rem")["models"][name]
        for run in folder.runs([row.run])
        if run.finished
    ]


def _point(
    labels: Sequence[str],
    row: Row,
    models: Sequence[Mapping[str, Any]],
    group: str,
) -> dict[str, Any]:
    cells = dict(zip(labels, row.labels, strict=True))
    # Numbers alone would not say what they are of.
    words = [
        f"{label} {word}" if word[0].isdigit() else word
        for label, word in list(cells.items())[1:-1]
        if word != "–" and label != group
    ]
    return {
        "name": ", ".join(words) or row.labels[-1],
        "group": f"{group}: {cells[group]}",
        "trivial": any(model["trivial"] for model in models),
        **{
            measure: [model[measure] for model in models]
            for measure in _MEASURES
        },
    }
