"""The table of an experiment in Markdown, from its JSON alone."""

import collections
import re
from collections.abc import Sequence
from statistics import mean, pstdev

from cli import UserError
from experiments.experiment import Experiment, Row
from experiments.folder import ExperimentFolder, Run
from markdown_table import markdown
from tfcaps.files import write_atomically
from training.tables import NOTHING, Column, FinishedRun, look_up

_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6}


def write(folder: ExperimentFolder) -> str:
    """Writes `table.md`, and returns it.

    Raises:
        UserError: If a run has other settings than the experiment.
    """
    runs: dict[str, list[Run]] = {}
    for run in folder.runs():
        run.check()
        runs.setdefault(run.name, []).append(run)
    about = folder.experiment
    lines = [_line(about, row, runs[row.run]) for row in about.rows]
    head = [title for title, _ in lines[0]]
    rows = [[text for _, text in line] for line in lines]
    table = markdown([head, *rows], left=len(about.labels))
    flags = f" --recipe {folder.recipe}" if folder.recipe else ""
    command = f"`python experiments/run.py {folder.name}{flags}`"
    notes = "\n".join(f"- {note}" for note in about.notes)
    text = "\n\n".join([f"# {about.title}", command, table, notes]) + "\n"
    with write_atomically(folder.path / "table.md", "w") as file:
        file.write(text)
    return text


def _line(
    experiment: Experiment, row: Row, runs: Sequence[Run]
) -> list[tuple[str, str]]:
    """Returns a row: heads, which may be alike, and what stands below."""
    done = [run.record for run in runs if run.record]
    cells = list(zip(experiment.labels, row.labels, strict=True))
    every = zip(*(row.published for row in experiment.rows), strict=True)
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
    times = [run.seconds for run in runs if run.record and run.seconds]
    devices = ", ".join(sorted(set(map(_device, done))))
    return [
        *cells,
        ("seeds", str(len(done))),
        ("epochs", f"{stops}{row.config.epochs}"),
        ("seconds", f"{mean(times):.0f}" if times else NOTHING),
        ("device", devices or NOTHING),
        ("status", _status(runs)),
    ]


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
    if name == "entropy_bits":
        found = (look_up(m, f"{owner}.per_class.{name}") for m in models)
        over_classes = pstdev(map(mean, zip(*found, strict=True)))
        text += f" ({column.number(over_classes)})"
    return text, ours.value


def parse(text: str) -> float:
    """Reads a printed number such as `99.57 ± 0.02`, `71.26` or `6.8M`."""
    match = re.fullmatch(r"([\d.]+)([kM]?)(?: ± [\d.]+)?", text)
    if match is None:
        raise ValueError(f"must be a printed number. Received: {text!r}.")
    return float(match[1]) * _SUFFIXES[match[2]]


def _device(run: FinishedRun) -> str:
    """Returns what a run was trained on, from its `environment.json`."""
    environment = run.parts.get("environment", {})
    names = collections.Counter(environment.get("accelerators", []))
    if names:
        return ", ".join(f"{count} × {name}" for name, count in names.items())
    return f"{environment.get('cpus', '?')} CPU cores"


def _status(runs: Sequence[Run]) -> str:
    """Returns `"done"`, or which seeds are missing."""
    missing = [str(run.config.seed) for run in runs if not run.record]
    if not missing:
        return "done"
    if len(missing) == len(runs):
        return "not run yet"
    return f"seed{'s' * bool(missing[1:])} {', '.join(missing)} not run yet"
