"""The table of an experiment in Markdown and CSV, from its JSON alone."""

import collections
import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, pstdev
from typing import Any, NamedTuple

from cli import UserError
from experiments.experiment import Experiment, Row
from experiments.folder import (
    QUICK_EPOCHS,
    QUICK_SAMPLES,
    ExperimentFolder,
    Run,
)
from markdown_table import markdown
from tfcaps.files import write_atomically
from training.runs_file import FinishedRun
from training.tables import NOTHING, Column, Summary, look_up

_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6}
_LAST = ("seeds", "epochs", "seconds", "device", "status")
_HOW = (
    "Mean ± population deviation over seeds; sparsity, parameters and keys are "
    "medians, as in the paper. Of an entropy, the deviation over classes, each "
    "class averaged over seeds before, stands in brackets: the published one "
    "is likely to be that. A difference is ours minus published. Seconds are "
    "those of a whole run with all its models, the mean over seeds.",
    "An entropy is not to be read alone: it is 0 where couplings are uniform "
    "and nothing is routed, which shows in the share of codes off the uniform "
    "coupling and in the T-score (0: uniform, 1: a tree).",
)


class Published(NamedTuple):
    """A number as printed, and its value."""

    text: str
    value: float
    deviation: float | None


def parse(text: str) -> Published:
    """Reads a printed number such as `99.57 ± 0.02`, `71.26` or `6.8M`.

    Raises:
        ValueError: If it is none.
    """
    match = re.fullmatch(r"([\d.]+)([kM]?)(?: ± ([\d.]+))?", text)
    if match is None:
        raise ValueError(f"must be a printed number. Received: {text!r}.")
    value, suffix, deviation = match.groups()
    return Published(
        text,
        float(value) * _SUFFIXES[suffix],
        None if deviation is None else float(deviation),
    )


class Cell(NamedTuple):
    """What stands at a row and a column, as far as it is known."""

    column: Column
    has_published: bool
    ours: Summary | None
    over_classes: float | None
    published: Published | None

    @property
    def difference(self) -> float | None:
        """Ours minus the published number."""
        if self.ours is None or self.published is None:
            return None
        return self.ours.value - self.published.value

    def texts(self) -> dict[str, str]:
        """Returns what Markdown shows, under heads."""
        text = NOTHING if self.ours is None else self.column.text(self.ours)
        if self.over_classes is not None:
            text += f" ({self.column.number(self.over_classes)})"
        shown = {self.column.title: text}
        if self.has_published:
            known = self.published
            shown["published"] = NOTHING if known is None else known.text
            shown["difference"] = signed(self.column, self.difference)
        return shown

    def numbers(self) -> dict[str, float | None]:
        """Returns what CSV has, under the ends of its heads."""
        value, deviation = self.ours or (None, None)
        found = {"": value}
        if self.column.statistic == "mean":
            found[" deviation over seeds"] = deviation
        if self.column.field.endswith("entropy_bits"):
            found[" deviation over classes"] = self.over_classes
        if self.has_published:
            _, printed, about = self.published or (None, None, None)
            found[" published"] = printed
            found[" published deviation"] = about
            found[" difference"] = self.difference
        return found


class Line(NamedTuple):
    """A row of the table, filled in."""

    labels: tuple[str, ...]
    cells: list[Cell]
    seeds: int
    epochs: str
    seconds: float | None
    device: str
    status: str


def write(folder: ExperimentFolder) -> str:
    """Writes `table.md` and `table.csv`; returns the first.

    Raises:
        UserError: If a run has other settings than the experiment.
    """
    for run in folder.runs():
        run.check()
    lines = [_line(folder, row) for row in folder.experiment.rows]
    text = _page(folder, lines)
    for name, content in (
        ("table.md", text),
        ("table.csv", _csv(folder.experiment, lines)),
    ):
        with write_atomically(folder.path / name, "w") as file:
            file.write(content)
    return text


def _line(folder: ExperimentFolder, row: Row) -> Line:
    runs = folder.runs([row.run])
    done = [run.record for run in runs if run.finished]
    seconds = [run.seconds for run in runs if run.finished and run.seconds]
    experiment = folder.experiment
    columns = zip(
        experiment.columns,
        experiment.has_published,
        row.fields,
        row.published,
        strict=True,
    )
    most = "" if row.config.patience is None else "at most "
    return Line(
        row.labels,
        [_cell(*column, done) for column in columns],
        len(done),
        f"{most}{row.config.epochs}",
        mean(seconds) if seconds else None,
        ", ".join(sorted({_device(run.parts) for run in done})),
        _status(runs),
    )


