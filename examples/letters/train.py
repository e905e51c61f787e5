"""Trains a network of parts on 300 letters of SynDaCaTE's kind.

python -m examples.letters.train --seeds 1 2 3 4 5

Labels are letters alone. A line for each seed, which draws images and weights,
is added to results/named_parts/syndacate.jsonl, and syndacate.md made of it.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds
from examples.letters import lines

_RATE, _PLAIN_RATE, _BATCH = 1e-3, 3e-3, 16
_NEAR = 3.2  # pixels around a part that tell nothing
_WEIGHT = 5.0  # of a cell with a part; most have none
_SOFT = 0.65  # of the epochs; then competition is hard
# Angle, share of the size, and pixels by which pictures differ from upright.
_JITTER = (0.07, 0.06, 2.0)
_COPIES = 8  # of each image
PAGE = seeds.Page(
    "syndacate",
    (
        ("seed", "{seed}"),
        ("images", "{images}"),
        ("epochs", "{epochs}"),
        ("right, %", "{right:.1f}"),
        ("in its own view, %", "{one_view:.1f}"),
        ("nearest mean, %", "{template:.1f}"),
        ("CNN on pixels, %", "{plain:.1f}"),
        ("with augmentation, %", "{augmented:.1f}"),
        ("CNN on round letters, %", "{rounded:.1f}"),
        ("strokes found", "{strokes:.0f}"),
        ("types", "{types:.0f}"),
        ("NMI", "{information:.3f}"),
        ("by chance", "{information_chance:.3f}"),
        ("of one name", "{information_one:.3f}"),
        ("parts found once, %", "{found_once:.1f}"),
        ("without X, %", "{found_once_but_x:.1f}"),
        ("leaves on own, %", "{own:.1f}"),
        ("of all places, %", "{own_of_all:.1f}"),
        ("leaves", "{leaves:.2f}"),
        ("answer changes", "{answer_changes}"),
        ("changes or halves", "{necessity:.3f}"),
        ("of others active", "{necessity_active:.3f}"),
        ("of random ones", "{necessity_random:.3f}"),
        ("sufficiency", "{sufficiency:.3f}"),
        ("of the longest", "{sufficiency_longest:.3f}"),
        ("seconds", "{seconds:.0f}"),
    ),
    ("images", "seed"),
    lambda row: [{"answer_changes": "–", **row}],  # of older runs
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("letters.train", __doc__)
    add = parser.add_argument
    add("--epochs", type=int, default=8)
    add("--train", type=int, default=300, help="training images")
    add("--test", type=int, default=500)
    add("--draw", type=Path, metavar="FILE", help="draw ten trees")
    return parser


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains networks of one seed, and measures them on other images."""
    from tfcaps import rem
    from training.datasets import syndacate

    data = syndacate.generate(
        seed=seed, train=options.train, test=options.test, validation=0.0
    )
    labels, truth = data.train.labels, data.test.labels
    masks: Any = data.masks
    begun = time.process_time()
    letters = lines.standing(data.train.images[:])
    frames, maps = lines.find(letters, labels)
    network = trained(letters, labels, maps, options.epochs, seed)
    seconds = time.process_time() - begun
    others = lines.standing(data.test.images[:])
    views = frames.maps(others)  # one for each class
    of_classes = [
        network.predict(others.seen(views[:, j]), verbose=0)[:, j]
        for j in range(data.num_classes)
    ]
    lengths = np.stack(of_classes, axis=1)
    view = views[np.arange(len(truth)), lengths.argmax(axis=1)]
    seen = others.seen(view)
    of_lines = [
        others._replace(ink=mask.astype("float32")).seen(view)[..., 0] > 0.25
        for mask in masks.parts.swapaxes(0, 1)
    ]
    parts = np.stack(of_lines, axis=1)
    # A line that is thinner than a pixel of the view is still there.
    kinds = np.where(parts.any(axis=(2, 3)), masks.kinds, -1)
    masks = dataclasses.replace(masks, parts=parts, kinds=kinds)
    trees = rem.trees(network, seen, couplings=False)
    if options.draw is not None:
        draw(data, others, view, trees, options.draw)
    found = seeds.named(trees, masks)
    no_x = np.flatnonzero(truth != data.class_names.index("X"))
    every = dataclasses.replace(trees, in_tree=np.ones_like(trees.in_tree))
    one = dataclasses.replace(trees, types=np.zeros_like(trees.types))
    used = rem.faithfulness(network, seen, samples=300, draws=3)
    silenced = (
        *("necessity", "necessity_active", "necessity_random"),
        *("sufficiency", "sufficiency_longest"),
    )
    alike = others.turned() @ frames.means.T
    return {
        "seed": seed,
        "images": options.train,
        "epochs": options.epochs,
        "right": seeds.right(lengths, truth),
        "one_view": seeds.right(trees.lengths, truth),
        "template": seeds.right(alike.max(axis=1), truth),
        **plain(data, letters, others, options.epochs, seed),
        "strokes": int(np.sum(network.get_layer("class_caps").slots)),
        **seeds.of_types(found, seeds.named(trees, masks, by_chance=True)),
        "information_one": seeds.named(one, masks).information,
        "found_once_but_x": 100
        * seeds.named(trees[no_x], masks[no_x]).found_once,
        "own": 100 * found.own,
        "own_of_all": 100 * seeds.named(every, masks).own,
        "answer_changes": round(used.answer_changes["zero"], 3),
        **{name: getattr(used, name)["zero"] for name in silenced},
        "seconds": seconds,
    }


