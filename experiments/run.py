"""Runs a table of the paper over several seeds, and writes it beside ours.

python experiments/run.py table_9 --data-dir ~/tensorflow_datasets

Each run is a process of its own, `training/run.py --bare`, one after the other;
on several devices give the command on each, with another `--only`. What is
finished stands in `runs.jsonl` of the folder and is not repeated, so the same
command goes on after Ctrl-C or a crash, and ends with the same table.

python experiments/run.py ablation --out results/ablation --seeds 7 8
python experiments/run.py --tables results/*         from runs.jsonl alone
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import (
    Parser,
    UserError,
    check_installed,
    number,
    run_loading,
    start_quietly,
)
from experiments.experiment import NAMES, RECIPES, TABLES_OF_THE_PAPER

_COMMAND = Path(__file__).parents[1] / "training" / "run.py"


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="experiments/run.py", description=__doc__)
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
        default=["*"],
        metavar="RUN",
        help="run these of its runs; patterns such as 'digits-*' too",
    )
    add("--seeds", nargs="+", type=_seed, help="instead of its own")
    add("--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets")
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where runs and tables go (default: one in runs/)",
    )
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


def _check(options: argparse.Namespace) -> None:
    """Raises `UserError` where nothing need be read to see a mistake."""
    if (options.name is None) == (options.tables is None):
        raise UserError("give one of: an experiment, --tables.")
    data_dir = options.data_dir
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir!r} is not a folder.")
    if options.name is None:
        paths = [p for p in options.tables if (p / "experiment.json").exists()]
        if not paths:
            raise UserError("no folder of --tables has an experiment.json.")
        options.tables = paths
    check_installed(data="PIL")


def _load() -> Callable[[argparse.Namespace], None]:
    start_quietly()
    from experiments import folder  # noqa: F401

    return work


def work(options: argparse.Namespace) -> None:
    """Runs what is not finished, or writes tables alone."""
    from experiments.folder import ExperimentFolder

    if options.name is None:
        for path in options.tables:
            ExperimentFolder.open(path).write_table()
            print(path / "table.md")
        return
    recipe = options.recipe
    if recipe is None and options.name in TABLES_OF_THE_PAPER:
        recipe = next(iter(RECIPES))
    default = Path("runs") / "-".join(filter(None, (options.name, recipe)))
    folder = ExperimentFolder(
        options.out or default, options.name, recipe, options.seeds
    )
    # Before anything is written: a wrong name is an error.
    folder.runs(options.only)
    folder.begin()
    for run in folder.runs(options.only):
        if run.record is None:  # it may have ended unseen
            folder.add(run)
    # It compares settings, and shows what is still to be run.
    folder.write_table()
    wanted = folder.runs(options.only)
    to_do = [run for run in wanted if run.record is None]
    print(f"{len(wanted)} runs, {len(to_do)} to do", flush=True)
    failed = []
    for k, run in enumerate(to_do, start=1):
        print(f"\n[{k}/{len(to_do)}] {run}: {run.path}", flush=True)
        if run.gone:
            print(f"left out: commit {run.gone} was the last to train it")
            continue
        run.begin(options.data_dir)
        flags = ["--resume", "--bare", "--force", "--out", str(run.path)]
        if subprocess.run([sys.executable, str(_COMMAND), *flags]).returncode:
            failed.append(str(run))
        folder.add(run)
        folder.write_table()
    print(f"\n{folder.write_table()}\ntable: {folder.path}/table.md")
    if failed:
        raise UserError(
            f"{len(failed)} of {len(wanted)} runs failed, and said above why: "
            f"{'; '.join(failed)}."
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_loading(make_parser(), _load, _check, argv)


if __name__ == "__main__":
    sys.exit(main())
