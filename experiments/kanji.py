"""Measures whether networks of parts name the components of kanji.

python experiments/kanji.py --seeds 1 2 3

trains as `training/run.py --dataset kanji` does, on fewer images. Labels are
characters alone. A line for each seed, which draws images and weights, is
written to results/named_parts/kanji.jsonl, and kanji.md made of it.
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
from markdown_table import table

_FOLDER = Path("results") / "named_parts"
_COLUMNS = (
    ("seed", "{seed}"),
    ("right, %", "{right:.1f}"),
    ("a plain CNN, %", "{plain:.1f}"),
    ("NMI", "{information:.3f}"),
    ("by chance", "{information_chance:.3f}"),
    ("parts found once, %", "{found_once:.1f}"),
    ("labelled F1", "{labelled_f1:.3f}"),
    ("by chance", "{labelled_f1_chance:.3f}"),
    ("of one name", "{labelled_f1_one:.3f}"),
    ("necessity", "{used[necessity][zero]:.3f}"),
    ("of others active", "{used[necessity_active][zero]:.3f}"),
    ("necessity, mean", "{used[necessity][mean]:.3f}"),
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
)
_BATCH = 64
# Added to the data seed of other images.
_OTHERS = 5000
_MOST = 1000  # images of a kind whose trees are measured
_USED = 400  # images whose trees are silenced
_POOL = 4  # rows and columns of places that the plain CNN takes together
_NOTES = (
    "One training for each seed, which draws images and weights. Labels are "
    "characters alone. The plain CNN has the same convolutions, a dense layer "
    "behind them and no more weights in all, and was trained alike. A type is "
    "named by the component on which most of its leaves lie in images that "
    "are neither trained on nor measured; all else is of test images, and of "
    "27 characters that are never trained. There a part is active, whatever "
    "the class. By chance: the true components of all images are shuffled. Of "
    "one name: every type is called by the most frequent component.",
    "Necessity: images that lose their class without their tree; of others "
    "active: without as many other active parts, the control, of which there "
    "are few. Sufficiency: images that keep their class with their tree "
    "alone; of the longest: with as many of the most active parts alone. In "
    "the tree: the same of the class that is predicted, which must be wrong "
    "here and has no place for some of the parts.",
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/kanji.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", required=True)
    add("--samples", type=int, default=14_000, help="a tenth is held out")
    add("--to", type=Path, default=_FOLDER, metavar="FOLDER")
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
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    known = {row["seed"]: row for row in map(json.loads, lines)}
    for seed in options.seeds:
        known[seed] = measured(options, seed)
        rows = [known[seed] for seed in sorted(known)]
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in rows), "utf-8"
        )
        parts = ("# Kanji", *_NOTES, table(rows, _COLUMNS))
        (options.to / "kanji.md").write_text("\n\n".join(parts) + "\n", "utf-8")


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains a network of one seed, and measures it."""
    import numpy as np

    from tfcaps import rem
    from training import presets
    from training.datasets import kanji
    from training.folder import environment

    data = kanji.generate(seed=seed, train=options.samples)
    config = dataclasses.replace(presets.load("kanji"), seed=seed)
    network = kept(options, f"kanji-{seed}", parts_of, data, config)
    pixels, labels = data.test.images[:], data.test.labels

    def right(model: Any) -> float:
        told = model.predict(pixels, batch_size=_BATCH, verbose=0)
        return 100 * float(np.mean(told.argmax(axis=1) == labels))

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
    masks: Any = others.masks
    known = looked_at(others.test.images[:], masks)()
    counts = np.array(known.table)
    kinds = np.where(counts.any(axis=1), counts.argmax(axis=1), -1)
    frequent = np.bincount(masks.kinds[masks.kinds >= 0]).argmax()
    one = np.full_like(kinds, frequent)
    if options.draw is not None:
        names = np.array([*kanji.COMPONENTS.values(), "?"])[kinds]
        draw(network, data, seed, names, options.draw)
    tested = looked_at(pixels, data.masks)
    found, chance = tested(kinds), tested(kinds, chance=True)
    (strange, _), made_of = kanji.unseen(seed)
    unseen = looked_at((strange / 255.0).astype("float32"), made_of)
    new = unseen(kinds, True)
    used = rem.faithfulness(
        network, pixels, samples=_USED, draws=2, batch_size=_BATCH
    )
    row = {
        "seed": seed,
        "epochs": config.epochs,
        "images": len(data.train.labels),
        "commit": environment()["commit"],
        "right": right(network),
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
        "used": used.to_dict(),
        "unseen": 100 * new.parts_named,
        "unseen_f1": new.labelled_f1,
        "unseen_chance": 100 * unseen(kinds, True, True).parts_named,
        "unseen_one": 100 * unseen(one, True).parts_named,
        "unseen_tree": 100 * unseen(kinds).parts_named,
    }
    print(json.dumps(row), flush=True)
    cnn = kept(options, f"plain-{seed}", plain_of, data, config, network)
    return {**row, "plain": right(cnn)}


def kept(options: argparse.Namespace, name: str, make: Any, *args: Any) -> Any:
    """Returns a trained network, of this training or of a former one."""
    import keras

    path = options.keep and options.keep / f"{name}.keras"
    if path is not None and path.exists():
        return keras.models.load_model(path, compile=False)
    network = make(*args)
    if path is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        network.save(path)
    return network


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
    batches = Batches(
        data.train.images,
        data.train.labels,
        config.batch_size,
        seed=config.seed,
    )
    rate = objectives.learning_rate(config, batches.num_batches)
    model.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    train.fit(model, batches, [], config.epochs)
    return model


def draw(network: Any, data: Any, seed: int, names: Any, path: Path) -> None:
    """Draws the trees of ten characters, and the parts of five others."""
    import matplotlib.pyplot as plt
    import numpy as np

    from tfcaps import rem
    from training.datasets import kanji

    # Of every tenth class the first test image.
    some = np.unique(data.test.labels, return_index=True)[1][::10]
    (strange, of), _ = kanji.unseen(seed, 27)
    images = np.concatenate([data.test.images[some], strange[:5] / 255.0])
    told = [data.class_names[data.test.labels[k]] for k in some]
    told += [kanji.read(kanji.UNSEEN[k]).name for k in of[:5]]
    trees = rem.trees(network, images.astype("float32"), couplings=False)
    figure, axes = plt.subplots(3, 5, figsize=(10, 7.4), layout="tight")
    for n, axis in enumerate(axes.flat):
        axis.imshow(images[n, ..., 0], cmap="gray")
        axis.set_axis_off()
        is_known = n < len(some)
        root = "?"
        if is_known:
            root = data.class_names[trees.predicted[n]]
        right = root in ("?", told[n])
        axis.set_title(
            root if is_known else f"no class; is {told[n]}",
            fontsize=10,
            color="black" if right else "crimson",
        )
        for child in np.flatnonzero(trees.activations[n] > 0.5):
            row, column = trees.places[n, child]
            leaf = trees.in_tree[n, child]
            if leaf and is_known:
                top = (images.shape[2] / 2, -1)
                line = zip(top, (column, row), strict=True)
                axis.plot(*line, color="tab:orange", clip_on=False, lw=1)
            axis.plot(column, row, "o" if leaf else "x", color="tab:orange")
            label = axis.annotate(
                names[trees.types[child]],
                (column, row),
                (0, 5),
                textcoords="offset points",
                color="white",
                ha="center",
                fontsize=9,
            )
            label.set_bbox({"facecolor": "tab:blue", "alpha": 0.7, "pad": 1})
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
