"""The folder of an experiment: its runs, and what is known of each.

    <folder>/experiment.json     which experiment, recipe and seeds
    <folder>/<run>/seed-42/      a run folder, see `training/folder.py`
    <folder>/table.md, table.csv

Everything that the tables need stands in the JSON files, so that they can be
made again without training anything.
"""

import dataclasses
import fnmatch
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tfcaps.cli import UserError
from tfcaps.files import write_atomically
from training.configs import Config, completed
from training.configs.experiment import Experiment, Row, load

# What `--quick` leaves of a run.
QUICK_SAMPLES = 200
QUICK_EPOCHS = 1

# `rem.json` is copied last, and marks the copy as that of a finished run.
_COPIED = ("environment.json", "seconds.json", "status.json", "rem.json")
_METRICS = "metrics.jsonl"
_LARGEST_METRICS = 200_000  # bytes


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of an experiment with one seed, done or not.

    Attributes:
        name: Name of the run in its experiment.
        seed: Its seed.
        config: Its settings, with the seed.
        path: Its run folder, which may not exist.
    """

    name: str
    seed: int
    config: Config
    path: Path

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def finished(self) -> bool:
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

        Where the data lie makes no difference, nor do settings of REM in a run
        without it. A setting that is newer than the folder has there what
        left everything as it was.

        Raises:
            UserError: If they differ, because numbers would be shown under
                settings they were not made with.
        """
        kept = self.read("config.json")
        if kept is None:
            return
        kept = _plain(completed(kept))
        for name, wanted in _plain(dataclasses.asdict(self.config)).items():
            if name == "data_dir" or not self.config.uses(name):
                continue
            if kept[name] != wanted:
                raise UserError(
                    f"the run in {self.path} has {name}={kept[name]!r}, but "
                    f"the experiment's run {self.name} has {name}={wanted!r}; "
                    "give another --out, or remove the folder."
                )

    def begin(self, data_dir: str | None) -> None:
        """Writes the settings into the folder, for a process to resume."""
        config = dataclasses.replace(self.config, data_dir=data_dir)
        self.write("config.json", _plain(dataclasses.asdict(config)))
        (self.path / "status.json").unlink(missing_ok=True)

    def read(self, name: str) -> Any:
        """Returns what a JSON file of the folder holds, `None` without it."""
        try:
            return json.loads((self.path / name).read_text("utf-8"))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: Any) -> None:
        write_json(self.path / name, content)

    def copy_to(self, folder: Path) -> None:
        """Copies the small files, but not where the data lay.

        The copy is that of a finished run only when it is complete.
        """
        folder.mkdir(parents=True, exist_ok=True)
        copy = dataclasses.replace(self, path=folder)
        copy.write(
            "config.json", {**self.read("config.json"), "data_dir": None}
        )
        metrics = self.path / _METRICS
        if metrics.exists() and metrics.stat().st_size <= _LARGEST_METRICS:
            shutil.copyfile(metrics, folder / _METRICS)
        for name in _COPIED:
            (folder / name).unlink(missing_ok=True)
            if (content := self.read(name)) is not None:
                copy.write(name, content)


