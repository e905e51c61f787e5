"""Runs a table of the paper over several seeds, and writes it beside ours.

python experiments/run.py table_9 --data-dir ~/tensorflow_datasets

Each run is a process of its own, `training/run.py --bare`. What is finished is
not repeated, so the same command goes on after Ctrl-C or a crash, and ends with
the same table. A run whose data are not at hand is shown as not run.

python experiments/run.py table_9 --quick            does it work at all?
python experiments/run.py --collect runs/table_9-short --to results/table_9
python experiments/run.py --tables results/*         from runs.jsonl alone
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":
    from training.quiet import start_quietly

    start_quietly()

from cli import (  # noqa: E402
    Parser,
    UserError,
    at_least_one,
    number,
    run_command,
)
from experiments import figures as experiment_figures  # noqa: E402
from experiments import table as experiment_table  # noqa: E402
from experiments.experiment import (  # noqa: E402
    NAMES,
    TABLES_OF_THE_PAPER,
)
from experiments.folder import ExperimentFolder  # noqa: E402
from experiments.jobs import Jobs  # noqa: E402
from experiments.paper import RECIPES  # noqa: E402


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/run.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("name", nargs="?", choices=NAMES, help="the experiment to run")
    add(
        "--recipe",
        choices=tuple(RECIPES),
        help="how the runs of a table of the paper are trained: as published "
        "(GPU days), or shortly to the published sparsity (default)",
    )
    add(
        "--only",
        nargs="+",
        metavar="RUN",
        help="run these of its runs; patterns such as 'digits-*' too",
    )
    add(
        "--take-from",
        nargs="+",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="experiments whose finished runs are taken where they are the "
        "same",
    )
    add("--seeds", nargs="+", type=_seed, help="instead of its own")
    add("--quick", action="store_true", help="few images, one epoch, one seed")
    add(
        "--deterministic",
        action="store_true",
        help="the same numbers bit for bit, also in runs that were stopped; "
        "may be slower",
    )
    add("--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets")
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where runs and tables go (default: one in runs/)",
    )
    add("--jobs", type=at_least_one, default=1, help="runs at the same time")
    add(
        "--collect",
        type=Path,
        metavar="FOLDER",
        help="add the finished runs of that experiment to runs.jsonl in --to, "
        "in the place of those with the same name and seed, and write its "
        "tables and figures there",
    )
    add("--to", type=Path, metavar="FOLDER", help="where --collect writes to")
    add(
        "--tables",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="write the tables of those of the folders that are experiments",
    )
    return parser


def _seed(text: str) -> int:
    return number(text, int, 0, 2**32 - 1)


def main(options: argparse.Namespace) -> None:
    """Does the one of the three things that the flags ask for."""
    asked = [options.name, options.collect, options.tables]
    if sum(thing is not None for thing in asked) != 1:
        raise UserError("give one of: an experiment, --collect, --tables.")
    if (options.collect is None) != (options.to is None):
        raise UserError("--collect and --to need each other.")
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
    data_dir = options.data_dir
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir!r} is not a folder.")
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
    jobs = Jobs(wanted, data_dir, options.jobs)
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
    found = [path for path in paths if (path / "experiment.json").exists()]
    if not found:
        raise UserError(
            f"no experiment.json in {', '.join(map(str, paths))}: none of them "
            "is an experiment."
        )
    for path in found:
        folder = ExperimentFolder.open(path)
        experiment_table.write(folder)
        experiment_figures.write(folder)
        print(path / "table.md")


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), main))
