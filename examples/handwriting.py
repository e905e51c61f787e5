"""Trains networks of named parts on handwritten digits or clothes.

python -m examples.handwriting mnist --seeds 1 --plain --data-dir FOLDER

Labels are classes alone. A line for each seed, which draws weights and batches,
is added to results/named_parts/mnist.jsonl, and mnist.md made of it.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from cli import Parser
from examples import seeds

_BATCH = 64
_MOST = 500  # test images whose trees are measured
_ORPHANS = (0.5, 0.7, 1.0)
PAGE = seeds.Page(
    "mnist",
    (
        ("data set", "{data}"),
        ("seed", "{seed}"),
        ("images", "{images}"),
        ("epochs", "{epochs}"),
        ("types", "{types}"),
        ("used", "{used}"),
        ("a leaf from, nats", "{orphan}"),
        ("right, %", "{right:.2f}"),
        ("a plain CNN, %", "{plain}"),
        ("leaves", "{leaves:.2f}"),
        ("at most ten, %", "{ten:.1f}"),
        ("answer changes", "{changes}"),
        ("changes or halves", "{necessity:.3f}"),
        ("of others active", "{active:.3f}"),
        ("of random", "{random:.3f}"),
        ("sufficiency", "{sufficiency:.3f}"),
        ("same types under noise", "{noise:.3f}"),
        ("shifted", "{shifted:.3f}"),
        ("types kept under noise", "{kept:.3f}"),
        ("shifted", "{kept_shifted:.3f}"),
        ("right under noise, %", "{right_noise:.2f}"),
        ("types exchanged, %", "{exchanged:.2f}"),
    ),
    ("data", "seed", "orphan"),
    # Older runs have no `changes`.
    lambda row: [
        {"plain": "–", "changes": "–", **row, **trees} for trees in row["trees"]
    ],
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("handwriting", __doc__)
    add = parser.add_argument
    add("data", help="mnist or fashion_mnist")
    add("--epochs", type=int, default=10)
    add("--samples", type=int, default=54_000, help="training images")
    add("--types", type=int, default=16, help="types of parts")
    add("--plain", action="store_true", help="train a plain CNN too")
    add("--data-dir", metavar="FOLDER", help="of TensorFlow Datasets")
    add("--draw", type=Path, metavar="FILE", help="draw the dictionary")
    add("--keep", type=Path, metavar="FOLDER", help="networks, after epochs")
    return parser


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains the networks of a seed, and measures them."""
    import tfcaps
    from tfcaps.files import save_atomically
    from training import datasets

    tfcaps.keep_memory()
    data = datasets.load(options.data, options.data_dir)
    network, plain = networks(data, options, seed)
    rights = {}
    for each, name in ((network, "parts"), (plain, "plain")):
        if each is plain and not options.plain:
            break
        file = options.keep and options.keep / (
            f"{options.data}-{name}-{seed}.weights.h5"
        )
        if file and file.exists():
            each.load_weights(file)
        else:
            train(each, data, options, seed)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_atomically(each.save_weights, file)
        told = each.predict(data.test.images[:], verbose=0)
        right = round(seeds.right(told, data.test.labels), 2)
        rights["right" if each is network else "plain"] = right
    if options.draw is not None:
        draw(network, data, options.draw)
    return {
        "data": options.data,
        "seed": seed,
        "images": min(options.samples, len(data.train.labels)),
        "epochs": options.epochs,
        "types": options.types,
        **rights,
        "trees": [of_trees(network, data, orphan) for orphan in _ORPHANS],
    }


def networks(data: Any, options: argparse.Namespace, seed: int) -> Any:
    """Returns a network of parts, and a plain one of the same convolutions."""
    import keras

    import tfcaps
    from training import presets

    keras.utils.set_random_seed(seed)
    network = tfcaps.models.constellation_capsnet(
        data.image_shape, data.num_classes, options.types, **presets.MAPS
    )
    features = keras.models.clone_model(
        keras.Model(network.input, network.get_layer("part_caps").input)
    )
    flat = keras.layers.Flatten()(keras.layers.MaxPooling2D()(features.output))
    scores = keras.layers.Dense(data.num_classes)(flat)
    return network, keras.Model(features.input, scores)


def train(
    network: Any, data: Any, options: argparse.Namespace, seed: int
) -> None:
    """Trains a network on images moved by a pixel, half of them noisy."""
    import keras
    import numpy as np

    losses: Any = "auto"
    names_parts = "part_caps" in [layer.name for layer in network.layers]
    if not names_parts:
        losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    labels = data.train.labels[: options.samples]
    steps = len(labels) // _BATCH
    rate = keras.optimizers.schedules.CosineDecay(3e-3, options.epochs * steps)
    network.compile(keras.optimizers.Adam(rate), losses)
    draw = np.random.default_rng(seed)

    def batches() -> Any:
        for _ in range(options.epochs):
            order = draw.permutation(len(labels))
            for start in range(0, steps * _BATCH, _BATCH):
                some = np.sort(order[start : start + _BATCH])
                moves = draw.integers(-1, 2, (len(some), 2))
                pairs = zip(data.train.images[some], moves, strict=True)
                clean = np.stack([np.roll(x, by, (0, 1)) for x, by in pairs])
                seen, told = clean.copy(), labels[some]
                seen[::2] = noisy(clean[::2], draw)
                targets = {"evidence": told, "presence": told}
                targets["reconstruction"] = clean
                yield seen, targets if names_parts else told

    network.fit(
        batches(), steps_per_epoch=steps, epochs=options.epochs, verbose=2
    )


