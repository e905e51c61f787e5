"""Trains networks of parts on kanji, and measures whether they name components.

python experiments/kanji.py --seeds 1 2 3

Labels are characters alone. A line for each seed, which draws images and
weights, is added to results/named_parts/kanji.jsonl, and kanji.md made of it.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, run_command, start_quietly
from markdown_table import markdown

_FOLDER = Path("results") / "named_parts"
_COLUMNS = (
    ("right, %", "right", 1),
    ("a plain CNN, %", "plain", 1),
    ("NMI", "information", 3),
    ("by chance", "information_chance", 3),
    ("parts found once, %", "found_once", 1),
    ("labelled F1", "labelled_f1", 3),
    ("by chance", "labelled_f1_chance", 3),
    ("of one name", "labelled_f1_one", 3),
    ("unseen named, %", "unseen", 1),
    ("by chance", "unseen_chance", 1),
    ("of one name", "unseen_one", 1),
    ("in the tree, %", "unseen_tree", 1),
    ("types", "types", 0),
    ("images", "samples", 0),
    ("epochs", "epochs", 0),
    ("seconds", "seconds", 0),
)
_FEW = 6000  # images from which parts are found
_BATCH = 64
# Added to the seed of other images.
_OTHERS = 5000
_MOST = 1000  # images of a kind whose trees are measured
# What a part adds to the evidence must outweigh a hundred classes.
_EPSILON = 1e-4
_SOFT = 0.65  # of the epochs; then competition is hard
_NOTE = (
    "One training for each seed, which draws images and weights. Labels are "
    "characters alone. A type is named by the component on which most of its "
    "leaves lie in images that are neither trained on nor measured; all else "
    "is of test images, and of 27 characters that are never trained. There a "
    "part is active, whatever the class (in the tree: of the class that "
    "is wrongly predicted). By "
    "chance: the true components of all images are shuffled. Of one name: "
    "every type is called by the most frequent component."
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/kanji.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", required=True)
    add("--epochs", type=int, default=6)
    add("--samples", type=int, default=20_000, help="images, 100 a character")
    add("--to", type=Path, default=_FOLDER, metavar="FOLDER")
    add("--plain", type=int, default=2, help="epochs of a plain CNN")
    add("--draw", type=Path, metavar="FILE", help="draw fifteen trees")
    add(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="networks are saved there, and taken from there",
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Trains, measures, and writes the table."""
    start_quietly()
    import tfcaps

    tfcaps.keep_memory()
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "kanji.jsonl"
    for seed in options.seeds:
        row = measured(options, seed)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    (options.to / "kanji.md").write_text(page(rows), "utf-8")


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains a network of one seed, and measures it."""
    import keras
    import numpy as np

    from tfcaps import rem
    from training.datasets import kanji

    begun = time.perf_counter()
    data = kanji.generate(seed=seed, train=options.samples)
    kept = options.keep and options.keep / f"kanji-{seed}.keras"
    if kept is not None and kept.exists():
        network = keras.models.load_model(kept)
    else:
        images = np.asarray(data.train.images[:], "float32")
        network = trained(images, data.train.labels, options.epochs, seed)
        if kept is not None:
            network.save(kept)
    seconds = time.perf_counter() - begun

    def looked_at(images: Any, masks: Any) -> Any:
        """Returns what measures trees of these images, or active parts."""
        trees = rem.trees(
            network, images[:_MOST], couplings=False, batch_size=_BATCH
        )
        masks = masks[:_MOST]
        active = dataclasses.replace(trees, in_tree=trees.activations > 0.5)
        there = masks.kinds >= 0
        shuffled = masks.kinds.copy()
        shuffled[there] = np.random.default_rng(0).permutation(shuffled[there])

        def named(
            type_kinds: Any = None,
            all_active: bool = False,
            chance: bool = False,
        ) -> Any:
            return rem.named_parts(
                active if all_active else trees,
                masks.parts,
                kinds=shuffled if chance else masks.kinds,
                type_kinds=type_kinds,
                reach=None,
            )

        return named

    # Types are named on images that are neither trained on nor measured.
    others = kanji.generate(seed=seed + _OTHERS, train=100)
    data_masks: Any = data.masks  # they are drawn
    masks: Any = others.masks
    known = looked_at(others.test.images[:], masks)()
    table = np.array(known.table)
    kinds = np.where(table.any(axis=1), table.argmax(axis=1), -1)
    frequent = np.bincount(masks.kinds[masks.kinds >= 0]).argmax()
    one = np.full_like(kinds, frequent)
    pixels = data.test.images[:]
    if options.draw is not None:
        unknown, _ = kanji.unseen(seed, 27)
        some = np.unique(data.test.labels, return_index=True)[1][::10]
        pictures = np.concatenate([pixels[some], unknown[0][:5] / 255.0])
        draw(
            network,
            pictures,
            np.array([*data_masks.kind_names, "?"])[kinds],
            options.draw,
        )
    tested = looked_at(pixels, data_masks)
    found, chance = tested(kinds), tested(kinds, chance=True)
    (strange, _), made_of = kanji.unseen(seed)
    unseen = looked_at((strange / 255.0).astype("float32"), made_of)
    new = unseen(kinds, all_active=True)
    predicted = network.predict(pixels, verbose=0).argmax(axis=1)
    return {
        "seed": seed,
        "epochs": options.epochs,
        "samples": options.samples,
        "right": 100 * float(np.mean(predicted == data.test.labels)),
        "plain": plain(network, data, seed, options.plain),
        "types": found.types,
        "information": found.information,
        "information_chance": chance.information,
        "purity": found.purity,
        "found_once": 100 * found.found_once,
        "parts_named": found.parts_named,
        "labelled_f1": found.labelled_f1,
        "labelled_f1_chance": chance.labelled_f1,
        "labelled_f1_one": tested(one).labelled_f1,
        "leaves": found.leaves,
        "perfect": found.perfect,
        "unseen": 100 * new.parts_named,
        "unseen_f1": new.labelled_f1,
        "unseen_chance": 100 * unseen(kinds, True, True).parts_named,
        "unseen_one": 100 * unseen(one, True).parts_named,
        "unseen_tree": 100 * unseen(kinds).parts_named,
        "seconds": seconds,
    }


def trained(images: Any, labels: Any, epochs: int, seed: int) -> Any:
    """Returns a network of parts, trained on labels of characters."""
    import keras

    import tfcaps
    from tfcaps import shared_parts

    keras.utils.set_random_seed(seed)
    parts = shared_parts.find(images[:_FEW], labels[:_FEW])
    network = tfcaps.models.constellation_capsnet(
        images.shape[1:],
        int(labels.max()) + 1,
        parts.num_types,
        filters=(16, 32, 48, 48, 64),
        kernel_size=3,
        strides=(2, 1, 2, 1, 1),
        parts=parts.most,
        routing=tfcaps.routing.MeanShiftRouting(width=3.0, epsilon=_EPSILON),
    )
    parts.begin(network)
    told = tfcaps.models.with_templates(network).output
    told = {name: told[name] for name in ("evidence", "presence")}
    training = keras.Model(network.input, told)
    rate = keras.optimizers.schedules.CosineDecay(
        3e-3, epochs * (len(labels) // 32)
    )
    cells = parts.cells(network, images, labels)
    training.compile(
        keras.optimizers.Adam(rate),
        {
            "evidence": tfcaps.losses.EvidenceLoss(generative=0.0),
            "presence": keras.losses.SparseCategoricalCrossentropy(
                ignore_class=-1
            ),
        },
        loss_weights={"evidence": 0.3, "presence": cells[0].size},
    )

    def harden(epoch: int, logs: Any) -> None:
        hard = epoch >= round(_SOFT * epochs)
        network.get_layer("part_caps").hardness.assign(float(hard))

    training.fit(
        images,
        {"evidence": labels, "presence": cells},
        batch_size=32,
        epochs=epochs,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=harden)],
        verbose=2,
    )
    return network


def plain(network: Any, data: Any, seed: int, epochs: int) -> float | None:
    """Returns the accuracy of the same convolutions with a dense layer."""
    if not epochs:
        return None
    import keras
    import numpy as np

    keras.utils.set_random_seed(seed)
    features = keras.models.clone_model(
        keras.Model(network.input, network.get_layer("part_caps").input)
    )
    pooled = keras.layers.MaxPooling2D(2)(features.output)
    flat = keras.layers.Flatten()(pooled)
    scores = keras.layers.Dense(data.num_classes)(flat)
    model = keras.Model(features.input, scores)
    steps = epochs * (len(data.train.labels) // 32)
    rate = keras.optimizers.schedules.CosineDecay(3e-3, steps)
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    images = np.asarray(data.train.images[:], "float32")
    model.fit(images, data.train.labels, 32, epochs, verbose=0)
    predicted = model.predict(data.test.images[:], verbose=0).argmax(axis=1)
    return 100 * float(np.mean(predicted == data.test.labels))


def draw(network: Any, images: Any, names: Any, path: Path) -> None:
    """Draws images with the names and places of their active parts."""
    import matplotlib.pyplot as plt
    import numpy as np

    from tfcaps import rem

    trees = rem.trees(network, images.astype("float32"), couplings=False)
    figure, axes = plt.subplots(3, 5, figsize=(10, 6.6), layout="tight")
    for n, axis in enumerate(axes.flat):
        axis.imshow(images[n, ..., 0], cmap="gray")
        axis.set_axis_off()
        for child in np.flatnonzero(trees.activations[n] > 0.5):
            row, column = trees.places[n, child]
            name, leaf = names[trees.types[child]], trees.in_tree[n, child]
            axis.plot(column, row, "o" if leaf else "x", color="tab:orange")
            told = axis.annotate(
                name,
                (column, row),
                (0, 5),
                textcoords="offset points",
                color="white",
                ha="center",
                fontsize=9,
            )
            told.set_bbox({"facecolor": "tab:blue", "alpha": 0.7, "pad": 1})
        if n == 10:
            axis.set_title("never trained", loc="left")
    figure.savefig(path, dpi=80)


def page(rows: list[dict[str, Any]]) -> str:
    """Returns the table, in Markdown."""
    table = [["seed", *(title for title, *_ in _COLUMNS)]]
    for row in sorted(rows, key=lambda row: row["seed"]):
        values = [(row[field], digits) for _, field, digits in _COLUMNS]
        cells = ["–" if v is None else f"{v:.{d}f}" for v, d in values]
        table.append([str(row["seed"]), *cells])
    return f"# Kanji\n\n{_NOTE}\n\n{markdown(table, left=1)}\n"


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
