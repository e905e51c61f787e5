"""The table of an experiment in Markdown and CSV, from its JSON alone."""

import collections
import csv
import io
import re
from collections.abc import Mapping, Sequence
from statistics import mean, pstdev
from typing import Any

from cli import UserError
from experiments.experiment import Row
from experiments.folder import (
    QUICK_EPOCHS,
    QUICK_SAMPLES,
    ExperimentFolder,
    Run,
)
from markdown_table import markdown
from tfcaps.files import write_atomically
from training.tables import (
    NOTHING,
    Column,
    FinishedRun,
    Summary,
    look_up,
)

# Heads, which may be the same, and what stands below.
Cells = list[tuple[str, str]]

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


def write(folder: ExperimentFolder) -> str:
    """Writes `table.md` and `table.csv`; returns the first.

    Raises:
        UserError: If a run has other settings than the experiment.
    """
    for run in folder.runs():
        run.check()
    lines = [_line(folder, row) for row in folder.experiment.rows]
    shown, numbers = (
        [
            [head for head, _ in cells[0]],
            *([text for _, text in line] for line in cells),
        ]
        for cells in zip(*lines, strict=True)
    )
    text = _page(folder, markdown(shown, left=len(folder.experiment.labels)))
    plain = io.StringIO()
    csv.writer(plain, lineterminator="\n").writerows(numbers)
    for name, content in (("md", text), ("csv", plain.getvalue())):
        with write_atomically(folder.path / f"table.{name}", "w") as file:
            file.write(content)
    return text


def _line(folder: ExperimentFolder, row: Row) -> tuple[Cells, Cells]:
    """Returns a row, filled in, as Markdown and as CSV show it."""
    experiment = folder.experiment
    runs = folder.runs([row.run])
    done = [run.record for run in runs if run.finished]
    labels = list(zip(experiment.labels, row.labels, strict=True))
    shown, numbers = labels[:], labels[:]
    for column, field, has_published, printed in zip(
        experiment.columns,
        row.fields,
        experiment.has_published,
        row.published,
        strict=True,
    ):
        texts, values = _cells(column, field, has_published, printed, done)
        shown += texts
        numbers += [(f"{column.title}{end}", _plain(v)) for end, v in values]
    stops = row.config.patience is not None
    times = [run.seconds for run in runs if run.finished and run.seconds]
    seconds = mean(times) if times else None
    device = ", ".join(sorted({_device(run.parts) for run in done}))
    for cells, time, no_device, status in (
        (
            shown,
            NOTHING if seconds is None else f"{seconds:.0f}",
            NOTHING,
            _status(runs).replace("|", "/"),
        ),
        (numbers, _plain(seconds), "", _status(runs)),
    ):
        cells += [
            ("seeds", str(len(done))),
            ("epochs", f"{'at most ' if stops else ''}{row.config.epochs}"),
            ("seconds", time),
            ("device", device or no_device),
            ("status", status),
        ]
    return shown, numbers


def _cells(
    column: Column,
    field: str | None,
    has_published: bool,
    printed: str | None,
    runs: Sequence[FinishedRun],
) -> tuple[Cells, list[tuple[str, float | None]]]:
    """Returns texts under heads, and numbers under the ends of heads."""
    models = [run.parts["rem"]["models"] for run in runs]
    ours: Summary | None = None
    over_classes = None
    if field and models and _are_known(column, field, models, runs):
        ours = column.summary(models, field)
        owner, _, name = field.rpartition(".")
        if name == "entropy_bits":
            per_class = f"{owner}.per_class.{name}"
            found = (look_up(model, per_class) for model in models)
            over_classes = pstdev(map(mean, zip(*found, strict=True)))
    value, deviation = ours or (None, None)
    text = NOTHING if ours is None else column.text(ours)
    if over_classes is not None:
        text += f" ({column.number(over_classes)})"
    texts = [(column.title, text)]
    numbers = [("", value)]
    if column.statistic == "mean":
        numbers.append((" deviation over seeds", deviation))
    if column.field.endswith("entropy_bits"):
        numbers.append((" deviation over classes", over_classes))
    if has_published:
        known, about = parse(printed) if printed else (None, None)
        difference = None
        if value is not None and known is not None:
            difference = value - known
        texts.append(("published", printed or NOTHING))
        texts.append(("difference", signed(column, difference)))
        numbers += [
            (" published", known),
            (" published deviation", about),
            (" difference", difference),
        ]
    return texts, numbers


def _are_known(
    column: Column,
    field: str,
    models: Sequence[Any],
    runs: Sequence[FinishedRun],
) -> bool:
    """Tells whether all models have a measure, which only some may lack."""
    if column.optional:
        return all(column.is_known(model, field) for model in models)
    for model, run in zip(models, runs, strict=True):
        try:
            look_up(model, field)
        except (KeyError, IndexError) as error:
            raise UserError(
                f"{run.origin}, rem has no {field}, which the table "
                "shows; run it again with this version."
            ) from error
    return True


def parse(text: str) -> tuple[float, float | None]:
    """Reads a printed number such as `99.57 ± 0.02`, `71.26` or `6.8M`.

    Returns:
        Its value, and its deviation if there is one.

    Raises:
        ValueError: If it is none.
    """
    match = re.fullmatch(r"([\d.]+)([kM]?)(?: ± ([\d.]+))?", text)
    if match is None:
        raise ValueError(f"must be a printed number. Received: {text!r}.")
    value, suffix, deviation = match.groups()
    return (
        float(value) * _SUFFIXES[suffix],
        None if deviation is None else float(deviation),
    )


def signed(column: Column, difference: float | None) -> str:
    """Returns a difference with the digits of a column."""
    if difference is None:
        return NOTHING
    # Adding 0 makes -0 a 0.
    return f"{round(difference, column.digits) + 0.0:+,.{column.digits}f}"


def _plain(number: float | None) -> str:
    return "" if number is None else f"{round(number, 6) + 0.0:.10g}"


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


def _page(folder: ExperimentFolder, table: str) -> str:
    flags = f" --recipe {folder.recipe}" if folder.recipe else ""
    flags += " --quick" if folder.quick else ""
    parts = [
        f"# {folder.experiment.title}",
        f"`python experiments/run.py {folder.name}{flags}`",
    ]
    if folder.quick:
        parts.append(
            f"**Reduced budget**: at most {QUICK_SAMPLES} images, "
            f"{QUICK_EPOCHS} epoch and one seed. It shows that the command "
            "works; its numbers mean nothing."
        )
    notes = (*folder.experiment.notes, *_HOW)
    parts += [table, "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"
