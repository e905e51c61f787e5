"""Trains networks of strokes, components and characters, and their trees.

python experiments/strokes.py --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/strokes.jsonl, and strokes.md made of
it.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, run_command, start_quietly
from markdown_table import markdown

_FOLDER = Path("results") / "named_parts"
_LAYERS = {"strokes": "components", "components": "class_caps"}
_FEW = 1500  # images from which strokes are found
_BATCH = 32
_OTHERS = 5000  # added to the seed of images on which types are named
_FILTERS, _STRIDES = (16, 32, 32, 32, 32, 48), (1, 2, 1, 1, 1, 1)
_SHARES = (
    ("necessity", "necessity"),
    ("of other active ones", "necessity_active"),
    ("of random ones", "necessity_random"),
    ("sufficiency", "sufficiency"),
    ("of random ones", "sufficiency_random"),
    ("size, %", "size"),
    ("leaves", "leaves"),
    ("active outside", "outside"),
    ("empty trees, %", "empty"),
    ("NMI", "information"),
    ("by chance", "information_chance"),
    ("purity", "purity"),
    ("found once, %", "found_once"),
    ("labelled F1", "labelled_f1"),
    ("types", "types"),
)
_NOTE = (
    "One training for each seed, which draws images and weights. Labels are "
    "characters alone. The tree of a layer has the children that are coupled "
    "with the predicted character by more than one half, directly or through "
    "the components in its tree. Necessity and sufficiency are those of "
    "`tfcaps.rem.faithfulness`, silenced children having activation 0; as many "
    "active children outside of the tree, all where there are fewer, and as "
    "many random ones are the controls. NMI is that of the types of leaves and "
    "the true components, or the types of the strokes that KanjiVG gives, "
    "under them (by chance: shuffled). A type is named by that on which most "
    "of its leaves lie in other images."
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/strokes.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", required=True)
    add("--epochs", type=int, default=4)
    add("--samples", type=int, default=6000, help="images, 60 a character")
    add("--tested", type=int, default=500, help="images that are measured")
    add("--to", type=Path, default=_FOLDER, metavar="FOLDER")
    add("--keep", type=Path, metavar="FOLDER", help="networks are saved there")
    add("--draw", type=Path, metavar="FILE", help="draw a tree")
    return parser


def run(options: argparse.Namespace) -> None:
    """Trains, measures, and writes the table."""
    start_quietly()
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "strokes.jsonl"
    for seed in options.seeds:
        row = measured(options, seed)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    (options.to / "strokes.md").write_text(page(rows), "utf-8")


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains a network of one seed, and measures it."""
    import keras
    import numpy as np

    from tfcaps import rem
    from training.datasets import kanji

    kept = options.keep and options.keep / f"strokes-{seed}.keras"
    if kept is not None and kept.exists():
        network = keras.models.load_model(kept)
    else:
        (pixels, labels), _ = kanji.draw(options.samples, 31 + 1000 * seed)
        images = (pixels / 255.0).astype("float32")
        network = trained(images, labels, options.epochs, seed)
        if kept is not None:
            network.save(kept)

    def drawn(number: int, characters: str, strokes: bool) -> Any:
        (pixels, labels), masks = kanji.draw(
            options.tested, number + 1000 * seed, characters, strokes=strokes
        )
        return (pixels / 255.0).astype("float32"), labels, masks

    row: dict[str, Any] = {
        "seed": seed,
        "epochs": options.epochs,
        "samples": options.samples,
        "tested": options.tested,
    }
    for name, layer in _LAYERS.items():
        ask: Any = {"layer": layer, "couplings": False, "batch_size": _BATCH}
        others, _, known = drawn(
            32 + _OTHERS, kanji.CHARACTERS, name == "strokes"
        )
        trees = rem.trees(network, others, **ask)
        table = np.array(_named(trees, known).table)
        kinds = np.where(table.any(axis=1), table.argmax(axis=1), -1)
        images, labels, masks = drawn(32, kanji.CHARACTERS, name == "strokes")
        trees = rem.trees(network, images, **ask)
        row["right"] = 100 * float(np.mean(trees.predicted == labels))
        there = masks.kinds >= 0
        shuffled = masks.kinds.copy()
        shuffled[there] = np.random.default_rng(0).permutation(shuffled[there])
        by_chance = _named(trees, dataclasses.replace(masks, kinds=shuffled))
        found = _named(trees, masks, kinds)
        least = 0.1 * trees.activations.max(axis=1, keepdims=True)
        outside = (trees.activations > least) & ~trees.in_tree
        told = rem.faithfulness(
            network, images, layer=layer, draws=1, batch_size=_BATCH
        )
        row[name] = {
            **{key: getattr(told, key)["zero"] for _, key in _SHARES[:5]},
            "size": 100 * told.size,
            "leaves": found.leaves,
            "outside": float(outside.sum(axis=1).mean()),
            "empty": 100 * told.empty_trees,
            "information": found.information,
            "information_chance": by_chance.information,
            "purity": found.purity,
            "found_once": 100 * found.found_once,
            "labelled_f1": found.labelled_f1,
            "types": found.types,
            "names": [masks.kind_names[k] if k >= 0 else None for k in kinds],
            "faithfulness": told.to_dict(),
        }
    strange, _, masks = drawn(33, kanji.UNSEEN, False)
    trees = rem.trees(network, strange, **ask)
    trees = dataclasses.replace(trees, in_tree=trees.activations > 0.5)
    row["unseen"] = 100 * _named(trees, masks, kinds).parts_named
    if options.draw is not None:
        number = int(np.random.default_rng(seed).integers(len(images)))
        title = kanji.read(kanji.CHARACTERS[labels[number]]).name
        draw(network, images[number], row, title, options.draw)
    return row


