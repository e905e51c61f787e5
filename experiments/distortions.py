"""Measures networks on distorted test images, which they were not trained on.

python experiments/distortions.py --data-dir ~/tensorflow_datasets \\
    capsules=runs/mnist/model.keras plain=runs/mnist/dense_head.keras

writes results/distortions.json and, from it alone, .md and .png. Several files
of one name are seeds of it, and their mean is shown. `training/run.py
--dense-head` trains the plain convolutional network beside the capsules, alike.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import command
from cli import (
    Parser,
    UserError,
    at_least_one,
    check_installed,
    named_file,
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/distortions.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add(
        "models",
        nargs="*",
        type=named_file,
        metavar="NAME=FILE.keras",
        help="networks, and what they are called; several of one name are "
        "seeds of it",
    )
    add("--dataset", default="mnist", help="whose test images are distorted")
    add("--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets")
    add(
        "--samples",
        type=at_least_one,
        metavar="N",
        help="use only the first N test images",
    )
    add(
        "--to",
        type=Path,
        default=command.ROOT / "results" / "distortions",
        metavar="PATH",
        help="the table, its data and its figure, without suffix",
    )
    add(
        "--page",
        action="store_true",
        help="write table and figure from the data alone, and measure nothing",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    if options.page:
        if options.models:
            raise UserError("--page measures nothing: leave out the networks.")
        if not options.to.with_suffix(".json").is_file():
            raise UserError(
                f"there is no {options.to.with_suffix('.json')}: run without "
                "--page."
            )
    elif not options.models:
        raise UserError("name at least one network, as NAME=FILE.keras.")
    for _, file in options.models:
        if not file.is_file():
            raise UserError(f"there is no file {file}.")
    check_installed(viz="matplotlib", data="PIL")


def run(options: argparse.Namespace) -> None:
    """Measures, unless that was done, and writes the three files."""
    from experiments import distortions_job as job

    folder, name = options.to.parent, options.to.name
    if options.page:
        result = command.read(folder / f"{name}.json", {})
    else:
        result = job.measure(
            options.models, options.dataset, options.data_dir, options.samples
        )
    text = job.page(result)
    command.write(folder, name, result, text)
    job.draw(result, folder / f"{name}.png")
    print(text)


if __name__ == "__main__":
    sys.exit(command.main(make_parser(), run, _check))
