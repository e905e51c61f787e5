"""Trains networks of named parts on handwritten digits or clothes.

python -m examples.handwriting.train mnist --seeds 1 --data-dir FOLDER

Labels are classes alone. A line for each seed, which draws weights and batches,
is added to results/named_parts/mnist.jsonl, and mnist.md made of it.
"""

import argparse
import sys
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

_BATCH = 64
_ORPHANS = (0.5, 0.7, 1.0)  # nats from which on a child is a leaf


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("handwriting.train", __doc__, 54_000, 10, 500)
    add = parser.add_argument
    add("data", help="mnist or fashion_mnist")
    add("--types", type=int, default=16, help="types of parts")
    add("--data-dir", metavar="FOLDER", help="of TensorFlow Datasets")
    return parser


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains the network of a seed, and measures it."""
    import keras

    from examples.handwriting import maps
    from tfcaps import rem
    from training import datasets

    data = datasets.load(options.data, options.data_dir)
    train = data.train.take(slice(options.samples))
    keras.utils.set_random_seed(seed)
    network, training = maps.networks(
        data.image_shape, data.num_classes, options.types
    )
    fit(training, train, options.epochs, seed)
    lengths = network.predict(data.test.images[:], verbose=0)
    row = {
        "data": options.data,
        "images": len(train.labels),
        "epochs": options.epochs,
        "types": options.types,
        "right": round(seeds.percent_right(lengths, data.test.labels), 2),
        "trees": [],
    }
    images = data.test.images[: options.tested]
    for orphan in _ORPHANS:
        network.get_layer("class_caps").orphan = orphan
        trees = rem.trees(network, images, couplings=False)
        used = rem.faithfulness(network, images, trees=trees, draws=2)
        measures = seeds.tree_measures(used)
        line = {
            "orphan": orphan,
            "leaves": float(trees.leaves.mean()),
            "ten": 100 * float(np.mean(trees.leaves <= 10)),
            "used": int(np.sum(trees.slots.mean(axis=0) > 0.01)),
            "changes": measures["answer_changes"],
            "active": measures["necessity_active"],
            "random": measures["necessity_random"],
        }
        row["trees"].append(measures | line)
    if options.draw is not None:
        labels = data.test.labels[: options.tested]
        seeds.draw_trees(
            options.draw, network, images, trees, labels, data.class_names
        )
    return row


def fit(network: Any, data: Any, epochs: int, seed: int) -> None:
    """Trains a network on images moved by a pixel, half of them noisy."""
    import keras

    import tfcaps
    from training import train
    from training.augmentation import Augmentation
    from training.batches import Batches

    draw = np.random.default_rng(seed)

    def arrange(clean: Any, labels: Any) -> tuple[Any, Any]:
        noise = draw.normal(0.0, 0.2, clean.shape).clip(-0.25, 0.25)
        noise[1::2] = 0.0
        targets = {"evidence": labels, "presence": labels}
        images = (clean + noise).astype("float32")
        return images, {**targets, "reconstruction": clean}

    move = Augmentation(shift=1)
    batches = Batches(*data, _BATCH, seed=seed, augment=move, arrange=arrange)
    rate = seeds.falling_rate(3e-3, epochs, len(data.labels), _BATCH)
    network.compile(
        keras.optimizers.Adam(rate),
        tfcaps.parts.constellation_losses(
            sparsity=0.0, ambiguity=0.002, reconstruction=0.02
        ),
    )
    train.fit(network, batches, [], epochs)


if __name__ == "__main__":
    sys.exit(seeds.main("mnist", make_parser(), measured))
