"""The table of an experiment in Markdown and CSV, from its JSON alone."""

import collections
import csv
import io
import re
from collections.abc import Mapping, Sequence
from statistics import mean, pstdev
from typing import Any, NamedTuple

from cli import UserError
from experiments.experiment import Experiment, Row
from experiments.folder import QUICK_EPOCHS, QUICK_SAMPLES, ExperimentFolder
from experiments.one_run import Run
from markdown_table import markdown
from tfcaps.files import write_atomically
from training.tables import NOTHING, Column, Summary, look_up

_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6}
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

    ours: Summary | None
    over_classes: float | None
    published: Published | None

    @property
    def difference(self) -> float | None:
        if self.ours is None or self.published is None:
            return None
        return self.ours.value - self.published.value


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
    runs = folder.runs_of(row)
    done = [run for run in runs if run.finished]
    models = [run.models() for run in done]
    for run, model in zip(done, models, strict=True):
        _check_fields(run, model, row, folder.experiment.columns)
    seconds = [run.seconds for run in done if run.seconds]
    return Line(
        row.labels,
        [
            _cell(column, field, models, text)
            for column, field, text in zip(
                folder.experiment.columns,
                row.fields,
                row.published,
                strict=True,
            )
        ],
        len(done),
        _epochs(row),
        mean(seconds) if seconds else None,
        ", ".join(sorted({_device(run) for run in done})),
        _status(runs),
    )


def _check_fields(
    run: Run,
    models: Mapping[str, Any],
    row: Row,
    columns: Sequence[Column],
) -> None:
    for column, field in zip(columns, row.fields, strict=True):
        try:
            column.optional or field is None or look_up(models, field)
        except (KeyError, IndexError) as error:
            raise UserError(
                f"{run.place('rem')} has no {field}, which the table "
                "shows; run it again with this version."
            ) from error


def _cell(
    column: Column,
    field: str | None,
    models: Sequence[Mapping[str, Any]],
    text: str | None,
) -> Cell:
    published = None if text is None else parse(text)
    known = all(column.is_known(model, field) for model in models)
    if field is None or not models or not known:
        return Cell(None, None, published)
    return Cell(
        column.summary(models, field), _over_classes(field, models), published
    )


def _over_classes(
    field: str, models: Sequence[Mapping[str, Any]]
) -> float | None:
    """Returns how an entropy deviates over classes, averaged over seeds."""
    owner, _, name = field.rpartition(".")
    if name != "entropy_bits":
        return None
    per_class = f"{owner}.per_class.{name}"
    classes = zip(*(look_up(m, per_class) for m in models), strict=True)
    return pstdev(mean(values) for values in classes)


def _epochs(row: Row) -> str:
    stops = (row.config.patience, row.config.stop_accuracy)
    most = "at most " if stops != (None, None) else ""
    return f"{most}{row.config.epochs}"


def _device(run: Run) -> str:
    return device(run.read("environment.json") or {})


def device(environment: Mapping[str, Any]) -> str:
    """Returns what a run was trained on, from its `environment.json`."""
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


# ------------------------------------------------------------------- writing


def _page(folder: ExperimentFolder, lines: Sequence[Line]) -> str:
    experiment = folder.experiment
    recipe = f" --recipe {folder.recipe}" if folder.recipe else ""
    flags = " --quick" if folder.quick else ""
    flags += " --deterministic" if folder.deterministic else ""
    parts = [
        f"# {experiment.title}",
        f"`python experiments/run.py {folder.name}{recipe}{flags}`",
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
    head = list(experiment.labels)
    for column, has_published in _pairs(experiment):
        head += [column.title]
        head += ["published", "difference"] if has_published else []
    rows = [(*head, "seeds", "epochs", "seconds", "device", "status")]
    for line in lines:
        cells = list(line.labels)
        for (column, has_published), cell in zip(
            _pairs(experiment), line.cells, strict=True
        ):
            cells.append(_ours(column, cell))
            if has_published:
                cells.append(cell.published.text if cell.published else NOTHING)
                cells.append(_signed(column, cell.difference))
        rows.append(
            (
                *cells,
                str(line.seeds),
                line.epochs or NOTHING,
                f"{line.seconds:.0f}" if line.seconds else NOTHING,
                line.device or NOTHING,
                line.status.replace("|", "/"),
            )
        )
    return markdown(rows, left=len(experiment.labels))


def _pairs(experiment: Experiment) -> list[tuple[Column, bool]]:
    return list(zip(experiment.columns, experiment.has_published, strict=True))


def _ours(column: Column, cell: Cell) -> str:
    if cell.ours is None:
        return NOTHING
    text = column.text(cell.ours)
    if cell.over_classes is not None:
        text += f" ({column.number(cell.over_classes)})"
    return text


def _signed(column: Column, difference: float | None) -> str:
    if difference is None:
        return NOTHING
    # Adding 0 makes -0 a 0.
    return f"{round(difference, column.digits) + 0.0:+,.{column.digits}f}"


def _csv(experiment: Experiment, lines: Sequence[Line]) -> str:
    head = list(experiment.labels)
    for column, has_published in _pairs(experiment):
        head += _csv_head(column, has_published)
    head += ["seeds", "epochs", "seconds", "device", "status"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for line in lines:
        cells: list[Any] = list(line.labels)
        for (column, has_published), cell in zip(
            _pairs(experiment), line.cells, strict=True
        ):
            cells += _csv_cells(column, has_published, cell)
        cells += [line.seeds, line.epochs, _as_text(line.seconds)]
        writer.writerow([*cells, line.device, line.status])
    return text.getvalue()


def _csv_head(column: Column, has_published: bool) -> list[str]:
    names = [""]
    if column.statistic == "mean":
        names.append(" deviation over seeds")
    if column.field.endswith("entropy_bits"):
        names.append(" deviation over classes")
    if has_published:
        names += [" published", " published deviation", " difference"]
    return [f"{column.title}{name}" for name in names]


def _csv_cells(column: Column, has_published: bool, cell: Cell) -> list[str]:
    numbers = list(cell.ours or (None, None))
    if column.statistic == "median":
        numbers.pop()
    if column.field.endswith("entropy_bits"):
        numbers.append(cell.over_classes)
    if has_published:
        _, *printed = cell.published or (None, None, None)
        numbers += [*printed, cell.difference]
    return [_as_text(number) for number in numbers]


def _as_text(number: float | None) -> str:
    return "" if number is None else f"{round(number, 6) + 0.0:.10g}"
