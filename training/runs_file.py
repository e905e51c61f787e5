"""Finished runs in one file, `runs.jsonl`, with a line for each of them.

A line is a JSON object: the `name` of the run, its `seed`, and under the name
of each JSON file of its run folder what that file holds:

    {"name": "digits", "seed": 0, "config": {...}, "environment": {...},
     "seconds": {...}, "rem": {"seconds": 133.6, "models": {...}}}

Lines are sorted by name and seed. No two have both the same.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cli import UserError

FILE_NAME = "runs.jsonl"
# The JSON files of a run folder that are kept, without their suffix.
PARTS = ("config", "environment", "seconds", "rem")
# What a run cannot lack, and what each of these must hold.
_NEEDED = {
    "config": ("dataset", "seed", "epochs", "decay"),
    "rem": ("models", "seconds"),
}


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run, read from its folder or from a line of a file.

    Attributes:
        name: Its name, which runs with other seeds share.
        seed: Its seed.
        parts: What its JSON files hold, by their names without suffix.
        origin: The run folder, or the file.
        line: Which line of the file it is, from 1; `None` for a folder.
    """

    name: str
    seed: int
    parts: Mapping[str, Any]
    origin: Path
    line: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Name and seed, which tell runs apart."""
        return self.name, self.seed

    def place(self, part: str) -> str:
        """Returns where a part was read, for messages."""
        if self.line is None:
            return str(self.origin / f"{part}.json")
        return f"{self.origin}, line {self.line}, {part}"


def read(path: Path) -> list[FinishedRun]:
    """Returns the finished runs that a path leads to.

    Args:
        path: A run folder, a `runs.jsonl`, or a folder with such a file.

    Raises:
        UserError: If there is no finished run, or a file is broken.
    """
    for file in (path, path / FILE_NAME):
        if file.is_file():
            return read_file(file)
    parts = {
        part: _json(path / f"{part}.json")
        for part in PARTS
        if part in _NEEDED or (path / f"{part}.json").exists()
    }
    run = FinishedRun(path.name, 0, parts, path)
    _check_parts(run)
    return [dataclasses.replace(run, seed=parts["config"]["seed"])]


def read_file(path: Path) -> list[FinishedRun]:
    """Returns the runs of a `runs.jsonl`, in the order of its lines.

    Raises:
        UserError: If there is no such file, a line is not that of a run, or
            two have the same name and seed. It says which line.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError as error:
        raise UserError(f"there is no {path}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text: {error}.") from error
    runs: dict[tuple[str, int], FinishedRun] = {}
    for number, text in enumerate(lines, start=1):
        run = _of_line(text, path, number)
        if run.key in runs:
            raise UserError(
                f"{path}, line {number}: {run.name} with seed {run.seed} is "
                f"in line {runs[run.key].line} already."
            )
        runs[run.key] = run
    return list(runs.values())


def add(path: Path, runs: Iterable[FinishedRun]) -> None:
    """Adds runs to a `runs.jsonl`, which is made if it is not there.

    A run takes the place of one with the same name and seed; all others stay.
    Where the data lay is left out. The file appears complete or not at all.

    Args:
        path: The file. Its folder must exist.
        runs: The runs, with different names or seeds.

    Raises:
        UserError: If the file that is there is broken, or a run lacks its
            settings or numbers.
    """
    merged = {run.key: run for run in read_file(path)} if path.exists() else {}
    for run in runs:
        _check_parts(run)
        merged[run.key] = run
    # Who only reads such files need not wait for TensorFlow.
    from tfcaps.files import write_atomically

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


def _of_line(text: str, path: Path, number: int) -> FinishedRun:
    where = f"{path}, line {number}"
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{where} must be an object with name and seed.")
    name, seed = content.pop("name", None), content.pop("seed", None)
    if not isinstance(name, str) or type(seed) is not int:
        raise UserError(
            f"{where} must have a name, a string, and a seed, a whole number. "
            f"Received: name={name!r}, seed={seed!r}."
        )
    run = FinishedRun(name, seed, content, path, number)
    _check_parts(run)
    return run


def _check_parts(run: FinishedRun) -> None:
    for part, names in _NEEDED.items():
        content = run.parts.get(part)
        if not isinstance(content, dict):
            raise UserError(f"{run.place(part)} must be an object.")
        if missing := [name for name in names if name not in content]:
            raise UserError(
                f"{run.place(part)} is not that of a run: it has no "
                f"{missing[0]}."
            )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"{path.parent} is no finished run: it has no {path.name}."
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}.") from error
