"""Finished runs: kept in one file, from which tables are made.

python training/tables.py runs/digits-* --to results/mine/runs.jsonl

adds run folders, or lines of another `runs.jsonl`, to such a file. A line of it
is a JSON object: the `name` of the run, its `seed`, and under the
name of each JSON file of its run folder what that file holds:

    {"name": "digits", "seed": 0, "config": {...}, "environment": {...},
     "seconds": {...}, "rem": {"seconds": 133.6, "models": {...}}}

Lines are sorted by name and seed. No two have both the same.
"""

import argparse
import dataclasses
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median, pstdev
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, run_command, start_quietly

FILE_NAME = "runs.jsonl"
# The JSON files of a run folder that are kept, without their suffix.
PARTS = ("config", "environment", "seconds", "rem")
_NEEDED = ("config", "rem")
COLUMNS = tomllib.loads(
    Path(__file__).with_name("columns.toml").read_text("utf-8")
)
TITLES = {"baseline": "Baseline", "rem": "REM"}
NOTHING = "–"

# --------------------------------------------------------------- finished runs


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run, read from its folder or from a line of a file."""

    name: str  # which runs with other seeds share
    seed: int
    parts: Mapping[str, Any]  # its JSON files, by their names without suffix
    origin: str  # the folder, or the file and its line, for messages

    @property
    def key(self) -> tuple[str, int]:
        """Name and seed, which tell runs apart."""
        return self.name, self.seed


def read(path: Path) -> list[FinishedRun]:
    """Returns the finished runs that a path leads to."""
    for file in (path, path / FILE_NAME):
        if file.is_file():
            return read_file(file)
    files = {part: path / f"{part}.json" for part in PARTS}
    files = {p: f for p, f in files.items() if f.is_file() or p in _NEEDED}
    try:
        parts = {p: json.loads(f.read_bytes()) for p, f in files.items()}
        return [
            FinishedRun(path.name, parts["config"]["seed"], parts, str(path))
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no finished run: {error}.") from error


def read_file(path: Path) -> list[FinishedRun]:
    """Returns the runs of a `runs.jsonl`, in the order of its lines."""
    if not path.is_file():
        raise UserError(f"there is no {path}.")
    runs = []
    for number, text in enumerate(path.read_bytes().splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            content = json.loads(text)
            name, seed = content.pop("name"), content.pop("seed")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise UserError(
                f"{where} must be an object of JSON with name and seed."
            ) from error
        runs.append(FinishedRun(name, seed, content, where))
    return runs


def add(path: Path, runs: Iterable[FinishedRun]) -> None:
    """Adds runs to a `runs.jsonl`, which is made if it is not there.

    A run takes the place of one with the same name and seed; all others stay.
    Where the data lay is left out. The file appears complete or not at all.
    """
    before = read_file(path) if path.exists() else []
    merged = {run.key: run for run in (*before, *runs)}
    # Who only reads such files need not wait for TensorFlow.
    from tfcaps.files import write_atomically

    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path, "w") as file:
        file.writelines(_line(merged[key]) for key in sorted(merged))


def _line(run: FinishedRun) -> str:
    config = {**run.parts["config"], "data_dir": None}
    if config.get("start_from") is not None:
        # Its name and seed, wherever it was.
        config["start_from"] = "/".join(Path(config["start_from"]).parts[-2:])
    parts = {**run.parts, "config": config}
    # First what is known, in the order of `PARTS`.
    order = {name: parts[name] for name in PARTS if name in parts} | parts
    return json.dumps({"name": run.name, "seed": run.seed, **order}) + "\n"


# ------------------------------------------------------------ columns of tables


@dataclasses.dataclass(frozen=True)
class Column:
    """A measure of a model: how it is called, stored and written."""

    title: str
    field: str  # where it stands in `rem.json`; dots lead downwards
    digits: int  # after the point
    factor: float = 1.0
    statistic: str = "mean"  # over seeds, with its deviation, or "median"
    optional: bool = False  # models without it get "–"

    def summary(
        self, models: Sequence[Mapping[str, Any]], field: str | None = None
    ) -> list[float]:
        """Returns the measure, or another field, over models of some seeds.

        Behind a mean stands its population deviation, if there are several.
        """
        field = field or self.field
        values = [self.factor * look_up(model, field) for model in models]
        if self.statistic == "median":
            return [median(values)]
        return [mean(values), pstdev(values)][: len(values)]

    def write(self, models: Sequence[Mapping[str, Any]]) -> str:
        """Returns the mean over models, ± its deviation if there are more."""
        if self.optional and not all(map(self.is_known, models)):
            return NOTHING
        return self.text(self.summary(models))

    def text(self, summary: Sequence[float]) -> str:
        """Returns a value, ± its deviation if there is one."""
        return " ± ".join(map(self.number, summary))

    def number(self, value: float) -> str:
        """Returns a number with the digits of the column."""
        return f"{value:,.{self.digits}f}"

    def is_known(
        self, model: Mapping[str, Any], field: str | None = None
    ) -> bool:
        """Tells whether a model has the measure, which may be optional."""
        try:
            return look_up(model, field or self.field) is not None
        except (KeyError, TypeError):  # also of an older version
            return False


def columns(name: str) -> list[Column]:
    """Returns some of `columns.toml`."""
    every = (Column(*each) for each in COLUMNS[name])
    return [dataclasses.replace(each, optional=True) for each in every]


def look_up(model: Mapping[str, Any], field: str) -> Any:
    """Returns what a field with dots leads to, through dicts and lists.

    Raises:
        KeyError: If there is no such field.
    """
    value: Any = model
    for name in field.split("."):
        value = value[int(name) if isinstance(value, list) else name]
    return value


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="training/tables.py", description=__doc__)
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=Path,
        help="folders of finished runs, or files of them, runs.jsonl",
    )
    add(
        "--to",
        type=Path,
        required=True,
        metavar="FILE",
        help="the runs.jsonl to which they are added, in the place of those "
        "that have the same name and seed",
    )
    add(
        "--name",
        help="what the runs are called there (default: like their folders)",
    )
    return parser


def main(options: argparse.Namespace) -> None:
    """Adds the runs to a file."""
    runs = [run for path in options.runs for run in read(path)]
    start_quietly()
    if options.name is not None:
        runs = [dataclasses.replace(r, name=options.name) for r in runs]
    add(options.to, runs)


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), main))
