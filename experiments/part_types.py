"""Trains networks of parts that are not told how many kinds of parts there are.

python experiments/part_types.py figures --seeds 5 6 7
python experiments/part_types.py figures_repeated --seeds 5 6 7 --instances 2
python experiments/part_types.py figures --seeds 5 --images 300

Each seed draws images and weights and is trained once, without restarts. A line
for each is added to results/named_parts/types.jsonl, and types.md made of it.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, run_command, start_quietly
from markdown_table import markdown

_FOLDER = Path("results") / "named_parts"
_COLUMNS = (
    ("right, %", "right", 2),
    ("loss", "loss", 3),
    ("types left", "types", 0),
    ("in trees", "used", 0),
    ("NMI", "information", 3),
    ("purity", "purity", 3),
    ("parts found once, %", "found_once", 1),
    ("leaves on own, %", "own", 1),
    ("leaves", "leaves", 2),
)
_ALL = 7200  # images, a tenth of 8,000 being for validation
_SHIFT = 4  # pixels by which copies of few images are moved, at most
_KEYS = ("data", "images", "types at first", "instances", "epochs", "seed")


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/part_types.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("data", help="figures, figures_of_four or figures_repeated")
    add("--seeds", type=int, nargs="+", required=True)
    add("--types", type=int, default=16, help="types to begin with")
    add("--instances", type=int, default=1, help="parts of a type in a class")
    add("--epochs", type=int, default=6)
    add(
        "--images",
        type=int,
        default=_ALL,
        help="train on so many, with shifted copies in the place of the others",
    )
    add("--to", type=Path, default=_FOLDER, metavar="FOLDER")
    return parser


def run(options: argparse.Namespace) -> None:
    """Trains, measures, and writes the table."""
    start_quietly()
    import tfcaps

    tfcaps.keep_memory()
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "types.jsonl"
    for seed in options.seeds:
        row = measured(options, seed)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    (options.to / "types.md").write_text(page(rows), "utf-8")


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains a network of one seed, and measures it on the test images."""
    import keras
    import numpy as np

    import tfcaps
    from training import results
    from training.datasets import load

    keras.utils.set_random_seed(seed)
    data = load(options.data, None, seed=seed)
    labels = data.train.labels
    images = np.asarray(data.train.images[np.arange(len(labels))], "float32")
    if options.images < len(images):
        images, labels = copied(images, labels, options.images, seed)
    network = tfcaps.models.constellation_capsnet(
        images.shape[1:],
        data.num_classes,
        options.types,
        instances=options.instances,
    )
    training = tfcaps.models.with_templates(network)
    rate = keras.optimizers.schedules.CosineDecay(
        3e-3, options.epochs * (len(labels) // 64)
    )
    training.compile(
        keras.optimizers.Adam(rate), tfcaps.losses.constellation_losses()
    )
    schedule = tfcaps.callbacks.BlueprintEstimation(
        images, labels, options.epochs, seed=seed
    )
    targets = {"evidence": labels, "presence": labels, "reconstruction": images}
    history = training.fit(
        images,
        targets,
        batch_size=64,
        epochs=options.epochs,
        callbacks=[schedule],
        verbose=0,
    )
    _, named = results.measure_parts(network, data)
    if named is None or named.found_once is None or named.own is None:
        raise UserError(f"{options.data} has no parts that are known.")
    tested = data.test
    pixels = tested.images[np.arange(len(tested.labels))]
    predicted = network.predict(pixels, verbose=0).argmax(axis=1)
    bias = np.asarray(network.get_layer("part_caps").conv.bias)
    return {
        "data": options.data,
        "images": options.images,
        "types at first": options.types,
        "instances": options.instances,
        "epochs": options.epochs,
        "seed": seed,
        "right": 100 * float(np.mean(predicted == tested.labels)),
        "loss": history.history["loss"][-1],
        "types": int(np.sum(bias > -1e3)),
        "used": named.types_used,
        "information": named.information,
        "purity": named.purity,
        "found_once": 100 * named.found_once,
        "own": 100 * named.own,
        "leaves": named.leaves,
    }


def copied(images: Any, labels: Any, count: int, seed: int) -> Any:
    """Returns as many images and labels, shifted copies of `count` of them."""
    import numpy as np

    draw, side = np.random.default_rng(seed), images.shape[1]
    some = draw.permutation(len(images))[:count]
    which = draw.permutation(np.resize(some, len(images)))
    edges = ((0, 0), (_SHIFT, _SHIFT), (_SHIFT, _SHIFT), (0, 0))
    padded = np.pad(images[which], edges, mode="edge")
    shifts = draw.integers(0, 2 * _SHIFT + 1, (len(images), 2))
    moved = [
        image[row : row + side, column : column + side]
        for image, (row, column) in zip(padded, shifts, strict=True)
    ]
    return np.stack(moved), labels[which]


def page(rows: list[dict[str, Any]]) -> str:
    """Returns the table, in Markdown."""
    table = [[*_KEYS, *(title for title, *_ in _COLUMNS)]]
    rows = [{"images": _ALL, **row} for row in rows]
    for row in sorted(rows, key=lambda row: [row[key] for key in _KEYS]):
        cells = [f"{row[field]:.{digits}f}" for _, field, digits in _COLUMNS]
        table.append([*(str(row[key]) for key in _KEYS), *cells])
    told = (
        "One training for each seed, which draws images and weights; no "
        "restarts. The number of types is not given: training merges and "
        "splits them. NMI and the like are as in table.md."
    )
    return f"# How many types of parts\n\n{told}\n\n{markdown(table, left=1)}\n"


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