def trained(
    letters: lines.Letters, labels: Any, maps: Any, epochs: int, seed: int
) -> Any:
    """Returns a network of parts, trained on labels of upright letters."""
    import keras

    import tfcaps

    parts = lines.find_parts(letters.seen(maps), labels)
    keras.utils.set_random_seed(seed)
    network = tfcaps.models.constellation_capsnet(
        (lines.SIDE, lines.SIDE, 1),
        int(labels.max()) + 1,
        parts.num_types,
        filters=(16, 24, 24),
        kernel_size=5,
        strides=(2, 1, 1),
        window=3,
        instances=3,
        parts=parts.most,
    )
    parts.begin(network)
    # Where strokes are is known, so that it need not be learnt.
    network.get_layer("class_caps").blueprint.trainable = False
    images, cells = jittered(letters, labels, maps, parts, network, seed)
    labels = np.tile(labels, _COPIES)
    network.compile(
        keras.optimizers.Adam(falling(_RATE, epochs, len(labels))),
        {
            "evidence": tfcaps.losses.EvidenceLoss(generative=0.0),
            "presence": tfcaps.losses.CellLoss(),
        },
        loss_weights={"evidence": 0.3, "presence": 1.0},
    )

    network.fit(
        images,
        {"evidence": labels, "presence": cells},
        batch_size=_BATCH,
        epochs=epochs,
        callbacks=[tfcaps.callbacks.HardenParts(1.0 - _SOFT)],
        verbose=2,
    )
    return network


