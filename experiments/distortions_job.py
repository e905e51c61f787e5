"""Distorts test images and asks networks: `experiments/distortions.py`."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks import machine
from benchmarks.measure import interleaved
from cli import UserError
from markdown_table import markdown, table
from tfcaps import rem
from tfcaps.files import write_atomically
from tfcaps.viz.drawing import colour, figure
from training import datasets
from training.augmentation import warped
from training.datasets.affnist import random_map
from training.folder import read_model
from training.image_data import Array, Images, Pixels

_BATCH = 32
_TURNS = 30
_NOTHING = "none"
_COSTS = (
    ("network", "{name}"),
    ("seeds", "{seeds}"),
    ("parameters", "{parameters:,}"),
    ("million multiply-adds", "{multiply_adds!M:.2f}"),
    ("ms", "{milliseconds:.2f}"),
)
# Told apart without colour too.
_MARKERS = ("o", "s", "^", "D", "v", "P")


class _Distortion(NamedTuple):
    """What is done to every test image.

    Attributes:
        kind: Its name.
        unit: Unit of its strength.
        strengths: How strong it is.
    """

    kind: str
    unit: str
    strengths: tuple[float, ...]


_DISTORTIONS = (
    _Distortion("shift", "pixels", (2, 4, 6, 8)),
    _Distortion("rotation", "degrees", (10, 20, 30, 45, 60)),
    _Distortion("size", "times", (0.6, 0.8, 1.2, 1.4)),
    _Distortion("affine", "of affNIST's range", (1.0,)),
)


def measure(
    models: Sequence[tuple[str, Path]],
    dataset: str,
    data_dir: str | None,
    samples: int | None = None,
) -> dict[str, Any]:
    """Returns the accuracies of networks, as JSON has them.

    Args:
        models: Names and files; several files of a name are seeds of it.
        dataset: Whose test images are distorted.
        data_dir: Folder of prepared TensorFlow Datasets.
        samples: How many test images, or `None` for all.

    Raises:
        UserError: If a file is no network for such images.
    """
    data = datasets.load(dataset, data_dir)
    images, labels = data.test
    pixels, labels = images.pixels[:samples], labels[:samples]
    loaded = [(name, rem.encoder(read_model(file))) for name, file in models]
    for (_, file), (_, model) in zip(models, loaded, strict=True):
        _check_fits(model, data, file)
    networks: dict[str, Any] = {
        name: {
            "seeds": sum(other == name for other, _ in loaded),
            "parameters": _parameters(model),
            "multiply_adds": rem.multiply_adds(model).total,
            "accuracy": {},
        }
        for name, model in loaded
    }
    batch = Images(np.resize(pixels, (_BATCH, *pixels.shape[1:])))[:]
    calls = {
        name: functools.partial(model.predict_on_batch, batch)
        for name, model in reversed(loaded)  # one seed of each
    }
    for name, timing in interleaved("distortions", calls, _TURNS).items():
        networks[name]["milliseconds"] = round(timing["ms"], 2)
    for key, moved in _sets(pixels):
        print(f"distortion: {key}", flush=True)
        for name, model in loaded:
            right = _accuracy(model, moved, labels)
            networks[name]["accuracy"].setdefault(key, []).append(right)
    return {
        "machine": machine.describe(),
        "dataset": dataset,
        "images": len(labels),
        "networks": networks,
    }


def _check_fits(model: keras.Model, data: datasets.Data, file: Path) -> None:
    takes = tuple(model.inputs[0].shape[1:])
    if takes != data.image_shape or model.output_shape[-1] != data.num_classes:
        raise UserError(
            f"{file} takes images of {list(takes)} and knows "
            f"{model.output_shape[-1]} classes; {data.name} has "
            f"{list(data.image_shape)} and {data.num_classes}."
        )


def _parameters(model: keras.Model) -> int:
    """Returns how many parameters are not zero."""
    weights = map(keras.ops.convert_to_numpy, model.trainable_weights)
    return sum(int(np.count_nonzero(weight)) for weight in weights)


def _sets(pixels: Pixels) -> list[tuple[str, Pixels]]:
    """Returns the test images under each distortion, always the same."""
    sets = [(_NOTHING, pixels)]
    for kind, _, strengths in _DISTORTIONS:
        for strength in strengths:
            draw = np.random.default_rng(0)
            places = _places(kind, strength, len(pixels), draw)
            sets.append((_key(kind, strength), warped(pixels, *places)))
    return sets


def _places(
    kind: str, strength: float, count: int, draw: np.random.Generator
) -> tuple[Array, Array]:
    """Returns maps `[n, 2, 2]` and offsets `[n, 2]` from new to old places."""
    maps = np.tile(np.eye(2), (count, 1, 1))
    offsets = np.zeros((count, 2))
    if kind == "shift":
        angles = draw.uniform(0, 2 * np.pi, count)
        offsets = strength * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    elif kind == "rotation":
        angles = np.deg2rad(strength) * draw.choice([-1, 1], count)
        sine, cosine = np.sin(angles), np.cos(angles)
        maps[:, 0] = np.stack([cosine, sine], axis=1)
        maps[:, 1] = np.stack([-sine, cosine], axis=1)
    elif kind == "size":
        maps = maps / strength
    else:
        maps = np.stack([np.linalg.inv(random_map(draw)) for _ in range(count)])
    return maps, offsets


def _key(kind: str, strength: float) -> str:
    return f"{kind} {strength:g}"


def _accuracy(model: keras.Model, pixels: Pixels, labels: Array) -> float:
    answers = model.predict(Images(pixels)[:], batch_size=256, verbose=0)
    return float(np.mean(np.argmax(answers, axis=-1) == labels))


def page(result: Mapping[str, Any]) -> str:
    """Returns the tables of what `measure` returned."""
    networks = result["networks"]
    costs = [{"name": name, **network} for name, network in networks.items()]
    first = next(iter(networks.values()))
    rows = [("test images", *networks)]
    for key in first["accuracy"]:
        rights = [network["accuracy"][key] for network in networks.values()]
        rows.append((_described(key), *map(_percent, rights)))
    about = result["machine"]
    return (
        "# Distorted test images\n\n"
        f"{result['images']:,} test images of {result['dataset']}, accuracy in "
        "%; ± is the standard deviation over seeds. Milliseconds are those of "
        f"a batch of {_BATCH} in Keras, the median of {_TURNS} turns of all "
        "networks. Parameters are those that are not zero.\n\n"
        f"{table(costs, _COSTS)}\n\n{markdown(rows)}\n\n"
        f"{about['date']}, commit {about['commit']}, {about['cpu']}, "
        f"{about['cores']} cores.\n"
    )


def _described(key: str) -> str:
    units = {kind: unit for kind, unit, _ in _DISTORTIONS}
    kind, _, strength = key.partition(" ")
    if key == _NOTHING:
        return "as they are"
    if kind == "affine":
        return "affine, as affNIST draws"
    return f"{kind}, {strength} {units[kind]}"


def _percent(rights: Sequence[float]) -> str:
    mean = f"{100 * np.mean(rights):.2f}"
    return f"{mean} ± {100 * np.std(rights):.2f}" if rights[1:] else mean


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Writes a PNG: a panel for each distortion of several strengths."""
    curves = [each for each in _DISTORTIONS if each.strengths[1:]]
    page = figure(3.4 * len(curves), 3.2)
    panels = page.subplots(1, len(curves), sharey=True)
    for panel, (kind, unit, strengths) in zip(panels, curves, strict=True):
        points = {_key(kind, strength): strength for strength in strengths}
        points[_NOTHING] = 1.0 if kind == "size" else 0.0
        places = sorted(points.items(), key=lambda point: point[1])
        for number, (name, network) in enumerate(result["networks"].items()):
            panel.plot(
                [strength for _, strength in places],
                [100 * np.mean(network["accuracy"][key]) for key, _ in places],
                color=colour(number),
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=4,
                label=name,
            )
        panel.set_xlabel(f"{kind}, {unit}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy, %")
    panels[0].legend(frameon=False, fontsize="small")
    with write_atomically(path) as file:
        page.savefig(file, format="png")
