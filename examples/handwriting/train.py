"""Trains networks of named parts on handwritten digits or clothes.

python -m examples.handwriting.train mnist --seeds 1 --data-dir FOLDER

Labels are classes alone. A line for each seed, which draws weights and batches,
is added to results/named_parts/mnist.jsonl, and mnist.md made of it. With
`--rem` 70 % of the weights leave in further epochs, and with `--save` the
network and its measures are kept as a run, for `training/pretrained.py`.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

_BATCH = 64
_ORPHANS = (0.5, 0.7, 1.0)  # nats from which on a child is a leaf
_FILTERS = (32, 64, 64)
# Pixels from place to place, and the first one.
_STRIDE, _OFFSET = 2, (1, 1)
_PRUNED = 0.7


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("handwriting.train", __doc__, 54_000, 10, 500)
    add = parser.add_argument
    add("data", help="mnist or fashion_mnist")
    add("--types", type=int, default=16, help="types of parts")
    add("--data-dir", metavar="FOLDER", help="of TensorFlow Datasets")
    add("--rem", type=int, default=0, metavar="EPOCHS", help="prune in these")
    add("--save", type=Path, metavar="FOLDER", help="keep networks here")
    return parser


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains the network of a seed, and measures it."""
    import keras

    from tfcaps import rem
    from training import datasets

    start = time.perf_counter()
    data = datasets.load(options.data, options.data_dir)
    train = data.train.take(slice(options.samples))
    keras.utils.set_random_seed(seed)
    network, training = networks(
        data.image_shape, data.num_classes, options.types
    )
    fit(training, train, options.epochs, seed)
    if options.rem:
        before = keras.models.clone_model(network)
        before.set_weights(network.get_weights())
        fit(training, train, options.rem, seed + 1, rem.Prune(_PRUNED, end=0.5))
        if options.save:
            seconds = time.perf_counter() - start
            save(options, seed, data, before, network, seconds)
    lengths = network.predict(data.test.images[:], verbose=0)
    row = {
        "data": options.data,
        "images": len(train.labels),
        "epochs": options.epochs + options.rem,
        "types": options.types,
        "right": round(seeds.percent_right(lengths, data.test.labels), 2),
        "pruned": 100 * rem.sparsity(network),
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


def networks(
    shape: tuple[int, int, int], num_classes: int, part_types: int
) -> tuple[Any, Any]:
    """Builds a network of parts, and the one that trains it.

    Convolutions take no steps: the mean of windows that do follows, so that
    little changes where an image is shifted by a pixel (Zhang, 2019, "Making
    convolutional networks shift-invariant again").

    Returns:
        From images to lengths, and from images to a dict of evidence, presence
        and reconstruction, as of `tfcaps.parts.constellation_losses`.
    """
    import keras

    from tfcaps import parts

    layers = keras.layers
    features = images = keras.Input(shape, name="images")
    for number, channels in enumerate(_FILTERS):
        features = layers.Conv2D(channels, 3, padding="same", use_bias=False)(
            features
        )
        features = layers.BatchNormalization(momentum=0.9)(features)
        features = layers.ReLU()(features)
        if number == 0:
            features = layers.AveragePooling2D(3, _STRIDE, "same")(features)
    at: Any = {"stride": _STRIDE, "offset": _OFFSET}
    places, active, presence = parts.StrongestParts(
        part_types, 1, name="part_caps", **at
    )(features, return_presence=True)
    classes = parts.MapCaps(num_classes, width=3.0, name="class_caps", **at)
    _, lengths, evidence = classes(
        places, active, return_activations=True, return_evidence=True
    )
    drawn = parts.TemplateDecoder(shape, 11, _OFFSET)(active)
    outputs = {"evidence": evidence, "presence": presence}
    training = keras.Model(images, {**outputs, "reconstruction": drawn})
    return keras.Model(images, lengths, name="map_capsnet"), training


def save(
    options: argparse.Namespace,
    seed: int,
    data: Any,
    before: Any,
    network: Any,
    seconds: float,
) -> None:
    """Keeps a network and its measures as a run of `training/run.py --rem`."""
    from training import results
    from training.configs import Config
    from training.folder import RunFolder

    config = Config(
        dataset=options.data, samples=options.samples, model=network.name,
        epochs=options.epochs, batch_size=_BATCH, seed=seed, shift=1, rem=True,
        rem_epochs=options.rem, warm_start=True, final_sparsity=_PRUNED,
        part_types=options.types,
    )  # fmt: skip
    folder = RunFolder(options.save / f"{options.data}-{seed}", config)
    folder.create()
    folder.save_data(options.data, data.class_names)
    folder.save_model("rem", network)
    models = {"baseline": before, "rem": network}
    measured = results.measure(config, data, models)
    folder.save_reports(measured.reports, measured.tests, seconds)


def fit(
    training: Any, data: Any, epochs: int, seed: int, *callbacks: Any
) -> None:
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
    batches = Batches(
        data.images, data.labels, _BATCH,
        seed=seed, augment=move, arrange=arrange,
    )  # fmt: skip
    rate = seeds.falling_rate(3e-3, epochs, len(data.labels), _BATCH)
    training.compile(
        keras.optimizers.Adam(rate),
        tfcaps.parts.constellation_losses(
            sparsity=0.0, ambiguity=0.002, reconstruction=0.02
        ),
    )
    train.fit(training, batches, callbacks, epochs)


if __name__ == "__main__":
    sys.exit(seeds.main("mnist", make_parser(), measured))