def falling(rate: float, epochs: int, images: int) -> Any:
    """Returns a learning rate that falls to 0."""
    import keras

    steps = epochs * (images // _BATCH)
    return keras.optimizers.schedules.CosineDecay(rate, steps)


def jittered(
    letters: Any, labels: Any, maps: Any, parts: Any, network: Any, seed: int
) -> Any:
    """Returns pictures that are not quite upright, and which type is where.

    Where several types are it is each of them to an equal share, and next to
    parts all are 0, which tells nothing.
    """
    layer = network.get_layer("part_caps")
    _, rows, columns, types = layer.output[1].shape
    cells = np.indices((rows, columns)).transpose(1, 2, 0) * layer.stride
    cells = cells + np.array(layer.offset) - lines.MIDDLE
    draw, (angle, size, away) = np.random.default_rng(seed), _JITTER
    images, told, count = [], [], len(labels)
    for _ in range(_COPIES):
        change = drawn_change(draw, count, angle, size)
        shift = draw.uniform(-away, away, (count, 2))
        moved = np.einsum("nij,nj->ni", maps, shift)
        images.append(letters.seen(maps @ change, moved))
        there = np.linalg.inv(change)
        for n, label in enumerate(labels):
            own = parts.classes == label
            at = (parts.places[own] - shift[n]) @ there[n].T
            apart = np.linalg.norm(cells[:, :, None] - at, axis=-1)
            of_each = np.zeros((rows, columns, types + 1))
            of_each[apart.min(axis=-1) >= _NEAR, types] = 1.0
            for k, t in enumerate(parts.types[own]):
                cell = np.unravel_index(apart[..., k].argmin(), (rows, columns))
                of_each[cell][t] = 1.0
            total = of_each.sum(axis=-1, keepdims=True)
            share = of_each / np.maximum(total, 1.0)
            share[..., :types] *= _WEIGHT
            told.append(share)
    return np.concatenate(images), np.array(told, "float32")


def drawn_change(draw: Any, count: int, angle: float, size: float) -> Any:
    """Returns random maps `[n, 2, 2]` that turn, resize and slant a little."""
    turn = lines.rotation(draw.normal(0, angle, count))
    return turn @ (np.eye(2) + draw.normal(0, size, (count, 2, 2)))


def plain(
    data: Any, letters: Any, others: Any, epochs: int, seed: int
) -> dict[str, float]:
    """Returns the accuracy of convolutions with a dense layer.

    On pixels as they are, on pixels with augmentation, and on letters whose ink
    is round, turned at random. As many steps as the network of parts.
    """
    import keras

    pixels, labels = data.train.images[:], np.tile(data.train.labels, _COPIES)
    draw, count = np.random.default_rng(seed), len(pixels)

    def halved(images: Any) -> Any:
        return images.reshape(-1, 50, 2, 50, 2, 1).mean((2, 4))

    def distorted() -> Any:
        middles = np.full((count, 2), 49.5) + draw.uniform(-10, 10, (count, 2))
        moved = lines.Letters(pixels[..., 0], middles, letters.spreads)
        return moved.seen(2.0 * drawn_change(draw, count, 0.2, 0.1), side=50)

    def round_ones() -> Any:
        change = drawn_change(draw, count, 0.2, _JITTER[1])
        return letters.seen(letters.spreads @ change / lines.SPREAD)

    raw = halved(data.test.images[:])
    upright = others.seen(others.spreads / lines.SPREAD)
    tests: dict[str, tuple[Callable[[], Any], Any]] = {
        "plain": (lambda: halved(pixels), raw),
        "augmented": (distorted, raw),
        "rounded": (round_ones, upright),
    }
    accuracies = {}
    for name, (images, tested) in tests.items():
        keras.utils.set_random_seed(seed)
        network = keras.Sequential([keras.Input(tested.shape[1:])])
        for filters, stride in zip((16, 24, 24), (2, 2, 1), strict=True):
            network.add(
                keras.layers.Conv2D(filters, 5, stride, "same", use_bias=False)
            )
            network.add(keras.layers.BatchNormalization())
            network.add(keras.layers.ReLU())
        network.add(keras.layers.MaxPooling2D(2))
        network.add(keras.layers.Flatten())
        network.add(keras.layers.Dense(data.num_classes))
        network.compile(
            keras.optimizers.Adam(falling(_PLAIN_RATE, epochs, len(labels))),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        copies = np.concatenate([images() for _ in range(_COPIES)])
        network.fit(copies, labels, _BATCH, epochs, verbose=0)
        lengths = network.predict(tested, verbose=0)
        accuracies[name] = seeds.right(lengths, data.test.labels)
    return accuracies


def draw(data: Any, letters: Any, view: Any, trees: Any, path: Path) -> None:
    """Draws the trees of ten images drawn at random."""
    some = np.random.default_rng(0).permutation(len(view))[:10]
    predicted = trees.predicted[some]
    leaves = []
    for n in some:
        own = trees.in_tree[n]
        places = (trees.places[n, own] - lines.MIDDLE) @ view[n].T
        names = map(str, trees.types[own])
        leaves.append([*zip(places + letters.middles[n], names, strict=True)])
    seeds.draw_trees(
        path,
        data.test.images[some],
        [data.class_names[j] for j in predicted],
        predicted != data.test.labels[some],
        leaves,
    )


if __name__ == "__main__":
    sys.exit(PAGE.main(make_parser(), measured))
