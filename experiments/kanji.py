"""Measures whether networks of parts name the components of kanji.

for n in 1 2 3; do
    python training/run.py --dataset kanji --seed $n --data-seed $n --bare \\
        --out runs/kanji-$n
done
python experiments/kanji.py runs/kanji-1 runs/kanji-2 runs/kanji-3

Labels are characters alone. A line for each run is added to
results/named_parts/kanji.jsonl, and kanji.md made of it.
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
    ("necessity", "{necessity:.3f}"),
    ("of others active", "{necessity_active:.3f}"),
    ("sufficiency", "{sufficiency:.3f}"),
    ("of the longest", "{sufficiency_longest:.3f}"),
    ("unseen named, %", "{unseen:.1f}"),
    ("by chance", "{unseen_chance:.1f}"),
    ("of one name", "{unseen_one:.1f}"),
    ("in the tree, %", "{unseen_tree:.1f}"),
    ("types", "{types}"),
    ("images", "{images}"),
    ("epochs", "{epochs}"),
    ("seconds", "{seconds:.0f}"),
)
_BATCH = 64
# Added to the data seed of other images.
_OTHERS = 5000
_MOST = 1000  # images of a kind whose trees are measured
_POOL = 4  # rows and columns of places that the plain CNN takes together
_NOTE = (
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
    add("runs", nargs="+", type=Path, metavar="RUN")
    add("--to", type=Path, default=_FOLDER, metavar="FOLDER")
    add("--draw", type=Path, metavar="FILE", help="draw fifteen trees")
    return parser


def run(options: argparse.Namespace) -> None:
    """Measures the runs, and writes the table."""
    start_quietly()
    import tfcaps

    tfcaps.keep_memory()
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "kanji.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    rows = {row["seed"]: row for row in map(json.loads, lines)}
    for number, each in enumerate(options.runs):
        row = measured(each, None if number else options.draw)
        print(json.dumps(row), flush=True)
        rows[row["seed"]] = row
        sorted_rows = [rows[seed] for seed in sorted(rows)]
        text = "".join(json.dumps(row) + "\n" for row in sorted_rows)
        path.write_text(text, "utf-8")
        parts = ("# Kanji", *_NOTE, table(sorted_rows, _COLUMNS))
        (options.to / "kanji.md").write_text("\n\n".join(parts) + "\n", "utf-8")


def measured(path: Path, drawn: Path | None) -> dict[str, Any]:
    """Returns what is measured of a run."""
    import numpy as np

    from tfcaps import rem
    from training.datasets import kanji, load
    from training.folder import RunFolder

    folder = RunFolder.open(path)
    config = folder.config
    seed = config.data_seed
    data = load("kanji", validation=config.validation, seed=seed)
    if config.samples is not None:
        data = data.reduced(config.samples)
    network = folder.load_model(config.model_names[-1])
    report = json.loads((path / "rem.json").read_text("utf-8"))
    used = report["models"][config.model_names[-1]]

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
    names = np.array([*kanji.COMPONENTS.values(), "?"])[kinds]
    if drawn is not None:
        draw(network, data, names, drawn)
    pixels, labels = data.test.images[:], data.test.labels
    tested = looked_at(pixels, data.masks)
    found, chance = tested(kinds), tested(kinds, chance=True)
    (strange, _), made_of = kanji.unseen(seed)
    unseen = looked_at((strange / 255.0).astype("float32"), made_of)
    predicted = network.predict(pixels, verbose=0).argmax(axis=1)
    return {
        "seed": config.seed,
        "epochs": config.epochs,
        "images": len(data.train.labels),
        "right": 100 * float(np.mean(predicted == labels)),
        "plain": plain(folder, network, data),
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
        **{
            name: used[name]["zero"]
            for name in (
                "necessity",
                "necessity_random",
                "necessity_active",
                "sufficiency",
                "sufficiency_random",
                "sufficiency_longest",
            )
        },
        "unseen": 100 * unseen(kinds, True).parts_named,
        "unseen_f1": unseen(kinds, True).labelled_f1,
        "unseen_chance": 100 * unseen(kinds, True, True).parts_named,
        "unseen_one": 100 * unseen(one, True).parts_named,
        "unseen_tree": 100 * unseen(kinds).parts_named,
        "seconds": report["seconds"],
        "commit": json.loads((path / "environment.json").read_text("utf-8"))[
            "commit"
        ],
    }


def plain(folder: Any, network: Any, data: Any) -> float:
    """Returns the accuracy of a plain CNN of equal size, trained alike."""
    import keras
    import numpy as np

    from training import objectives, train
    from training.batches import Batches

    config = folder.config
    path = folder.path / "plain.keras"
    if not path.exists():
        keras.utils.set_random_seed(config.seed)
        below = keras.models.clone_model(
            keras.Model(network.input, network.get_layer("part_caps").input)
        )
        _, rows, columns, _ = below.output.shape
        # As many channels as leave no more weights than the network has.
        left = network.count_params() - below.count_params() - data.num_classes
        each = (rows // _POOL) * (columns // _POOL) * data.num_classes
        channels = left // (below.output.shape[-1] + 1 + each)
        few = keras.layers.Conv2D(channels, 1)(below.output)
        pooled = keras.layers.MaxPooling2D(_POOL)(few)
        flat = keras.layers.Flatten()(pooled)
        scores = keras.layers.Dense(data.num_classes)(flat)
        model = keras.Model(below.input, scores)
        batches = Batches(*data.train, config.batch_size, seed=config.seed)
        rate = objectives.learning_rate(config, batches.num_batches)
        model.compile(
            keras.optimizers.Adam(rate),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        train.fit(model, batches, [], config.epochs)
        model.save(path)
    model = keras.models.load_model(path)
    predicted = model.predict(data.test.images[:], verbose=0).argmax(axis=1)
    return 100 * float(np.mean(predicted == data.test.labels))


def draw(network: Any, data: Any, names: Any, path: Path) -> None:
    """Draws the trees of ten characters, and the parts of five others."""
    import matplotlib.pyplot as plt
    import numpy as np

    from tfcaps import rem
    from training.datasets import kanji

    # Of every tenth class the first test image.
    some = np.unique(data.test.labels, return_index=True)[1][::10]
    (strange, of), _ = kanji.unseen(0, 27)
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
