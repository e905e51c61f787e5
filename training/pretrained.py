"""Packs a finished run as a network that comes with the package.

python experiments/run.py pretrained --data-dir ~/tensorflow_datasets
python training/pretrained.py runs/pretrained/mnist/seed-0 \
    --data-dir ~/tensorflow_datasets

writes `<data set>.keras`, the stripped REM model, and `.json`, its hash and its
numbers, into `tfcaps/models/pretrained`, and prints the table of numbers for
its card, `.md`. What a run has measured is taken from its `rem.json`; how the
network does on inverted and on shifted images is measured here, with the file
that was packed.
"""

import argparse
import contextlib
import hashlib
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import (
    Parser,
    UserError,
    check_installed,
    run_command,
    start_quietly,
)
from markdown_table import markdown

LARGEST = 1_000_000  # bytes of a file
_FOLDER = Path(__file__).parents[1] / "tfcaps" / "models" / "pretrained"
_SHIFTS = (2, 4)  # pixels; 4 are a place of the capsules' grid
_MOST = 2000  # test images that are shifted, as for faithfulness
_LEVELS = 11
# What is kept of a report in `rem.json`.
_TOLD = (
    "accuracy accuracy_quantized entropy_bits ceiling_bits "
    "type_entropy_bits median_keys type_ceiling_bits type_median_keys "
    "t_score sparsity necessity necessity_random sufficiency "
    "sufficiency_random size stability class_share parts necessity_active "
    "sufficiency_longest named_parts"
).split()

# What the table of a card says, in the order of its rows.
_NUMBERS = """\
right, of {tested_on:,} test images | {measured[accuracy]:.2%}
right with quantised couplings | {measured[accuracy_quantized]:.2%}
entropy of trees of types | {measured[type_entropy_bits]:.2f} of \
{measured[type_ceiling_bits]:.2f} bits
trees of types a class, median | {measured[type_median_keys]:.0f}
entropy of trees of places | {measured[entropy_bits]:.2f} of \
{measured[ceiling_bits]:.2f} bits
T-score | {measured[t_score]:.3f}
lose their class without their tree | {measured[necessity][zero]:.2%}
without as many other active ones | {measured[necessity_active][zero]:.2%}
without random children | {measured[necessity_random][zero]:.2%}
keep it with the tree alone | {measured[sufficiency][zero]:.2%}
with random children | {measured[sufficiency_random][zero]:.2%}
children in a tree | {measured[size]:.2%}
weight of a tree on own parts | {measured[parts][own]:.2%}
on loose parts | {measured[parts][loose]:.2%}
parts with exactly one leaf | {measured[named_parts][found_once]:.2%}
trees with one leaf on each part | {measured[named_parts][perfect]:.2%}
NMI of types and kinds of parts | {measured[named_parts][information]:.3f}
entropy of slots | {measured[named_parts][slot_bits]:.2f} bits
right, inverted | {packed[inverted]:.2%}
"""


def make_parser() -> Parser:
    """Returns the parser of the command."""
    about = __doc__.splitlines()[0]
    parser = Parser(prog="training/pretrained.py", description=about)
    add = parser.add_argument
    add("run", type=Path, help="folder of a run with --rem")
    add("--data-dir", metavar="FOLDER", help="prepared TensorFlow Datasets")
    return parser


def main(options: argparse.Namespace) -> None:
    """Packs, measures, and prints the table of numbers."""
    check_installed(data="PIL")
    if not (options.run / "rem.json").is_file():
        raise UserError(f"{options.run} is no finished run: no rem.json.")
    start_quietly()
    from tfcaps.files import write_atomically
    from training import datasets
    from training.folder import RunFolder

    folder = RunFolder.open(options.run)
    if not folder.config.rem:
        raise UserError(f"{options.run} is no run with --rem.")
    data = datasets.load(folder.config.dataset, options.data_dir)
    path = _FOLDER / f"{folder.config.dataset}.keras"
    pack(folder.path / "model.keras", path)
    facts = {**_of_run(folder, data), **_of_file(path, data)}
    with write_atomically(path.with_suffix(".json"), "w") as file:
        json.dump(facts, file, indent=2, allow_nan=False)
        file.write("\n")
    print(f"{path}\n\n{numbers(facts)}\n\n{facts['verdict']}")


