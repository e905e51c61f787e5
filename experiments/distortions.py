"""Measures networks on distorted test images, which they were not trained on.

python experiments/distortions.py --data-dir ~/tensorflow_datasets \\
    capsules=runs/mnist/model.keras plain=runs/mnist/dense_head.keras

writes results/distortions/mnist.json, .md and .png. Several files
of one name are seeds of it, and their mean is shown. `training/run.py
--dense-head` trains the plain convolutional network beside the capsules, alike.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measure import ROOT, machine, main, write
from cli import (
    Parser,
    UserError,
    at_least_one,
    check_installed,
    named_file,
)
from markdown_table import markdown, table

_NOTHING = "none"
# Kinds, the units of their strengths, and how strong they are.
_DISTORTIONS = (
    ("shift", "pixels", (2, 4, 6, 8)),
    ("rotation", "degrees", (10, 20, 30, 45, 60)),
    ("size", "times", (0.6, 0.8, 1.2, 1.4)),
    ("affine", "of affNIST's range", (1,)),
)
_COSTS = (
    ("network", "{name}"),
    ("seeds", "{seeds}"),
    ("parameters", "{parameters:,}"),
    ("million multiply-adds", "{multiply_adds!M:.2f}"),
)
# Told apart without colour too.
_MARKERS = "os^DvP"


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/distortions.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add(
        "models",
        nargs="+",
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
        default=ROOT / "results" / "distortions" / "mnist",
        metavar="PATH",
        help="the table, its data and its figure, without suffix",
    )
    return parser


def check(options: argparse.Namespace) -> None:
    """Raises `UserError` if a file or a package is missing."""
    for _, file in options.models:
        if not file.is_file():
            raise UserError(f"there is no file {file}.")
    check_installed(viz="matplotlib", data="PIL")


def run(options: argparse.Namespace) -> None:
    """Measures, and writes the three files."""
    result = measure(
        options.models, options.dataset, options.data_dir, options.samples
    )
    text = page(result)
    write(options.to.parent, options.to.name, result, text)
    draw(result, options.to.with_name(f"{options.to.name}.png"))
    print(text)


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
    import keras
    import numpy as np

    from tfcaps import rem
    from training import datasets
    from training.folder import read_model
    from training.image_data import Images

    data = datasets.load(dataset, data_dir)
    images, labels = data.test
    pixels, labels = images.pixels[:samples], labels[:samples]
    loaded = [(name, rem.encoder(read_model(file))) for name, file in models]
    for (_, file), (_, model) in zip(models, loaded, strict=True):
        known = [*model.inputs[0].shape[1:], model.output_shape[-1]]
        if known != [*data.image_shape, data.num_classes]:
            raise UserError(
                f"{file} is for images and classes {known}; {data.name} has "
                f"{[*data.image_shape, data.num_classes]}."
            )
    networks: dict[str, Any] = {
        name: {
            "seeds": sum(other == name for other, _ in loaded),
            "parameters": sum(
                int(np.count_nonzero(keras.ops.convert_to_numpy(weight)))
                for weight in model.trainable_weights
            ),
            "multiply_adds": rem.multiply_adds(model).total,
            "accuracy": {},
        }
        for name, model in loaded
    }
    for key, moved in _sets(pixels):
        print(f"distortion: {key}", flush=True)
        for name, model in loaded:
            answers = model.predict(Images(moved)[:], batch_size=256, verbose=0)
            right = float(np.mean(np.argmax(answers, axis=-1) == labels))
            networks[name]["accuracy"].setdefault(key, []).append(right)
    return {
        "machine": machine(),
        "dataset": dataset,
        "images": len(labels),
        "networks": networks,
    }


def _sets(pixels: Any) -> Iterator[tuple[str, Any]]:
    """Yields the test images under each distortion, always the same."""
    import numpy as np

    from training.augmentation import warped

    yield _NOTHING, pixels
    for kind, _, strengths in _DISTORTIONS:
        for strength in strengths:
            draw = np.random.default_rng(0)
            places = _places(kind, strength, len(pixels), draw)
            yield f"{kind} {strength}", warped(pixels, *places)


def _places(
    kind: str, strength: float, count: int, draw: Any
) -> tuple[Any, Any]:
    """Returns maps `[n, 2, 2]` and offsets `[n, 2]` from new to old places."""
    import numpy as np

    from training.datasets.affnist import random_map

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


def page(result: Mapping[str, Any]) -> str:
    """Returns the tables of what `measure` returned."""
    networks = result["networks"]
    costs = [{"name": name, **network} for name, network in networks.items()]
    units = {kind: unit for kind, unit, _ in _DISTORTIONS}
    rows = [("test images", *networks)]
    for key in next(iter(networks.values()))["accuracy"]:
        kind, _, strength = key.partition(" ")
        title = f"{kind}, {strength} {units.get(kind)}"
        rights = [network["accuracy"][key] for network in networks.values()]
        rows.append(
            (
                "as they are" if key == _NOTHING else title,
                *map(_percent, rights),
            )
        )
    about = result["machine"]
    return (
        "# Distorted test images\n\n"
        f"{result['images']:,} test images of {result['dataset']}, accuracy in "
        "%; ± is the standard deviation over seeds. Parameters are those that "
        f"are not zero.\n\n{table(costs, _COSTS)}\n\n{markdown(rows)}\n\n"
        f"{about['date']}, commit {about['commit']}, {about['cpu']}, "
        f"{about['cores']} cores.\n"
    )


def _percent(rights: Sequence[float]) -> str:
    text = f"{100 * mean(rights):.2f}"
    return f"{text} ± {100 * pstdev(rights):.2f}" if rights[1:] else text


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Writes a PNG: a panel for each distortion of several strengths."""
    from tfcaps.files import write_atomically
    from tfcaps.viz.drawing import colour, figure

    curves = [each for each in _DISTORTIONS if each[-1][1:]]
    page, [panels] = figure(
        3.4 * len(curves), 3.2, 1, len(curves), grid=True, sharey=True
    )
    for panel, (kind, unit, strengths) in zip(panels, curves, strict=True):
        points = {f"{kind} {strength}": strength for strength in strengths}
        points[_NOTHING] = 1 if kind == "size" else 0
        places = sorted(points.items(), key=lambda point: point[1])
        for number, (name, network) in enumerate(result["networks"].items()):
            panel.plot(
                [strength for _, strength in places],
                [100 * mean(network["accuracy"][key]) for key, _ in places],
                color=colour(number),
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=4,
                label=name,
            )
        panel.set_xlabel(f"{kind}, {unit}")
    panels[0].set_ylabel("accuracy, %")
    panels[0].legend(frameon=False, fontsize="small")
    with write_atomically(path) as file:
        page.savefig(file, format="png")


if __name__ == "__main__":
    sys.exit(main(make_parser(), run, check))