def _cell(
    column: Column,
    has_published: bool,
    field: str | None,
    text: str | None,
    runs: Sequence[FinishedRun],
) -> Cell:
    published = None if text is None else parse(text)
    missing = Cell(column, has_published, None, None, published)
    models = [run.parts["rem"]["models"] for run in runs]
    if field is None or not models:
        return missing
    if column.optional:
        if not all(column.is_known(model, field) for model in models):
            return missing
    else:
        _check(field, models, runs)
    ours = column.summary(models, field)
    over_classes = None
    owner, _, name = field.rpartition(".")
    if name == "entropy_bits":
        per_class = f"{owner}.per_class.{name}"
        classes = zip(*(look_up(m, per_class) for m in models), strict=True)
        over_classes = pstdev(mean(values) for values in classes)
    return Cell(column, has_published, ours, over_classes, published)


def _check(
    field: str, models: Iterable[Any], runs: Iterable[FinishedRun]
) -> None:
    for model, run in zip(models, runs, strict=True):
        try:
            look_up(model, field)
        except (KeyError, IndexError) as error:
            raise UserError(
                f"{run.place('rem')} has no {field}, which the table "
                "shows; run it again with this version."
            ) from error


def _device(parts: Mapping[str, Any]) -> str:
    """Returns what a run was trained on, from its `environment.json`."""
    environment = parts.get("environment", {})
    names = collections.Counter(environment.get("accelerators", []))
    if names:
        return ", ".join(f"{count} × {name}" for name, count in names.items())
    return f"{environment.get('cpus', '?')} CPU cores"


def _status(runs: Sequence[Run]) -> str:
    """Returns `"done"`, or what is missing and why."""
    states: dict[str, list[int]] = {}
    for run in runs:
        states.setdefault(run.status, []).append(run.seed)
    reasons = [state for state in states if state.startswith("not run:")]
    if reasons and "done" not in states:
        return reasons[0]
    if len(states) == 1:
        return next(iter(states))
    states.pop("done", None)
    return "; ".join(
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))} "
        f"{state}"
        for state, seeds in states.items()
    )


def _page(folder: ExperimentFolder, lines: Sequence[Line]) -> str:
    experiment = folder.experiment
    flags = f" --recipe {folder.recipe}" if folder.recipe else ""
    flags += " --quick" if folder.quick else ""
    flags += " --deterministic" if folder.deterministic else ""
    parts = [
        f"# {experiment.title}",
        f"`python experiments/run.py {folder.name}{flags}`",
    ]
    if folder.quick:
        parts.append(
            f"**Reduced budget**: at most {QUICK_SAMPLES} images, "
            f"{QUICK_EPOCHS} epoch and one seed. It shows that the command "
            "works; its numbers mean nothing."
        )
    parts.append(_markdown(experiment, lines))
    parts.append("\n".join(f"- {note}" for note in (*experiment.notes, *_HOW)))
    return "\n\n".join(parts) + "\n"


def _markdown(experiment: Experiment, lines: Sequence[Line]) -> str:
    heads = [head for cell in lines[0].cells for head in cell.texts()]
    rows = [(*experiment.labels, *heads, *_LAST)]
    for line in lines:
        texts = [text for cell in line.cells for text in cell.texts().values()]
        seconds = f"{line.seconds:.0f}" if line.seconds else NOTHING
        last = (line.epochs, seconds, line.device or NOTHING)
        status = line.status.replace("|", "/")
        rows.append((*line.labels, *texts, str(line.seeds), *last, status))
    return markdown(rows, left=len(experiment.labels))


def signed(column: Column, difference: float | None) -> str:
    """Returns a difference with the digits of a column."""
    if difference is None:
        return NOTHING
    # Adding 0 makes -0 a 0.
    return f"{round(difference, column.digits) + 0.0:+,.{column.digits}f}"


def _csv(experiment: Experiment, lines: Sequence[Line]) -> str:
    heads = [
        f"{cell.column.title}{end}"
        for cell in lines[0].cells
        for end in cell.numbers()
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*experiment.labels, *heads, *_LAST])
    for line in lines:
        numbers = [n for cell in line.cells for n in cell.numbers().values()]
        last = [line.epochs, _plain(line.seconds), line.device, line.status]
        writer.writerow(
            [*line.labels, *map(_plain, numbers), line.seeds, *last]
        )
    return text.getvalue()


def _plain(number: float | None) -> str:
    return "" if number is None else f"{round(number, 6) + 0.0:.10g}"
