"""Measures whether networks of parts name the components of kanji.

python -m examples.kanji.train --seeds 1 2 3

trains as `training/run.py --dataset kanji` does, on fewer images. Labels are
characters alone. A line for each seed, which draws images and weights, is added
to results/named_parts/kanji.jsonl, and kanji.md made of it.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

_BATCH = 64
_OTHERS = 5000  # added to the seed of images on which types are named
_MOST = 1000  # images of a kind whose trees are measured
_USED = 400  # images whose trees are silenced
_POOL = 4  # rows and columns of places that the plain CNN takes together
PAGE = seeds.Page(
    "kanji",
    (
        ("seed", "{seed}"),
        ("right, %", "{right:.1f}"),
        ("a plain CNN, %", "{plain:.1f}"),
        ("NMI", "{information:.3f}"),
        ("by chance", "{information_chance:.3f}"),
        ("parts found once, %", "{found_once:.1f}"),
        ("labelled F1", "{labelled_f1:.3f}"),
        ("by chance", "{labelled_f1_chance:.3f}"),
        ("of one name", "{labelled_f1_one:.3f}"),
        ("answer changes", "{used[answer_changes][zero]:.3f}"),
        ("at the mean", "{used[answer_changes][mean]:.3f}"),
        ("changes or halves", "{used[necessity][zero]:.3f}"),
        ("of others active", "{used[necessity_active][zero]:.3f}"),
        ("at the mean", "{used[necessity][mean]:.3f}"),
        ("of others active", "{used[necessity_active][mean]:.3f}"),
        ("sufficiency", "{used[sufficiency][zero]:.3f}"),
        ("of the longest", "{used[sufficiency_longest][zero]:.3f}"),
        ("unseen named, %", "{unseen:.1f}"),
        ("by chance", "{unseen_chance:.1f}"),
        ("of one name", "{unseen_one:.1f}"),
        ("in the tree, %", "{unseen_tree:.1f}"),
        ("types", "{types}"),
        ("images", "{images}"),
        ("epochs", "{epochs}"),
        ("commit", "{commit:.7}"),
    ),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("kanji.train", __doc__)
    add = parser.add_argument
    add("--samples", type=int, default=14_000, help="a tenth is held out")
    add("--draw", type=Path, metavar="FILE", help="draw fifteen trees")
    add(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="networks are saved there, and taken from there",
    )
    return parser


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains networks of one seed, and measures that of parts."""
    from tfcaps import rem
    from training import defaults
    from training.datasets import kanji
    from training.folder import environment

    data = kanji.generate(seed=seed, train=options.samples)
    config = dataclasses.replace(defaults.load("kanji"), seed=seed)
    network = seeds.kept(
        options.keep, f"kanji-{seed}", lambda: parts_of(data, config)
    )
    plain = seeds.kept(
        options.keep, f"plain-{seed}", lambda: plain_of(data, config, network)
    )
    pixels, labels = data.test.images[:], data.test.labels

    def right(model: Any) -> float:
        lengths = model.predict(pixels, batch_size=_BATCH, verbose=0)
        return seeds.right(lengths, labels)

    # Types are named on images that are neither trained on nor measured.
    others = kanji.generate(seed=seed + _OTHERS, train=100)
    masks: Any = others.masks
    trees = trees_of(network, others.test.images[:])
    kinds = seeds.names_of_types(seeds.named(trees, masks))
    frequent = np.bincount(masks.kinds[masks.kinds >= 0]).argmax()
    one = np.full_like(kinds, frequent)
    if options.draw is not None:
        names = np.array([*kanji.COMPONENTS.values(), "?"])[kinds]
        draw(network, data, seed, names, options.draw)
    trees, masks = trees_of(network, pixels), data.masks
    found = seeds.named(trees, masks, kinds)
    chance = seeds.named(trees, masks, kinds, by_chance=True)
    (strange, _), made_of = kanji.unseen(seed)
    unseen = trees_of(network, (strange / 255.0).astype("float32"))
    active = dataclasses.replace(unseen, in_tree=unseen.activations > 0.5)
    new = seeds.named(active, made_of, kinds)
    new_chance = seeds.named(active, made_of, kinds, by_chance=True)
    used = rem.faithfulness(
        network, pixels, samples=_USED, draws=2, batch_size=_BATCH
    )
    return {
        "seed": seed,
        "epochs": config.epochs,
        "images": len(data.train.labels),
        "commit": environment()["commit"],
        "right": right(network),
        **seeds.of_types(found, chance),
        "labelled_f1": found.labelled_f1,
        "labelled_f1_chance": chance.labelled_f1,
        "labelled_f1_one": seeds.named(trees, masks, one).labelled_f1,
        "used": used.to_dict(),
        "unseen": 100 * new.parts_named,
        "unseen_chance": 100 * new_chance.parts_named,
        "unseen_one": 100 * seeds.named(active, made_of, one).parts_named,
        "unseen_tree": 100 * seeds.named(unseen, made_of, kinds).parts_named,
        "plain": right(plain),
    }


