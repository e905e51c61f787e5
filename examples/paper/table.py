"""Writes the table of an experiment from its runs, which are finished.

<folder>/experiment.json     which experiment, recipe and seeds
<folder>/runs.jsonl          the finished runs, see `training/tables.py`
<folder>/table.md            made of these
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev

from cli import UserError
from examples.paper.experiment import Experiment, Row, load
from markdown_table import narrow
from training import tables
from training.configs import Config
from training.tables import NOTHING, Column, FinishedRun, look_up

_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6}
Runs = Mapping[tuple[str, int], FinishedRun]


def about(folder: Path) -> tuple[str, str | None, list[int]]:
    """Returns name, recipe and seeds of the experiment of a folder."""
    file = folder / "experiment.json"
    try:
        known = json.loads(file.read_text("utf-8"))
        return known["name"], known["recipe"], known["seeds"]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{file} is not that of an experiment.") from error


def finished(folder: Path) -> Runs:
    """Returns the finished runs of a folder by name and seed."""
    file = folder / tables.FILE_NAME
    runs = tables.read_file(file) if file.exists() else []
    return {run.key: run for run in runs}


def write(folder: Path) -> str:
    """Writes `table.md`, and returns it.

    Raises:
        UserError: If a run has other settings than the experiment.
    """
    name, recipe, seeds = about(folder)
    experiment, runs = load(name, recipe), finished(folder)
    for key, run in runs.items():
        if row := experiment.runs.get(key[0]):
            _check(run, row.config)
    lines = [_line(experiment, row, runs, seeds) for row in experiment.rows]
    head = [title for title, _ in lines[0]]
    cells = [[text for _, text in line] for line in lines]
    table = narrow([head, *cells], left=len(experiment.labels))
    flags = f" --recipe {recipe}" if recipe else ""
    command = f"`python -m examples.paper.run {name}{flags}`"
    notes = "\n".join(f"- {note}" for note in experiment.notes)
    text = f"# {experiment.title}\n\n{command}\n\n{table}\n\n{notes}\n"
    (folder / "table.md").write_text(text, "utf-8")
    return text


def _check(run: FinishedRun, config: Config) -> None:
    """Raises `UserError` if a run was made with other settings.

    The folder of the data does not matter, nor do settings of REM in a run
    without REM. What is newer than the run counts as its default.
    """
    had = dataclasses.asdict(Config()) | run.parts["config"]
    if had["start_from"] is not None:
        had["start_from"] = Path(had["start_from"]).parent.name
    for name, wanted in dataclasses.asdict(config).items():
        if name in ("data_dir", "seed") or not config.uses(name):
            continue
        if had[name] != json.loads(json.dumps(wanted)):  # lists for tuples
            raise UserError(
                f"the run in {run.origin} has {name}={had[name]!r}, but the "
                f"experiment's run {run.name} has {name}={wanted!r}; give "
                "another --out, or remove that run."
            )


def _line(
    experiment: Experiment, row: Row, runs: Runs, seeds: Sequence[int]
) -> list[tuple[str, str]]:
    """Returns a row: heads, which may be alike, and what stands below."""
    done = [runs[row.run, seed] for seed in seeds if (row.run, seed) in runs]
    cells = list(zip(experiment.labels, row.labels, strict=True))
    every = zip(*(other.published for other in experiment.rows), strict=True)
    for column, field, printed, of_all in zip(
        experiment.columns, row.fields, row.published, every, strict=True
    ):
        text, ours = _measured(column, field, done)
        cells.append((column.title, text))
        if any(of_all):
            difference = NOTHING
            if ours is not None and printed:
                # Adding 0 makes -0 a 0.
                away = round(ours - parse(printed), column.digits) + 0.0
                difference = f"{away:+,.{column.digits}f}"
            cells.append(("published", printed or NOTHING))
            cells.append(("difference", difference))
    stops = "at most " if row.config.patience is not None else ""
    seeds_done = f"{len(done)} of {len(seeds)}"
    epochs = f"{stops}{row.config.epochs}"
    return [*cells, ("seeds done", seeds_done), ("epochs", epochs)]


def _measured(
    column: Column, field: str | None, runs: Sequence[FinishedRun]
) -> tuple[str, float | None]:
    """Returns a measure over seeds as text, and its mean or median."""
    models = [run.parts["rem"]["models"] for run in runs]
    missing = [
        run.origin
        for run, model in zip(runs, models, strict=True)
        if field and not column.is_known(model, field)
    ]
    if missing and not column.optional:
        raise UserError(
            f"{missing[0]}, rem has no {field}, which the table shows; run it "
            "again with this version."
        )
    if missing or not field or not runs:
        return NOTHING, None
    ours = column.summary(models, field)
    text = column.text(ours)
    owner, _, name = field.rpartition(".")
    if name == "entropy_bits" and "by_levels" not in owner:
        of_classes = (look_up(m, f"{owner}.per_class.{name}") for m in models)
        means = map(mean, zip(*of_classes, strict=True))
        text += f" ({column.number(pstdev(means))})"
    return text, ours[0]


def parse(text: str) -> float:
    """Reads a printed number such as `99.57 ± 0.02`, `71.26` or `6.8M`."""
    match = re.fullmatch(r"([\d.]+)([kM]?)(?: ± [\d.]+)?", text)
    if match is None:
        raise ValueError(f"must be a printed number. Received: {text!r}.")
    return float(match[1]) * _SUFFIXES[match[2]]
