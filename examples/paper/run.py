"""Runs a table of the paper over several seeds, and writes it beside ours.

python -m examples.paper.run table_9 --data-dir ~/tensorflow_datasets

Each run is a process of its own, `training/run.py --bare`, one after the other;
on several devices give the command on each, with another `--only`. What is
finished stands in `runs.jsonl` of the folder and is not repeated, so the same
command goes on after Ctrl-C or a crash, and ends with the same table.

python -m examples.paper.run ablation --out results/ablation --seeds 7 8
python -m examples.paper.run --tables results/*      from runs.jsonl alone
"""

import argparse
import dataclasses
import fnmatch
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli import Parser, UserError, check_installed, number, run_command
from examples.paper import experiment

_COMMAND = Path(__file__).parents[2] / "training" / "run.py"


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.paper.run", description=__doc__)
    add = parser.add_argument
    add(
        "name",
        nargs="?",
        choices=experiment.NAMES,
        help="the experiment to run",
    )
    add(
        "--recipe",
        choices=tuple(experiment.RECIPES),
        help="how tables of the paper are trained: as published (GPU days), or "
        "shortly to the published sparsity (default)",
    )
    only = "run these of its runs; patterns such as 'digits-*' too"
    add("--only", nargs="+", default=["*"], metavar="RUN", help=only)
    add("--seeds", nargs="+", type=_seed, help="instead of its own")
    add("--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets")
    add("--out", type=Path, help="where runs go (default: one in runs/)")
    tables = "write the tables of folders that are experiments"
    add("--tables", nargs="+", type=Path, metavar="FOLDER", help=tables)
    return parser


def _seed(text: str) -> int:
    return number(text, int, 0, 2**32 - 1)


def run(options: argparse.Namespace) -> None:
    """Runs what is not finished, or writes tables alone."""
    if (options.name is None) == (options.tables is None):
        raise UserError("give one of: an experiment, --tables.")
    data_dir = options.data_dir
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir!r} is not a folder.")
    check_installed(data="PIL")
    from examples.paper import table  # what it imports takes long

    if options.name is None:
        paths = [p for p in options.tables if (p / "experiment.json").exists()]
        if not paths:
            raise UserError("no folder of --tables has an experiment.json.")
        for path in paths:
            table.write(path)
            print(path / "table.md")
        return
    recipe = options.recipe
    if recipe is None and options.name in experiment.TABLES_OF_THE_PAPER:
        recipe = next(iter(experiment.RECIPES))
    about = experiment.load(options.name, recipe)
    known = about.runs
    names = [n for p in options.only for n in fnmatch.filter(known, p)]
    if not names:
        raise UserError(
            f"{options.name} has no run {options.only[0]!r}; it has "
            f"{', '.join(known)}."
        )
    default = Path("runs") / "-".join(filter(None, (options.name, recipe)))
    folder = options.out or default
    seeds = dict.fromkeys(options.seeds or about.seeds)
    wanted = [(name, seed) for name in names for seed in seeds]
    _begin(folder, options.name, recipe, seeds)
    table.write(folder)  # or an error, if runs have other settings
    done, failed = table.finished(folder), []
    to_do = [key for key in wanted if key not in done]
    print(f"{len(wanted)} runs, {len(to_do)} to do", flush=True)
    for count, (name, seed) in enumerate(to_do, start=1):
        which, row = f"{name}, seed {seed}", known[name]
        print(f"\n[{count}/{len(to_do)}] {which}", flush=True)
        config = dataclasses.replace(row.config, seed=seed, data_dir=data_dir)
        if not _train(folder, name, config):
            failed.append(which)
        table.write(folder)
    print(f"\n{table.write(folder)}\ntable: {folder}/table.md")
    if failed:
        raise UserError(
            f"{len(failed)} of {len(wanted)} runs failed, and said above why: "
            f"{'; '.join(failed)}."
        )


def _begin(folder: Path, name: str, recipe: Any, seeds: Any) -> None:
    """Creates the folder, or continues it, perhaps with more seeds."""
    from examples.paper import table

    file = folder / "experiment.json"
    if file.exists():
        *held, before = table.about(folder)
        if held != [name, recipe]:
            raise UserError(f"{folder} holds {held}; give another --out.")
        seeds = {*before, *seeds}
    folder.mkdir(parents=True, exist_ok=True)
    content = {"name": name, "recipe": recipe, "seeds": sorted(seeds)}
    file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def _train(folder: Path, name: str, config: Any) -> bool:
    """Trains a run, or goes on with it, and adds it to `runs.jsonl`."""
    from training import tables

    out = folder / name / f"seed-{config.seed}"
    if not (out / "rem.json").exists():  # it may have ended unseen
        out.mkdir(parents=True, exist_ok=True)
        settings = dataclasses.asdict(config)
        if start := config.start_from:
            settings["start_from"] = str(folder / start / out.name)
        text = json.dumps(settings, indent=2) + "\n"
        (out / "config.json").write_text(text, "utf-8")
        flags = ["--resume", "--bare", "--force", "--out", str(out)]
        if subprocess.run([sys.executable, str(_COMMAND), *flags]).returncode:
            return False
    (record,) = tables.read(out)
    named = dataclasses.replace(record, name=name)
    tables.add(folder / tables.FILE_NAME, [named])
    return True


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
