"""The folder of an experiment: its runs, and what is known of each.

While it is run:

    <folder>/experiment.json     which experiment, recipe and seeds
    <folder>/<run>/seed-42/      a run folder, see `training/folder.py`
    <folder>/table.md, *.png

When it is collected, for keeping, `runs.jsonl` has the finished runs instead of
their folders, see `training/tables.py`.
"""

import dataclasses
import fnmatch
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cli import UserError
from experiments.experiment import load
from tfcaps.files import write_atomically
from training import tables
from training.configs import Config, filled_in
from training.tables import FinishedRun

# What `--quick` leaves of a run.
QUICK_SAMPLES = 200
QUICK_EPOCHS = 1


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of an experiment with one seed, done or not.

    Attributes:
        name: Name of the run in its experiment.
        config: Its settings, with the seed. `start_from` names another run of
            the experiment, that of the same seed.
        path: Its run folder, which may not exist.
        kept: The line of `runs.jsonl` that has it, if one does.
    """

    name: str
    config: Config
    path: Path
    kept: FinishedRun | None = None

    def __str__(self) -> str:
        return f"{self.name}, seed {self.config.seed}"

    @property
    def start(self) -> Path | None:
        """The folder of the run whose network it begins with, if it does."""
        if self.config.start_from is None:
            return None
        return self.path.parents[1] / self.config.start_from / self.path.name

    @property
    def record(self) -> FinishedRun | None:
        """What is kept of the run, `None` if it is not finished."""
        if self.kept or not (self.path / "rem.json").exists():
            return self.kept
        (run,) = tables.read(self.path)
        return dataclasses.replace(run, name=self.name)

    @property
    def seconds(self) -> float:
        """How long it has run so far, over all the times it was started."""
        noted = self.read("seconds") or self.read("rem") or {}
        return float(noted.get("seconds") or 0.0)

    @property
    def status(self) -> str:
        """`"done"`, or why it is not."""
        if self.record:
            return "done"
        return (self.read("status") or {"status": "not run yet"})["status"]

    def read(self, part: str) -> Any:
        """Returns what a JSON file of the run holds, `None` without it."""
        if self.kept:
            return self.kept.parts.get(part)
        file = self.path / f"{part}.json"
        return json.loads(file.read_text("utf-8")) if file.exists() else None

    def write(self, part: str, content: Any) -> None:
        """Writes a JSON file of the run folder."""
        _write_json(self.path / f"{part}.json", content)

    def begin(self, data_dir: str | None) -> None:
        """Writes the settings into the folder, for a process to resume."""
        start = None if self.start is None else str(self.start)
        settings = dataclasses.asdict(self.config)
        self.write(
            "config", settings | {"data_dir": data_dir, "start_from": start}
        )

    def check(self) -> None:
        """Compares the settings in the folder with those of the experiment.

        The folder of the data does not matter, nor do settings of REM in a run
        without REM. Settings that are newer than the folder count as the value
        that changes nothing.

        Raises:
            UserError: If they differ, because numbers would be shown under
                settings they were not made with.
        """
        found = self.read("config")
        if found is None:
            return
        found = _as_json(filled_in(found))
        if (start := found["start_from"]) is not None:
            found["start_from"] = Path(start).parent.name
        where = f"{self.kept.origin}," if self.kept else str(self.path)
        for name, wanted in _as_json(dataclasses.asdict(self.config)).items():
            if name == "data_dir" or not self.config.uses(name):
                continue
            if found[name] != wanted:
                raise UserError(
                    f"the run in {where} has {name}={found[name]!r}, but the "
                    f"experiment's run {self.name} has {name}={wanted!r}; run "
                    "it anew in another folder, or remove it."
                )


class ExperimentFolder:
    """The folder of an experiment, and its runs.

    Args:
        path: The folder.
        name: Name of the experiment.
        recipe: One of `experiment.RECIPES`, or `None`.
        quick: Whether everything is reduced, to see that it works.
        seeds: Seeds of each run, or `None` for those of the experiment.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        recipe: str | None,
        quick: bool,
        seeds: Sequence[int] | None = None,
    ):
        self.path = path
        self.name = name
        self.recipe = recipe
        self.quick = quick
        self.experiment = load(name, recipe)
        if quick:
            self.experiment = self.experiment.reduced(
                QUICK_SAMPLES, QUICK_EPOCHS
            )
        self.seeds = tuple(dict.fromkeys(seeds or self.experiment.seeds))

    @classmethod
    def open(cls, path: Path) -> "ExperimentFolder":
        """Returns the folder of an experiment that was begun.

        Raises:
            UserError: If it is none.
        """
        file = path / "experiment.json"
        if not file.exists():
            raise UserError(
                f"{path} is no experiment: it has no experiment.json."
            )
        try:
            return cls(path, **json.loads(file.read_text("utf-8")))
        except (TypeError, ValueError) as error:
            raise UserError(f"{file} is not that of an experiment.") from error

    def runs(self, patterns: Iterable[str] = ("*",)) -> list[Run]:
        """Returns the runs with all seeds, done or not.

        Args:
            patterns: Names of runs, or patterns such as `digits-*`.

        Raises:
            UserError: If no run has such a name.
        """
        configs = self.experiment.configs
        chosen: list[str] = []
        for pattern in patterns:
            matching = fnmatch.filter(configs, pattern)
            if not matching:
                raise UserError(
                    f"{self.name} has no run {pattern!r}; it has "
                    f"{', '.join(configs)}."
                )
            chosen += matching
        file = self.path / tables.FILE_NAME
        lines = tables.read_file(file) if file.exists() else []
        kept = {run.key: run for run in lines}
        return [
            Run(
                name,
                dataclasses.replace(configs[name], seed=seed),
                self.path / name / f"seed-{seed}",
                kept.get((name, seed)),
            )
            for name in dict.fromkeys(chosen)
            for seed in self.seeds
        ]

    def begin(self) -> None:
        """Creates the folder, or continues it, perhaps with more seeds.

        Raises:
            UserError: If it is that of another experiment, or one for keeping.
        """
        if (self.path / tables.FILE_NAME).exists():
            raise UserError(
                f"{self.path} is for keeping; give another --out, and "
                "collect its runs to those that are kept."
            )
        self._join()
        self._write_about()

    def collect(self, to: Path) -> "ExperimentFolder":
        """Adds the finished runs to a folder for keeping, and returns it.

        A run replaces one with the same name and seed; all others stay. The
        folder of the data is left out.

        Args:
            to: That folder, which is made if it is not there.

        Raises:
            UserError: If nothing is finished, if that folder holds another
                experiment or run folders, or if a run has other settings than
                the experiment. Then nothing is written.
        """
        if any(to.glob("*/seed-*/")):
            raise UserError(f"{to} holds run folders; give another --to.")
        finished = {str(run): run for run in self.runs() if run.record}
        if not finished:
            raise UserError(f"{self.path} has no finished run.")
        kept = ExperimentFolder(to, **self._about, seeds=self.seeds)
        kept._join()
        for run in kept.runs():
            finished.get(str(run), run).check()
        kept._write_about()
        records = [run.record for run in finished.values() if run.record]
        tables.add(to / tables.FILE_NAME, records)
        return kept

    @property
    def _about(self) -> dict[str, Any]:
        return {"name": self.name, "recipe": self.recipe, "quick": self.quick}

    def _join(self) -> None:
        """Takes over the seeds of the experiment that is there, if one is."""
        if not (self.path / "experiment.json").exists():
            return
        before = ExperimentFolder.open(self.path)
        if before._about != self._about:
            raise UserError(
                f"{self.path} holds another experiment, {before._about}, not "
                f"{self._about}; give another folder."
            )
        self.seeds = tuple(sorted({*before.seeds, *self.seeds}))

    def _write_about(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        about = {**self._about, "seeds": list(self.seeds)}
        _write_json(self.path / "experiment.json", about)


def _write_json(path: Path, content: Any) -> None:
    with write_atomically(path, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings as JSON has them, with lists for tuples."""
    return json.loads(json.dumps(settings))