class ExperimentFolder:
    """A folder, the experiment that it is about, and its runs.

    Args:
        path: The folder.
        name: Name of the experiment.
        recipe: One of `training/configs/paper.py`, or `None`.
        quick: Whether everything is reduced, to see that it works.
        seeds: Seeds of each run, or `None` for those of the experiment.
        deterministic: Whether a run that was stopped ends with the same numbers
            bit for bit as one that was not.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        recipe: str | None,
        quick: bool,
        seeds: Sequence[int] | None = None,
        deterministic: bool = False,
    ):
        self.path = path
        self.name = name
        self.recipe = recipe
        self.quick = quick
        self.deterministic = deterministic
        experiment = load(name, recipe)
        if quick:
            experiment = experiment.reduced(QUICK_SAMPLES, QUICK_EPOCHS)
        if deterministic:
            experiment = experiment.repeatable()
        self.experiment: Experiment = experiment
        self.seeds = tuple(dict.fromkeys(seeds or experiment.seeds))

    @classmethod
    def open(cls, path: Path) -> "ExperimentFolder":
        """Returns the folder of an experiment that was begun.

        Raises:
            UserError: If it is none.
        """
        try:
            text = (path / "experiment.json").read_text("utf-8")
        except FileNotFoundError as error:
            raise UserError(
                f"{path} is no experiment: it has no experiment.json."
            ) from error
        try:
            about = json.loads(text)
            return cls(path, **about)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{path / 'experiment.json'} is not that of an experiment."
            ) from error

    def begin(self) -> None:
        """Makes the folder, or goes on with it, perhaps with further seeds.

        Raises:
            UserError: If it is that of another experiment.
        """
        if (self.path / "experiment.json").exists():
            before = ExperimentFolder.open(self.path)
            if before._about != self._about:
                raise UserError(
                    f"{self.path} holds {before.title}, not {self.title}; "
                    "give another --out."
                )
            self.seeds = tuple(sorted({*before.seeds, *self.seeds}))
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_about()

    @property
    def _about(self) -> dict[str, Any]:
        about = {"name": self.name, "recipe": self.recipe, "quick": self.quick}
        # Experiments that are older than this choice say nothing of it.
        return about | ({"deterministic": True} if self.deterministic else {})

    @property
    def title(self) -> str:
        words = [self.name]
        words += [f"by the {self.recipe} recipe"] if self.recipe else []
        words += ["on a reduced budget"] if self.quick else []
        words += ["bit for bit"] if self.deterministic else []
        return " ".join(words)

    def write_about(self) -> None:
        write_json(
            self.path / "experiment.json",
            {**self._about, "seeds": list(self.seeds)},
        )

    def runs(self, patterns: Iterable[str] | None = None) -> list[Run]:
        """Returns the runs with all seeds, done or not.

        Args:
            patterns: Names of runs, or patterns such as `digits-*`. Defaults to
                all of them.

        Raises:
            UserError: If no run has such a name.
        """
        configs = self.experiment.configs
        chosen = list(configs) if patterns is None else []
        for pattern in patterns or ():
            matching = fnmatch.filter(configs, pattern)
            if not matching:
                raise UserError(
                    f"{self.name} has no run {pattern!r}; it has "
                    f"{', '.join(configs)}."
                )
            chosen += [name for name in matching if name not in chosen]
        return [
            Run(
                name,
                seed,
                dataclasses.replace(configs[name], seed=seed),
                self.path / name / f"seed-{seed}",
            )
            for name in chosen
            for seed in self.seeds
        ]

    def runs_of(self, row: Row) -> list[Run]:
        """Returns the runs that a row shows, done or not."""
        return self.runs([row.run])

    def collect(self, to: Path) -> "ExperimentFolder":
        """Copies the small files of finished runs to a folder for keeping.

        Where the data lay is left out.

        Raises:
            UserError: If that folder holds another experiment, or is this one.
        """
        if to.resolve() == self.path.resolve():
            raise UserError(f"{to} cannot be collected into itself.")
        kept = ExperimentFolder(to, **self._about, seeds=self.seeds)
        kept.begin()
        for run in self.runs():
            if run.finished:
                run.copy_to(to / run.path.relative_to(self.path))
        return kept

    def take_from(self, path: Path) -> None:
        """Takes what is finished in another experiment that shares runs.

        Raises:
            UserError: If there is none, or a run of the same name has other
                settings.
        """
        ExperimentFolder.open(path)
        for run in self.runs():
            other = dataclasses.replace(
                run, path=path / run.path.relative_to(self.path)
            )
            if other.finished and not run.finished:
                other.check()
                other.copy_to(run.path)


def write_json(path: Path, content: Any) -> None:
    with write_atomically(path, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings as JSON has them, with lists for tuples."""
    return json.loads(json.dumps(settings))
