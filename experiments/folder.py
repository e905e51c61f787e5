"""The folder of an experiment: its runs, which are finished, and its table.

    <folder>/experiment.json     which experiment, recipe and seeds
    <folder>/runs.jsonl          the finished runs, see `training/tables.py`
    <folder>/table.md            made of these
    <folder>/<run>/seed-42/      a run folder, see `training/folder.py`

The run folders may go when their runs are finished.
"""

import collections
import dataclasses
import fnmatch
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, NamedTuple

from cli import UserError
from experiments.experiment import Experiment, Row, load
from markdown_table import markdown
from tfcaps.files import write_atomically
from training import tables
from training.configs import Config
from training.tables import NOTHING, Column, FinishedRun, look_up

_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6}


class Run(NamedTuple):
    """A run of an experiment with one seed, done or not.

    `start_from` of its settings names a run of the experiment, that of the same
    seed.
    """

    name: str
    config: Config
    path: Path  # of its run folder, which may not exist
    record: FinishedRun | None  # the line of `runs.jsonl`, when it is finished
    gone: str | None  # the last commit that could train it, if this cannot

    def __str__(self) -> str:
        return f"{self.name}, seed {self.config.seed}"

    @property
    def seconds(self) -> float:
        """How long a finished run took; 0 if that is not known."""
        parts = self.record.parts if self.record else {}
        noted = parts.get("seconds") or parts.get("rem") or {}
        return float(noted.get("seconds") or 0.0)

    def begin(self, data_dir: str | None) -> None:
        """Writes the settings into the folder, for a process to resume."""
        self.path.mkdir(parents=True, exist_ok=True)
        settings = dataclasses.asdict(self.config) | {"data_dir": data_dir}
        if start := self.config.start_from:
            folder = self.path.parents[1] / start / self.path.name
            settings["start_from"] = str(folder)
        _write_json(self.path / "config.json", settings)

    def check(self) -> None:
        """Raises `UserError` if it was made with other settings.

        The folder of the data does not matter, nor do settings of REM in a run
        without REM. What is newer than the run counts as its default.
        """
        file, where = self.path / "config.json", str(self.path)
        if self.record:
            found, where = self.record.parts["config"], f"{self.record.origin},"
        elif file.exists():
            found = json.loads(file.read_text("utf-8"))
        else:
            return
        found = _as_json(dataclasses.asdict(Config()) | found)
        if (start := found["start_from"]) is not None:
            found["start_from"] = Path(start).parent.name
        for name, wanted in _as_json(dataclasses.asdict(self.config)).items():
            if name == "data_dir" or not self.config.uses(name):
                continue
            if found[name] != wanted:
                raise UserError(
                    f"the run in {where} has {name}={found[name]!r}, but the "
                    f"experiment's run {self.name} has {name}={wanted!r}; give "
                    "another --out, or remove that run."
                )


class ExperimentFolder:
    """The folder of an experiment, and its runs.

    Args:
        path: The folder.
        name: Name of the experiment.
        recipe: One of `experiment.RECIPES`, or `None`.
        seeds: Seeds of each run, or `None` for those of the experiment.
    """

    def __init__(
        self, path: Path, name: str, recipe: str | None, seeds: Any = None
    ):
        self.path, self.name, self.recipe = path, name, recipe
        self.experiment = load(name, recipe)
        self.seeds = tuple(dict.fromkeys(seeds or self.experiment.seeds))

    @classmethod
    def open(cls, path: Path) -> "ExperimentFolder":
        """Returns the folder of an experiment that was begun, or an error."""
        file = path / "experiment.json"
        try:
            about = json.loads(file.read_text("utf-8"))
            known = {key: about[key] for key in ("name", "recipe", "seeds")}
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{file} is not that of an experiment.") from error
        return cls(path, **known)

    def runs(self, patterns: Iterable[str] = ("*",)) -> list[Run]:
        """Returns the runs of these names, with all seeds, done or not.

        Raises:
            UserError: If no run matches a pattern such as `digits-*`.
        """
        known = self.experiment.runs
        chosen: dict[str, None] = {}
        for pattern in patterns:
            chosen |= dict.fromkeys(found := fnmatch.filter(known, pattern))
            if not found:
                raise UserError(
                    f"{self.name} has no run {pattern!r}; it has "
                    f"{', '.join(known)}."
                )
        file = self.path / tables.FILE_NAME
        lines = tables.read_file(file) if file.exists() else []
        finished = {run.key: run for run in lines}
        return [
            Run(
                name,
                dataclasses.replace(known[name].config, seed=seed),
                self.path / name / f"seed-{seed}",
                finished.get((name, seed)),
                known[name].gone,
            )
            for name in chosen
            for seed in self.seeds
        ]

    def begin(self) -> None:
        """Creates the folder, or continues it, perhaps with more seeds."""
        about = {"name": self.name, "recipe": self.recipe}
        file = self.path / "experiment.json"
        if file.exists():
            before = ExperimentFolder.open(self.path)
            held = {key: getattr(before, key) for key in about}
            if held != about:
                raise UserError(
                    f"{self.path} holds another experiment, {held}, not "
                    f"{about}; give another --out."
                )
            self.seeds = tuple(sorted({*before.seeds, *self.seeds}))
        self.path.mkdir(parents=True, exist_ok=True)
        _write_json(file, {**about, "seeds": list(self.seeds)})

    def add(self, run: Run) -> None:
        """Adds a run to `runs.jsonl` if its folder says that it is finished."""
        if (run.path / "rem.json").exists():
            (record,) = tables.read(run.path)
            named = dataclasses.replace(record, name=run.name)
            tables.add(self.path / tables.FILE_NAME, [named])

    def write_table(self) -> str:
        """Writes `table.md`, and returns it.

        Raises:
            UserError: If a run has other settings than the experiment.
        """
        runs: dict[str, list[Run]] = {}
        for run in self.runs():
            run.check()
            runs.setdefault(run.name, []).append(run)
        about = self.experiment
        lines = [_line(about, row, runs[row.run]) for row in about.rows]
        head = [title for title, _ in lines[0]]
        rows = [[text for _, text in line] for line in lines]
        table = markdown([head, *rows], left=len(about.labels))
        flags = f" --recipe {self.recipe}" if self.recipe else ""
        command = f"`python experiments/run.py {self.name}{flags}`"
        notes = "\n".join(f"- {note}" for note in about.notes)
        text = "\n\n".join([f"# {about.title}", command, table, notes]) + "\n"
        with write_atomically(self.path / "table.md", "w") as file:
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


def _write_json(path: Path, content: Any) -> None:
    with write_atomically(path, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings as JSON has them, with lists for tuples."""
    return json.loads(json.dumps(settings))
