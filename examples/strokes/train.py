"""Trains networks of strokes, components and characters, and their trees.

python -m examples.strokes.train --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/strokes.jsonl, and strokes.md made of
it.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

_LAYERS = {"strokes": "components", "components": "class_caps"}
_FEW = 1500  # images from which strokes are found
_BATCH = 32
_OTHERS = 5000  # added to the seed of images on which types are named
_FILTERS, _STRIDES = (16, 32, 32, 32, 32, 48), (1, 2, 1, 1, 1, 1)
_FAITHFUL = (
    ("changes or halves", "necessity"),
    ("of other active ones", "necessity_active"),
    ("of random ones", "necessity_random"),
    ("sufficiency", "sufficiency"),
    ("of random ones", "sufficiency_random"),
)
PAGE = seeds.Page(
    "strokes",
    (
        ("seed", "{seed}"),
        ("images", "{tested}"),
        ("right, %", "{right:.1f}"),
        ("unseen named, %", "{unseen:.1f}"),
        ("layer", "{layer}"),
        ("answer changes", "{answer_changes}"),
        *((head, f"{{{name}:.3g}}") for head, name in _FAITHFUL),
        ("size, %", "{size:.3g}"),
        ("leaves", "{leaves:.3g}"),
        ("active outside", "{outside:.3g}"),
        ("empty trees, %", "{empty:.3g}"),
        ("NMI", "{information:.3g}"),
        ("by chance", "{information_chance:.3g}"),
        ("purity", "{purity:.3g}"),
        ("found once, %", "{found_once:.3g}"),
        ("labelled F1", "{labelled_f1:.3g}"),
        ("types", "{types:.3g}"),
    ),
    # Older runs have no `answer_changes`.
    lines=lambda row: [
        {"answer_changes": "–", **row, "layer": k, **row[k]} for k in _LAYERS
    ],
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("strokes.train", __doc__)
    add = parser.add_argument
    add("--epochs", type=int, default=4)
    add("--samples", type=int, default=6000, help="images, 60 a character")
    add("--tested", type=int, default=500, help="images that are measured")
    add("--keep", type=Path, metavar="FOLDER", help="networks are saved there")
    add("--draw", type=Path, metavar="FILE", help="draw a tree")
    return parser


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains a network of one seed, and measures it."""
    from tfcaps import rem, viz
    from training.datasets import kanji

    def drawn(count: int, number: int, **some: Any) -> tuple[Any, Any, Any]:
        (pixels, labels), masks = kanji.draw(
            count, number + 1000 * seed, **some
        )
        return (pixels / 255.0).astype("float32"), labels, masks

    def trained_now() -> Any:
        images, labels, _ = drawn(options.samples, 31)
        return trained(images, labels, options.epochs, seed)

    network = seeds.kept(options.keep, f"strokes-{seed}", trained_now)
    count = options.tested
    row: dict[str, Any] = {
        "seed": seed,
        "epochs": options.epochs,
        "samples": options.samples,
        "tested": count,
    }

    def trees_of(images: Any, layer: str = "class_caps") -> Any:
        ask: Any = {"couplings": False, "batch_size": _BATCH}
        return rem.trees(network, images, layer=layer, **ask)

    for name, layer in _LAYERS.items():
        what = {"strokes": name == "strokes"}
        others, _, masks = drawn(count, 32 + _OTHERS, **what)
        kinds = seeds.names_of_types(
            seeds.named(trees_of(others, layer), masks)
        )
        images, labels, masks = drawn(count, 32, **what)
        trees = trees_of(images, layer)
        found = seeds.named(trees, masks, kinds)
        chance = seeds.named(trees, masks, by_chance=True)
        outside = trees.active & ~trees.in_tree
        told = rem.faithfulness(
            network, images, layer=layer, draws=1, batch_size=_BATCH
        )
        row["right"] = seeds.right(trees.lengths, labels)
        row[name] = {
            "answer_changes": round(told.answer_changes["zero"], 3),
            **{key: getattr(told, key)["zero"] for _, key in _FAITHFUL},
            "size": 100 * told.size,
            "outside": float(outside.sum(axis=1).mean()),
            "empty": 100 * told.empty_trees,
            **seeds.of_types(found, chance),
            "labelled_f1": found.labelled_f1,
        }
    strange, _, masks = drawn(count, 33, characters=kanji.UNSEEN)
    trees = trees_of(strange)
    trees = dataclasses.replace(trees, in_tree=trees.activations > 0.5)
    row["unseen"] = 100 * seeds.named(trees, masks, kinds).parts_named
    if options.draw is not None:
        number = int(np.random.default_rng(seed).integers(len(images)))
        title = kanji.read(kanji.CHARACTERS[labels[number]]).name
        some = images[number : number + 1]
        tree = rem.trees(network, some).parse_tree()
        viz.parse_tree({title: tree}, images=some).save(options.draw)
    return row


def network_of(shape: Any, classes: int, parts: Any, strokes: Any) -> Any:
    """Returns a network of strokes, components and classes, with blueprints."""
    import keras

    from tfcaps.layers import ConstellationCaps, PartCaps
    from tfcaps.models.building_blocks import normalized_convolutions
    from tfcaps.models.constellation_capsnet import first_place
    from tfcaps.routing import MeanShiftRouting

    images = keras.Input(shape, name="images")
    features = normalized_convolutions(images, _FILTERS, _STRIDES, 3)
    at: Any = {
        "stride": int(np.prod(_STRIDES)),
        "offset": tuple(first_place(side, 3, _STRIDES) for side in shape[:2]),
    }
    found = PartCaps(
        strokes.num_types, 3, exclusive=False, name="part_caps", **at
    )(features)
    components = ConstellationCaps(
        parts.num_types,
        MeanShiftRouting(width=2.5, epsilon=0.05, steps=1, several=True),
        instances=strokes.instances,
        parts=strokes.most,
        name="components",
        **at,
    )
    found = components(*found, return_activations=True)
    of_classes = ConstellationCaps(
        classes,
        MeanShiftRouting(width=3.0, epsilon=1e-3),
        stride=max(shape),
        parts=parts.most,
        name="class_caps",
    )
    _, lengths = of_classes(*found, return_activations=True)
    strokes.begin(components)
    parts.begin(of_classes)
    lengths = keras.layers.Identity(dtype="float32", name="lengths")(lengths)
    return keras.Model(images, lengths, name="strokes")


def trained(images: Any, labels: Any, epochs: int, seed: int) -> Any:
    """Returns a network that has learned to find the strokes of its parts."""
    import keras

    from tfcaps import losses, shared_parts, shared_strokes
    from tfcaps.parts.model import Beside

    keras.utils.set_random_seed(seed)
    parts = shared_parts.find(images, labels)
    strokes = shared_strokes.find(images[:_FEW], labels[:_FEW], parts)
    classes = int(labels.max()) + 1
    network = network_of(images.shape[1:], classes, parts, strokes)
    layer = network.get_layer("part_caps")
    layer.nothing_conv.bias.assign([4.0])  # nearly all places have nothing
    *_, presence = Beside(layer, "return_presence")(layer.input)
    training = keras.Model(network.input, presence)

    rate = keras.optimizers.schedules.CosineDecay(
        4e-3, epochs * (len(labels) // _BATCH)
    )
    training.compile(keras.optimizers.Adam(rate), losses.CellLoss())
    counts = layer.output[1].shape[1:3]
    cells = strokes.cells(layer, counts, images, labels, parts)
    training.fit(images, cells, _BATCH, epochs, verbose=2)
    return network


if __name__ == "__main__":
    sys.exit(PAGE.main(make_parser(), measured))