def noisy(images: Any, draw: Any) -> Any:
    """Returns images with noise of 0.2, cut off at 0.25."""
    noise = draw.normal(0.0, 0.2, images.shape).clip(-0.25, 0.25)
    return (images + noise).astype("float32")


def of_trees(network: Any, data: Any, orphan: float) -> dict[str, Any]:
    """Returns what is measured of trees, of leaves from some nats on."""
    import numpy as np

    from tfcaps import rem
    from tfcaps.rem.evaluation.faithfulness import jaccard

    network.get_layer("class_caps").routing.orphan = orphan
    images, labels = data.test.images[:_MOST], data.test.labels[:_MOST]

    def trees(pixels: Any) -> Any:
        return rem.trees(network, pixels, couplings=False)

    def same(other: Any) -> tuple[float, float]:
        both = other.slots == found.slots
        return both.all(axis=1).mean(), jaccard(other.slots, found.slots)

    found = trees(images)
    under_noise = trees(noisy(images, np.random.default_rng(0)))
    moves = [(down, axis) for axis in (1, 2) for down in (-1, 1)]
    shifted = [same(trees(np.roll(images, *move))) for move in moves]
    noise, kept = same(under_noise)
    used = rem.faithfulness(network, (images, labels), draws=2)
    conv = network.get_layer("part_caps").conv
    kernel, bias = conv.get_weights()
    order = np.random.default_rng(0).permutation(len(bias))
    conv.set_weights([kernel[..., order], bias[order]])
    told = network.predict(images, verbose=0).argmax(axis=1)
    exchanged = 100 * float(np.mean(told == labels))
    conv.set_weights([kernel, bias])
    return {
        "orphan": orphan,
        "leaves": float(found.leaves.mean()),
        "ten": 100 * float(np.mean(found.leaves <= 10)),
        "used": int(np.sum(found.slots.mean(axis=0) > 0.01)),
        "changes": round(used.answer_changes["zero"], 3),
        "necessity": used.necessity["zero"],
        "active": used.necessity_active["zero"],
        "random": used.necessity_random["zero"],
        "sufficiency": used.sufficiency["zero"],
        "noise": float(noise),
        "kept": float(kept),
        "shifted": float(np.mean([whole for whole, _ in shifted])),
        "kept_shifted": float(np.mean([kept for _, kept in shifted])),
        "right_noise": 100 * float(np.mean(under_noise.predicted == labels)),
        "exchanged": exchanged,
    }


def draw(network: Any, data: Any, path: Path) -> None:
    """Draws what types stand for, and ten random images with their leaves."""
    import matplotlib.pyplot as plt
    import numpy as np

    from tfcaps import rem

    images = data.test.images[:]
    some = np.random.default_rng(0).permutation(len(images))[:_MOST]
    trees = rem.trees(network, images[some], couplings=False)
    windows = rem.part_pictures(images[some], trees, 11, count=_MOST)
    pictures = np.nanmean(windows, axis=1)
    shares = np.bincount(
        trees.types, trees.in_tree.sum(axis=0), trees.num_types
    ) / max(trees.in_tree.sum(), 1)
    known = [t for t in np.argsort(-shares) if shares[t] > 0.01][:24]
    figure = plt.figure(figsize=(10, 7), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(2, 4))
    for axis in (axes := above.subplots(2, 12)).flat:
        axis.set_axis_off()
    for axis, t in zip(axes.flat, known, strict=False):
        axis.imshow(pictures[t, ..., 0], cmap="gray", vmin=0, vmax=1)
        axis.set_title(f"{t}: {100 * shares[t]:.0f} %", fontsize=8)
    for n, axis in enumerate(below.subplots(2, 5).flat):
        axis.imshow(images[some[n], ..., 0], cmap="gray")
        axis.set_axis_off()
        name = data.class_names[trees.predicted[n]]
        true = data.class_names[data.test.labels[some[n]]]
        told = name if name == true else f"{name}, is {true}"
        axis.set_title(told, fontsize=9)
        for child in np.flatnonzero(trees.in_tree[n]):
            row, column = trees.places[n, child]
            text = axis.text(
                column,
                row,
                str(trees.types[child]),
                color="white",
                fontsize=8,
                ha="center",
                va="center",
            )
            text.set_bbox({"facecolor": "tab:blue", "alpha": 0.7, "pad": 1})
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    sys.exit(PAGE.main(make_parser(), measured))
