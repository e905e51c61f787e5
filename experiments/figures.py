"""The figures of an experiment, one for each data set."""

from typing import Any

from experiments.experiment import Row
from experiments.folder import ExperimentFolder
from tfcaps import viz

_MEASURES = ("accuracy_quantized", "entropy_bits", "t_score")


def write(folder: ExperimentFolder) -> list[str]:
    """Draws the finished runs; returns the names of the pictures.

    Each is `frontier-<data set>.png` in the folder, its data beside it.
    """
    rows = folder.experiment.rows if folder.experiment.frontier else ()
    written = []
    for dataset in dict.fromkeys(row.labels[0] for row in rows):
        points = [
            point
            for row in rows
            if row.labels[0] == dataset and (point := _point(folder, row))
        ]
        # Of fewer there is nothing to compare.
        if len(points) > 1:
            path = folder.path / f"frontier-{dataset}"
            figure = viz.frontier(points, setting="group")
            written.append(figure.save(path).name)
    return written


def _point(folder: ExperimentFolder, row: Row) -> dict[str, Any]:
    """Returns the measures of a row over its seeds, nothing without a run."""
    group = folder.experiment.frontier
    name = next(filter(None, row.fields)).split(".")[0]
    models = [
        run.record.parts["rem"]["models"][name]
        for run in folder.runs([row.run])
        if run.record
    ]
    if not models:
        return {}
    cells = dict(zip(folder.experiment.labels, row.labels, strict=True))
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
        **{each: [model[each] for model in models] for each in _MEASURES},
    }