def _named(trees: Any, masks: Any, kinds: Any = None) -> Any:
    from tfcaps import rem

    return rem.named_parts(
        trees, masks.parts, kinds=masks.kinds, type_kinds=kinds, reach=None
    )


def network_of(shape: Any, classes: int, parts: Any, strokes: Any) -> Any:
    """Returns a network of strokes, components and classes, with blueprints."""
    import keras
    import numpy as np

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
    from keras import ops

    from tfcaps import shared_parts, shared_strokes
    from tfcaps.models.constellation_capsnet import Beside

    keras.utils.set_random_seed(seed)
    parts = shared_parts.find(images, labels)
    strokes = shared_strokes.find(images[:_FEW], labels[:_FEW], parts)
    classes = int(labels.max()) + 1
    network = network_of(images.shape[1:], classes, parts, strokes)
    layer = network.get_layer("part_caps")
    layer.nothing_conv.bias.assign([4.0])  # nearly all places have nothing
    *_, presence = Beside(layer, "return_presence")(layer.input)
    training = keras.Model(network.input, presence)

    def loss(told: Any, presence: Any) -> Any:
        there = ops.clip(presence[..., :-1], 1e-6, 1.0 - 1e-6)
        told = ops.cast(told, "float32")
        rest = ops.where(told < 0.0, 0.0, ops.log(1.0 - there))
        logs = ops.where(told > 0.0, ops.log(there), rest)
        return -ops.sum(logs, axis=(1, 2, 3))

    rate = keras.optimizers.schedules.CosineDecay(
        4e-3, epochs * (len(labels) // _BATCH)
    )
    training.compile(keras.optimizers.Adam(rate), loss)
    counts = layer.output[1].shape[1:3]
    cells = strokes.cells(layer, counts, images, labels, parts)
    training.fit(images, cells, _BATCH, epochs, verbose=2)
    return network


def draw(network: Any, image: Any, row: Any, title: str, path: Path) -> None:
    """Draws the tree of an image: a character, components, and strokes."""
    import unicodedata

    import matplotlib.pyplot as plt
    import numpy as np

    from tfcaps import rem

    trees = [
        rem.trees(network, image[None], layer=layer)
        for layer in _LAYERS.values()
    ]
    edges = trees[1].parse_tree().edges
    names: list[Any] = [
        [
            n and unicodedata.name(n).split()[-1]
            for n in row["strokes"]["names"]
        ],
        row["components"]["names"],
    ]
    pairs = sorted(
        [e for e in edges if not e.layer],
        key=lambda e: (e.parent, trees[0].places[0, e.child, 1]),
    )
    where: dict[tuple[int, int], tuple[float, float]] = {}
    figure = plt.figure(figsize=(9, 5))
    lines = figure.add_axes((0, 0, 1, 1))
    lines.set(xlim=(0, 1), ylim=(0, 1))
    lines.set_axis_off()

    def node(layer: int, child: int, x: float, y: float, half: int) -> None:
        size = 0.11 + 0.07 * layer
        axis = figure.add_axes((x - size / 2, y - size / 2, size, size))
        padded = np.pad(image[..., 0], 24, constant_values=image.min())
        row, column = (24, 24)
        text = title
        if layer < 2:
            place = np.rint(trees[layer].places[0, child]).astype(int)
            row, column = place
            kind = trees[layer].types[child]
            text = f"{names[layer][kind]} ({kind})"
        side = slice(24 + row - half, 25 + row + half)
        axis.imshow(
            padded[side, 24 + column - half : 25 + column + half], "gray_r"
        )
        axis.set(xticks=[], yticks=[])
        axis.set_title(text, fontsize=9, pad=2)
        where[layer, child] = x, y

    parents = list(dict.fromkeys(e.parent for e in pairs))
    for n, edge in enumerate(pairs):
        node(0, edge.child, (n + 0.5) / len(pairs), 0.12, 8)
    for parent in parents:
        xs = [where[0, e.child][0] for e in pairs if e.parent == parent]
        node(1, parent, float(np.mean(xs)), 0.45, 12)
    node(2, int(trees[1].predicted[0]), 0.5, 0.83, 24)
    for edge in edges:
        ends = where[edge.layer, edge.child], where[edge.layer + 1, edge.parent]
        lines.plot(*zip(*ends, strict=True), color="tab:blue", lw=1)
    figure.savefig(path, dpi=80)


def page(rows: list[dict[str, Any]]) -> str:
    """Returns the table, in Markdown."""
    heads = ["seed", "images", "right, %", "unseen named, %", "layer"]
    table = [heads + [title for title, _ in _SHARES]]
    for row in sorted(rows, key=lambda row: row["seed"]):
        for name in _LAYERS:
            values = [row[name][key] for _, key in _SHARES]
            cells = [f"{value:.3g}" for value in values]
            of_all = [str(row["seed"]), str(row["tested"])]
            of_all += [f"{row[key]:.1f}" for key in ("right", "unseen")]
            table.append([*of_all, name, *cells])
    return f"# Strokes\n\n{_NOTE}\n\n{markdown(table, left=1)}\n"


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
