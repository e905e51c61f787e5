"""The folder of an experiment: its runs, and what is known of each.

While it is run:

    <folder>/experiment.json     which experiment, recipe and seeds
    <folder>/<run>/seed-42/      a run folder, see `training/folder.py`
    <folder>/table.md, table.csv, *.png

When it is collected, for keeping:

    <folder>/experiment.json
    <folder>/runs.jsonl          the finished runs, see `training/runs_file.py`
    <folder>/table.md, table.csv, *.png

The JSON holds everything that the tables need, so that they can be made again
without training.
"""

import dataclasses
import fnmatch
import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cli import UserError
from experiments.experiment import Experiment, Row, load
from experiments.one_run import CollectedRun, Run, write_json
from training import runs_file
from training.configs import Config
from training.runs_file import FinishedRun

# What `--quick` leaves of a run.
QUICK_SAMPLES = 200
QUICK_EPOCHS = 1


class ExperimentFolder:
    """The folder of an experiment, and its runs.

    Args:
        path: The folder.
        name: Name of the experiment.
        recipe: One of `experiments/paper.py`, or `None`.
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
        """Creates the folder, or continues it, perhaps with more seeds.

        Raises:
            UserError: If it is that of another experiment, or one for keeping.
        """
        self._join()
        if self.is_collected:
            raise UserError(
                f"{self.path} is for keeping; give another --out, and "
                f"--take-from {self.path} to go on with its runs."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_about()

    def _join(self) -> None:
        """Takes over the seeds of the experiment that is there, if one is."""
        if not (self.path / "experiment.json").exists():
            return
        before = ExperimentFolder.open(self.path)
        if before._about != self._about:
            raise UserError(
                f"{self.path} holds {before.title}, not {self.title}; "
                "give another folder."
            )
        self.seeds = tuple(sorted({*before.seeds, *self.seeds}))

    @property
    def is_collected(self) -> bool:
        """Whether its runs are kept in a file, not in run folders."""
        return (self.path / runs_file.FILE_NAME).exists()

    @functools.cached_property
    def _collected(self) -> dict[tuple[str, int], FinishedRun]:
        """The runs of that file by name and seed, also those in no table."""
        if not self.is_collected:
            return {}
        runs = runs_file.read_file(self.path / runs_file.FILE_NAME)
        return {run.key: run for run in runs}

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

    def _write_about(self) -> None:
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
            self.run(name, dataclasses.replace(configs[name], seed=seed))
            for name in chosen
            for seed in self.seeds
        ]

    def run(self, name: str, config: Config) -> Run:
        """Returns a run with these settings, done or not.

        Args:
            name: Its name.
            config: Its settings, with the seed.
        """
        path = self.path / name / f"seed-{config.seed}"
        if (name, config.seed) in self._collected:
            kept = self._collected[name, config.seed]
            return CollectedRun(name, config.seed, config, path, kept)
        return Run(name, config.seed, config, path)

    def runs_of(self, row: Row) -> list[Run]:
        """Returns the runs that a row shows, done or not."""
        return self.runs([row.run])

    def collect(self, to: Path) -> "ExperimentFolder":
        """Adds the finished runs to a folder for keeping.

        A run replaces one with the same name and seed; all others stay. The
        folder of the data is left out.

        Args:
            to: That folder, which is made if it is not there.

        Returns:
            The experiment in that folder.

        Raises:
            UserError: If nothing is finished, if that folder holds another
                experiment or run folders, or is this one, or if a run has
                other settings than the experiment. Then nothing is written.
        """
        if to.resolve() == self.path.resolve():
            raise UserError(f"{to} cannot be collected into itself.")
        if any(to.glob("*/seed-*/")):
            raise UserError(f"{to} holds run folders; give another --to.")
        finished = {
            (run.name, run.seed): run for run in self.runs() if run.finished
        }
        if not finished:
            raise UserError(f"{self.path} has no finished run.")
        kept = ExperimentFolder(to, **self._about, seeds=self.seeds)
        kept._join()
        for one in kept.runs():
            finished.get((one.name, one.seed), one).check()
        to.mkdir(parents=True, exist_ok=True)
        kept._write_about()
        lines = [run.finished_run() for run in finished.values()]
        runs_file.add(to / runs_file.FILE_NAME, lines)
        return ExperimentFolder.open(to)

    def take_from(self, path: Path) -> None:
        """Copies finished runs from another experiment that shares them.

        Raises:
            UserError: If there is none, or a run of the same name has other
                settings.
        """
        source = ExperimentFolder.open(path)
        for run in self.runs():
            other = source.run(run.name, run.config)
            if other.finished and not run.finished:
                other.check()
                other.copy_to(run.path)
