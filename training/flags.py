"""The flags of the main job."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import Parser, UserError, check_installed
from training import models, sources
from training.configs import Config
from training.configs.data_settings import DATA
from training.configs.network_settings import NETWORK
from training.configs.rem_settings import REM
from training.configs.setting import add_flags
from training.configs.training_settings import TRAINING

_EPILOG = """\
examples:
  training/run.py --rem                              figures, a few minutes
  training/run.py --rem --dataset photos/            a folder for each class
  training/run.py --rem --dataset mnist --dry-run    what would it do?
  training/run.py --resume --out runs/figures-rem    after it was stopped

Settings that are not given come from training/configs/.
"""


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="training/run.py",
        description="Trains a capsule network and reports what its couplings "
        "do.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # What a group has besides the settings of a run.
    lists = {
        DATA: _add_list_of_datasets,
        NETWORK: _add_list_of_models,
        TRAINING: _add_recipe,
    }
    for group in (DATA, NETWORK, TRAINING, REM):
        add = parser.add_argument_group(group).add_argument
        add_flags(Config, group, add)
        if group in lists:
            lists[group](add)
    _add_run(parser.add_argument_group("the run").add_argument)
    return parser


def check(options: argparse.Namespace) -> None:
    """Raises `UserError` where no training is needed to see a mistake."""
    if options.dataset is not None or options.data_dir is not None:
        sources.check(
            options.dataset if options.dataset is not None else "digits",
            options.data_dir,
        )
    if options.model is not None:
        models.network(options.model)
    if options.resume and options.out is None:
        raise UserError("--resume needs --out, the folder of the run.")
    if options.resume:
        _check_run(options.out)
    if options.start_from is not None:
        _check_run(Path(options.start_from))
    _check_extras(options)


def _check_run(path: Path) -> None:
    """Raises `UserError` if there is no run in a folder."""
    if not (path / "config.json").is_file():
        raise UserError(f"there is no run in {path}: no config.json.")


def _check_extras(options: argparse.Namespace) -> None:
    """Raises `UserError` if a part of the run could not be done in the end."""
    extras = {"data": "PIL"}
    if not options.bare:
        extras |= {"tensorflow": "tensorflow", "viz": "matplotlib"}
    if options.tensorboard:
        extras |= {"tensorflow": "tensorflow", "tensorboard": "tensorboard"}
    check_installed(**extras)


def _add_list_of_datasets(add: Callable[..., Any]) -> None:
    add(
        "--list-datasets",
        action=_Print,
        lines={name: known.about for name, known in sources.SOURCES.items()},
        help="print the data sets with their meaning, and end",
    )


def _add_list_of_models(add: Callable[..., Any]) -> None:
    add(
        "--list-models",
        action=_Print,
        lines={name: known.about for name, known in models.MODELS.items()},
        help="print the networks with their meaning, and end",
    )


def _add_recipe(add: Callable[..., Any]) -> None:
    add(
        "--recipe",
        choices=("paper",),
        help="train and prune as in the REM paper: up to 1,000 epochs, "
        "iterative pruning with decay, no coupling loss; other flags change it",
    )


def _add_run(add: Callable[..., Any]) -> None:
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="run folder, which must not exist (default: a new one in runs/)",
    )
    add(
        "--resume",
        action="store_true",
        help="go on with the run in --out, with its settings",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print what the run would do and how long it may take, and end",
    )
    add(
        "--bare",
        action="store_true",
        help="train and measure, but draw and export nothing, search no "
        "levels, and train no decoder on frozen capsules",
    )
    add(
        "--force",
        action="store_true",
        help="train REM even if the baseline has learnt nothing",
    )
    add(
        "--tensorboard",
        action="store_true",
        help="also write logs to OUT/tensorboard (needs the extra tensorboard)",
    )


class _Print(argparse.Action):
    """Prints names and what they mean, and ends the command."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        lines: Mapping[str, str],
        help: str,
    ):
        super().__init__(option_strings, dest, nargs=0, help=help)
        self.lines = lines

    def __call__(self, parser: Any, *args: Any) -> None:
        width = max(map(len, self.lines))
        for name, about in self.lines.items():
            print(f"{name:{width}}  {about}")
        parser.exit()
