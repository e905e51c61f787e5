"""Runs experiments and writes their tables: what `experiments/run.py` does."""

import argparse
from pathlib import Path

from cli import UserError
from experiments import figures as experiment_figures
from experiments import table as experiment_table
from experiments.experiment import RECIPES, TABLES_OF_THE_PAPER
from experiments.folder import ExperimentFolder
from experiments.jobs import Jobs


def main(options: argparse.Namespace) -> None:
    """Does the one of the three things that the flags ask for."""
    if options.name is not None:
        run(options)
    elif options.collect is not None:
        folder = ExperimentFolder.open(options.collect).collect(options.to)
        print(experiment_table.write(folder))
        experiment_figures.write(folder)
    else:
        write_tables(options.tables)


def run(options: argparse.Namespace) -> None:
    """Runs what is not finished, and writes the table."""
    recipe = options.recipe
    if recipe is None and options.name in TABLES_OF_THE_PAPER:
        recipe = next(iter(RECIPES))
    folder = ExperimentFolder(
        options.out or _default_path(options, recipe),
        options.name,
        recipe,
        options.quick,
        options.seeds,
        options.deterministic,
    )
    # Before anything is written: a wrong name is an error.
    wanted = folder.runs(options.only)
    folder.begin()
    for path in options.take_from:
        folder.take_from(path)
    # It compares settings, and shows what is still to be run.
    experiment_table.write(folder)
    jobs = Jobs(wanted, options.data_dir, options.jobs)
    jobs.run(after_each=lambda: experiment_table.write(folder))
    print(f"\n{experiment_table.write(folder)}\ntable: {folder.path}/table.md")
    for picture in experiment_figures.write(folder):
        print(f"figure: {folder.path}/{picture}")
    failed = [one for one in wanted if one.status.startswith("failed")]
    if failed:
        raise UserError(
            f"{len(failed)} of {len(wanted)} runs failed; the table says why."
        )


def _default_path(options: argparse.Namespace, recipe: str | None) -> Path:
    words = [options.name, *([recipe] if recipe else [])]
    words += [
        name for name in ("quick", "deterministic") if getattr(options, name)
    ]
    return Path("runs") / "-".join(words)


def write_tables(paths: list[Path]) -> None:
    """Writes the tables of all experiments among the folders."""
    for path in paths:
        if not (path / "experiment.json").exists():
            continue
        folder = ExperimentFolder.open(path)
        experiment_table.write(folder)
        experiment_figures.write(folder)
        print(path / "table.md")