def pack(model: Path, path: Path) -> None:
    """Compresses a `.keras` file, which Keras does not, and reads as well.

    Args:
        model: What Keras wrote.
        path: Where the smaller one goes.

    Raises:
        UserError: If it is larger than a megabyte all the same.
    """
    from tfcaps.files import put_in_place

    staged = path.with_name(f".staged-{path.name}")
    with zipfile.ZipFile(model) as old, zipfile.ZipFile(staged, "w") as new:
        for name in old.namelist():
            # Without the time, the same run makes the same file.
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            new.writestr(entry, old.read(name), zipfile.ZIP_DEFLATED, 9)
    size = staged.stat().st_size
    if size > LARGEST:
        staged.unlink()
        raise UserError(
            f"{model} packed has {size:,} bytes, more than {LARGEST:,}; prune "
            "more, with --final-sparsity."
        )
    put_in_place(staged, path)


def _of_run(folder: Any, data: Any) -> dict[str, Any]:
    """Returns how the network was trained, and what the run measured."""
    environment, measured = (
        json.loads((folder.path / f"{name}.json").read_text("utf-8"))
        for name in ("environment", "rem")
    )
    config, report = folder.config, measured["models"]["rem"]
    return {
        "dataset": config.dataset,
        "classes": list(data.class_names),
        "trained_on": len(data.train.labels),
        "held_out": len(data.validation.labels),
        "tested_on": len(data.test.labels),
        "epochs": config.epochs,
        "rem_epochs": config.of("rem").epochs,
        "trials": config.trials,
        "warm_start": config.warm_start,
        "data_seed": config.data_seed,
        "seed": config.seed,
        "seconds": round(measured["seconds"]),
        "commit": environment["commit"],
        "keras": environment["packages"]["keras"],
        "tensorflow": environment["packages"]["tensorflow"],
        "measured": {name: report.get(name) for name in _TOLD},
        "verdict": report["verdict"],
    }


def _of_file(path: Path, data: Any) -> dict[str, Any]:
    """Returns a packed network's hash, size, and answers to changed images.

    `shifted` has for each number of pixels the mean over the four directions of
    the accuracy of the first 2,000 test images, and of the share of them whose
    tree of types stays the same.
    """
    import keras

    from tfcaps import rem

    model = keras.saving.load_model(path, compile=False)
    images, labels = data.test.images[:], data.test.labels
    some, of_some = images[:_MOST], labels[:_MOST]

    def keys(shown: Any) -> Any:
        return rem.trees(model, shown, _LEVELS, couplings=False).type_codes

    before, shifts = keys(some), {}
    for pixels in _SHIFTS:
        steps = ((pixels, 0), (-pixels, 0), (0, pixels), (0, -pixels))
        moved = [shifted(some, *step) for step in steps]
        right = [accuracy(model, each, of_some) for each in moved]
        same = [(keys(each) == before).all(axis=-1).mean() for each in moved]
        shifts[str(pixels)] = {
            "accuracy": sum(right) / len(right),
            "same_types": float(sum(same) / len(same)),
        }
    return {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "network": model.name,
        "image": list(model.input.shape[1:]),
        "parameters": model.count_params(),
        "packed": {
            "accuracy": accuracy(model, images, labels),
            "inverted": accuracy(model, 1.0 - images, labels),
            "shifted": shifts,
        },
    }


def accuracy(model: Any, images: Any, labels: Any) -> float:
    """Returns the share of images whose longest capsule is their class."""
    lengths = model.predict(images, batch_size=256, verbose=0)
    return float((lengths.argmax(-1) == labels).mean())


def shifted(images: Any, rows: int, columns: int) -> Any:
    """Returns images moved down and right; their edge is repeated.

    Args:
        images: `[n, h, w, c]`.
        rows: Pixels downwards, or upwards if negative.
        columns: Pixels to the right, or to the left.
    """
    import numpy as np

    down, right = (
        np.clip(np.arange(side) - step, 0, side - 1)
        for side, step in zip(images.shape[1:3], (rows, columns), strict=True)
    )
    return images[:, down][:, :, right]


def numbers(facts: Mapping[str, Any]) -> str:
    """Returns the table of a card as Markdown."""
    rows = [("measured", "")]
    for line in _NUMBERS.splitlines():
        with contextlib.suppress(KeyError, TypeError):  # of another network
            text, cell = line.format(**facts).split(" | ")
            rows.append((text, cell))
    for pixels, found in facts["packed"]["shifted"].items():
        rows += [
            (f"right, shifted by {pixels} pixels", f"{found['accuracy']:.2%}"),
            ("the same tree of types then", f"{found['same_types']:.2%}"),
        ]
    return markdown([(text, cell.replace("%", " %")) for text, cell in rows])


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), main))
