"""A run of an experiment, in its folder or in a line of `runs.jsonl`."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from cli import UserError
from tfcaps.files import write_atomically
from training.configs import Config, filled_in
from training.runs_file import PARTS, FinishedRun

_METRICS = "metrics.jsonl"


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of an experiment with one seed, done or not.

    Attributes:
        name: Name of the run in its experiment.
        seed: Its seed.
        config: Its settings, with the seed. `start_from` names another run of
            the experiment, that of the same seed.
        path: Its run folder, which may not exist.
    """

    name: str
    seed: int
    config: Config
    path: Path

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def start(self) -> Path | None:
        """The folder of the run whose network it begins with, if it does."""
        if self.config.start_from is None:
            return None
        return self.path.parents[1] / self.config.start_from / self.path.name

    @property
    def where(self) -> str:
        """Where it is, for messages."""
        return str(self.path)

    @property
    def remedy(self) -> str:
        """What to do if its settings are not those of the experiment."""
        return "give another --out, or remove the folder"

    @property
    def finished(self) -> bool:
        """Whether all of it is there."""
        return (self.path / "rem.json").exists()

    @property
    def seconds(self) -> float:
        """How long it has run so far, over all the times it was started."""
        noted = self.read("seconds.json") or self.read("rem.json") or {}
        return float(noted.get("seconds") or 0.0)

    @property
    def status(self) -> str:
        """`"done"`, or why it is not."""
        if self.finished:
            return "done"
        return (self.read("status.json") or {"status": "not run yet"})["status"]

    def models(self) -> dict[str, Any]:
        """Returns the reports of a finished run."""
        return self.read("rem.json")["models"]

    def check(self) -> None:
        """Compares the settings in the folder with those of the experiment.

        The folder of the data does not matter, nor do settings of REM in a run
        without REM. Settings that are newer than the folder count as the value
        that changes nothing.

        Raises:
            UserError: If they differ, because numbers would be shown under
                settings they were not made with.
        """
        kept = self.read("config.json")
        if kept is None:
            return
        kept = _as_json(filled_in(kept))
        if (start := kept["start_from"]) is not None:
            kept["start_from"] = Path(start).parent.name
        for name, wanted in _as_json(dataclasses.asdict(self.config)).items():
            if name == "data_dir" or not self.config.uses(name):
                continue
            if kept[name] != wanted:
                raise UserError(
                    f"the run in {self.where} has {name}={kept[name]!r}, but "
                    f"the experiment's run {self.name} has {name}={wanted!r}; "
                    f"{self.remedy}."
                )

    def begin(self, data_dir: str | None) -> None:
        """Writes the settings into the folder, for a process to resume."""
        start = None if self.start is None else str(self.start)
        config = dataclasses.replace(
            self.config, data_dir=data_dir, start_from=start
        )
        self.write("config.json", _as_json(dataclasses.asdict(config)))
        (self.path / "status.json").unlink(missing_ok=True)

    def read(self, name: str) -> Any:
        """Returns what a JSON file of the folder holds, `None` without it."""
        try:
            return json.loads((self.path / name).read_text("utf-8"))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: Any) -> None:
        write_json(self.path / name, content)

    def place(self, part: str) -> str:
        """Returns where `part`.json is read, for messages."""
        return str(self.path / f"{part}.json")

    def finished_run(self) -> FinishedRun:
        """Returns what is kept of the run when it is finished."""
        contents = {part: self.read(f"{part}.json") for part in PARTS}
        known = {k: v for k, v in contents.items() if v is not None}
        return FinishedRun(self.name, self.seed, known, self.path)

    def copy_to(self, folder: Path) -> None:
        """Writes a run folder with its small files, but not the data's folder.

        `rem.json` is written last: the folder is that of a finished run only
        when it is complete.
        """
        folder.mkdir(parents=True, exist_ok=True)
        copy = Run(self.name, self.seed, self.config, folder)
        copy.write(
            "config.json", {**self.read("config.json"), "data_dir": None}
        )
        if (self.path / _METRICS).exists():
            shutil.copyfile(self.path / _METRICS, folder / _METRICS)
        for part in (part for part in PARTS if part != "config"):
            (folder / f"{part}.json").unlink(missing_ok=True)
            if (content := self.read(f"{part}.json")) is not None:
                copy.write(f"{part}.json", content)


@dataclasses.dataclass(frozen=True)
class CollectedRun(Run):
    """A finished run that is kept in a line of `runs.jsonl`.

    Attributes:
        kept: What the line holds.
    """

    kept: FinishedRun

    @property
    def where(self) -> str:
        """The file and the line, for messages."""
        return f"{self.kept.origin}, line {self.kept.line},"

    @property
    def remedy(self) -> str:
        """What to do if its settings are not those of the experiment."""
        return "collect it anew, or remove the line"

    @property
    def finished(self) -> bool:
        """Whether all of it is there; no other run is kept."""
        return True

    def read(self, name: str) -> Any:
        """Returns what the line has of a JSON file, `None` without it."""
        return self.kept.parts.get(name.removesuffix(".json"))

    def place(self, part: str) -> str:
        """Returns the line and the part, for messages."""
        return self.kept.place(part)


def write_json(path: Path, content: Any) -> None:
    with write_atomically(path, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings as JSON has them, with lists for tuples."""
    return json.loads(json.dumps(settings))
