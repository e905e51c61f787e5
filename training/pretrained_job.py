"""Packs and measures a finished run: what `training/pretrained.py` does."""

import argparse
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from cli import UserError
from tfcaps import rem
from tfcaps.files import put_in_place, write_atomically
from training import datasets
from training.folder import RunFolder
from training.pretrained_card import card, check_known

Array = NDArray[Any]

LARGEST = 1_000_000  # bytes of a file
SHIFTS = (2, 4)  # pixels; 4 are a place of the capsules' grid
_MOST = 2000  # test images that are shifted, as for faithfulness
_LEVELS = 11
# What the card tells of a report in `rem.json`.
_TOLD = (
    "accuracy",
    "accuracy_quantized",
    "entropy_bits",
    "ceiling_bits",
    "type_entropy_bits",
    "median_keys",
    "type_ceiling_bits",
    "type_median_keys",
    "t_score",
    "sparsity",
    "necessity",
    "necessity_random",
    "sufficiency",
    "sufficiency_random",
    "size",
    "stability",
    "class_share",
    "parts",
    "necessity_active",
    "sufficiency_longest",
    "named_parts",
)


def main(options: argparse.Namespace) -> None:
    """Packs, measures, and writes the card."""
    folder = RunFolder.open(options.run)
    if not (folder.path / "rem.json").exists() or not folder.config.rem:
        raise UserError(f"{folder.path} is no finished run with --rem.")
    check_known(folder.config.dataset)
    data = datasets.load(folder.config.dataset, options.data_dir)
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / f"{folder.config.dataset}.keras"
    pack(folder.model_path("rem"), path)
    facts = {**of_file(path), **of_run(folder, data), **of_data(path, data)}
    facts["commit"] = options.commit or facts["commit"]
    write(path, facts)
    print(card(facts))


def pack(model: Path, path: Path) -> None:
    """Compresses a `.keras` file, which Keras does not, and reads as well.

    Args:
        model: What Keras wrote.
        path: Where the smaller one goes.

    Raises:
        UserError: If it is larger than a megabyte all the same.
    """
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


def of_file(path: Path) -> dict[str, Any]:
    """Returns hash and size of a packed file, and what the network is."""
    model = keras.saving.load_model(path, compile=False)
    return {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "network": model.name,
        "image": list(model.input.shape[1:]),
        "parameters": model.count_params(),
    }


def of_run(folder: RunFolder, data: datasets.Data) -> dict[str, Any]:
    """Returns how the network was trained, and what the run measured."""
    environment = json.loads(
        (folder.path / "environment.json").read_text("utf-8")
    )
    measured = json.loads((folder.path / "rem.json").read_text("utf-8"))
    report = measured["models"]["rem"]
    return {
        "dataset": folder.config.dataset,
        "classes": list(data.class_names),
        "trained_on": len(data.train.labels),
        "held_out": len(data.validation.labels),
        "tested_on": len(data.test.labels),
        "epochs": folder.config.epochs,
        "rem_epochs": folder.config.of("rem").epochs,
        "trials": folder.config.trials,
        "warm_start": folder.config.warm_start,
        "data_seed": folder.config.data_seed,
        "seed": folder.config.seed,
        "seconds": round(measured["seconds"]),
        "commit": environment["commit"],
        "keras": environment["packages"]["keras"],
        "tensorflow": environment["packages"]["tensorflow"],
        "measured": {name: report.get(name) for name in _TOLD},
        "verdict": report["verdict"],
    }


def of_data(path: Path, data: datasets.Data) -> dict[str, Any]:
    """Returns how the packed network does on images that are changed.

    Returns:
        `accuracy` of all test images as they are; `inverted`, the same of
        1 - image; `shifted`, for each number of pixels the mean over the four
        directions of the accuracy of the first 2,000 test images and of the
        share of them whose tree of types stays the same; `types` of capsules,
        `types_used` in at least one of the trees of those images, and
        `types_in_tree`, the mean.
    """
    model = keras.saving.load_model(path, compile=False)
    images, labels = data.test.images[:], data.test.labels
    return {
        "packed": {
            "accuracy": accuracy(model, images, labels),
            "inverted": accuracy(model, 1.0 - images, labels),
            "shifted": _of_shifts(model, images[:_MOST], labels[:_MOST]),
            **_of_types(model, images[:_MOST]),
        }
    }


def accuracy(model: keras.Model, images: Array, labels: Array) -> float:
    """Returns the share of images whose longest capsule is their class."""
    lengths = model.predict(images, batch_size=256, verbose=0)
    return float(np.mean(lengths.argmax(-1) == labels))


def _of_shifts(
    model: keras.Model, images: Array, labels: Array
) -> dict[str, dict[str, float]]:
    keys, _ = rem.sample_keys(model, images, levels=_LEVELS, of_types=True)
    found = {}
    for pixels in SHIFTS:
        right, same = [], []
        for rows, columns in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            moved = shifted(images, pixels * rows, pixels * columns)
            right.append(accuracy(model, moved, labels))
            moved_keys, _ = rem.sample_keys(
                model, moved, levels=_LEVELS, of_types=True
            )
            same.append(np.mean((moved_keys == keys).all(axis=-1)))
        found[str(pixels)] = {
            "accuracy": float(np.mean(right)),
            "same_types": float(np.mean(same)),
        }
    return found


def _of_types(model: keras.Model, images: Array) -> dict[str, float]:
    slots = rem.trees(model, images).slots
    return {
        "types": slots.shape[1],
        "types_used": int(slots.any(axis=0).sum()),
        "types_in_tree": float(slots.sum(axis=1).mean()),
    }


def shifted(images: Array, rows: int, columns: int) -> Array:
    """Returns images moved down and right; their edge is repeated.

    Args:
        images: `[n, h, w, c]`.
        rows: Pixels downwards, or upwards if negative.
        columns: Pixels to the right, or to the left.
    """
    reach = max(abs(rows), abs(columns))
    padded = np.pad(
        images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge"
    )
    height, width = images.shape[1:3]
    top, left = reach - rows, reach - columns
    return padded[:, top : top + height, left : left + width]


def write(path: Path, facts: dict[str, Any]) -> None:
    """Writes the facts and the card beside the file."""
    with write_atomically(path.with_suffix(".json"), "w") as file:
        json.dump(facts, file, indent=2, allow_nan=False)
        file.write("\n")
    with write_atomically(path.with_suffix(".md"), "w") as file:
        file.write(card(facts))