def trees_of(network: Any, images: Any) -> Any:
    """Returns the trees of at most so many images."""
    from tfcaps import rem

    return rem.trees(
        network, images[:_MOST], couplings=False, batch_size=_BATCH
    )


def parts_of(data: Any, config: Any) -> Any:
    """Trains as `training/run.py` does."""
    from training import objectives, train

    setup = train.prepare("baseline", data, config, None)
    schedules = objectives.changes(setup.trained, config, setup.batches)
    train.fit(setup.trained, setup.batches, schedules, config.epochs)
    return setup.model


def plain_of(data: Any, config: Any, network: Any) -> Any:
    """Trains a plain CNN of equal size alike."""
    import keras

    from training import objectives, train
    from training.batches import Batches

    keras.utils.set_random_seed(config.seed)
    below = keras.models.clone_model(
        keras.Model(network.input, network.get_layer("part_caps").input)
    )
    _, rows, columns, depth = below.output.shape
    # As many channels as leave no more weights than the network has.
    left = network.count_params() - below.count_params() - data.num_classes
    places = (rows // _POOL) * (columns // _POOL)
    channels = left // (depth + 1 + places * data.num_classes)
    few = keras.layers.Conv2D(channels, 1)(below.output)
    flat = keras.layers.Flatten()(keras.layers.MaxPooling2D(_POOL)(few))
    scores = keras.layers.Dense(data.num_classes)(flat)
    model = keras.Model(below.input, scores)
    images, labels = data.train
    batches = Batches(images, labels, config.batch_size, seed=config.seed)
    rate = objectives.learning_rate(config, batches.num_batches)
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    train.fit(model, batches, [], config.epochs)
    return model


def draw(network: Any, data: Any, seed: int, names: Any, path: Path) -> None:
    """Draws the trees of ten characters, and the parts of five others.

    The names of active parts that are in no tree stand in brackets.
    """
    from training.datasets import kanji

    # Of every tenth class the first test image.
    some = np.unique(data.test.labels, return_index=True)[1][::10]
    (strange, of), _ = kanji.unseen(seed, 27)
    images = np.concatenate([data.test.images[some], strange[:5] / 255.0])
    trees = trees_of(network, images.astype("float32"))
    told = trees.predicted[: len(some)]
    titles = [data.class_names[k] for k in told]
    titles += [
        f"no class; is {kanji.read(kanji.UNSEEN[k]).name}" for k in of[:5]
    ]
    wrong = [*(told != data.test.labels[some]), *[False] * 5]
    leaves: list[list[tuple[Any, str]]] = [[] for _ in images]
    for n, k in np.argwhere(trees.activations > 0.5):
        name = names[trees.types[k]]
        name = name if trees.in_tree[n, k] else f"({name})"
        leaves[n].append((trees.places[n, k], name))
    seeds.draw_trees(path, images, titles, wrong, leaves)


if __name__ == "__main__":
    sys.exit(PAGE.main(make_parser(), measured))
