"""Measures and draws the named parts of photos, beside a plain linear head.

python -m examples.photos runs/cats-1 runs/cats-2 --to results/photos

measures finished runs of `training/run.py --rem --backbone` that differ by
their seed, writes named_parts.json and .md, and draws ten photos of the first.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli import Parser, check_installed, run_command, start_quietly
from examples import seeds
from markdown_table import table, write_tables

Array = NDArray[Any]

_COLUMNS = (
    ("data set", "{dataset}"),
    ("seed", "{seed}"),
    ("right, %", "{accuracy:.2f}"),
    ("linear head", "{linear:.2f}"),
    ("types exchanged", "{exchanged:.2f}"),
    ("trees by place, bits", "{bits_of_places:.2f}"),
    ("by type", "{bits:.2f}"),
    ("leaves", "{leaves:.1f}"),
    ("no leaf, %", "{empty:.1f}"),
    ("answer changes", "{changes:.3f}"),
    ("by chance", "{chance:.3f}"),
    ("random", "{changes_random:.3f}"),
    ("other active", "{changes_active:.3f}"),
    ("at the mean", "{changes_mean:.3f}"),
    ("shorter", "{shorter:.3f}"),
    ("in the map", "{in_map:.3f}"),
    ("random", "{in_map_random:.3f}"),
    ("sufficiency", "{sufficiency:.3f}"),
    ("random", "{sufficiency_random:.3f}"),
)
_ORDERS = 5  # in which types are exchanged
_MOST = 2000  # photos
_RIGHT, _WRONG = 6, 4  # of them are drawn


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.photos", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    return parser


def run(options: argparse.Namespace) -> None:
    """Measures the runs, and writes the table."""
    check_installed(data="sklearn PIL", viz="matplotlib")
    start_quietly()
    options.to.mkdir(parents=True, exist_ok=True)
    maps: dict[str, dict[str, Array]] = {}
    path = options.to / "named_parts"
    rows = []
    for number, folder in enumerate(options.runs):
        picture = None if number else path.with_suffix(".jpg")
        rows.append(measured(folder, maps, picture))
    path.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    write_tables(path.with_suffix(".md"), table(rows, _COLUMNS))
    print(table(rows, _COLUMNS))


def measured(
    run: Path, maps: dict[str, dict[str, Array]], picture: Path | None
) -> dict[str, Any]:
    """Measures a run.

    Args:
        run: Its folder.
        maps: The features of each data set, which are computed once.
        picture: Where photos are drawn, if they are.
    """
    from tfcaps import rem
    from training import datasets, features
    from training.folder import RunFolder

    folder = RunFolder.resume(run)
    config = folder.config
    data = datasets.load(
        config.dataset,
        config.data_dir,
        validation=config.validation,
        resize=config.resize,
    )
    if config.samples is not None:
        data = data.reduced(config.samples)
    model = folder.load_model(config.model_names[-1])
    kept = maps.setdefault(config.dataset, {})
    cached = features.cache_features(model, data, config, kept)
    head, known, unseen = cached.head, cached.data.train, cached.data.test
    # In an order of its own, as test images may come class by class.
    order = np.random.default_rng(0).permutation(len(unseen.labels))[:_MOST]
    images, labels = unseen.images[order], unseen.labels[order]
    trees = rem.trees(head, images, couplings=False)
    used = rem.faithfulness(head, (images, labels))
    in_map, in_map_random = blanked(head, images, trees)
    if picture is not None:
        draw(folder, data.test.take(order), data.class_names, trees, picture)
    return {
        "dataset": config.dataset,
        "seed": config.seed,
        "accuracy": seeds.percent_right(trees.lengths, labels),
        "linear": linear(known, unseen),
        "exchanged": exchanged(head, images, labels),
        "bits": entropy(trees, trees.slots),
        "bits_of_places": entropy(trees, trees.in_tree),
        "leaves": float(trees.leaves.mean()),
        "empty": 100 * float(np.mean(trees.leaves == 0)),
        "changes": used.answer_changes["zero"],
        "chance": used.answer_changes_chance,
        "changes_random": used.answer_changes_random["zero"],
        "changes_active": used.answer_changes_active["zero"],
        "changes_mean": used.answer_changes["mean"],
        "shorter": used.shorter["zero"],
        "in_map": in_map,
        "in_map_random": in_map_random,
        "sufficiency": used.sufficiency["zero"],
        "sufficiency_random": used.sufficiency_random["zero"],
    }


def entropy(trees: Any, keys: Array) -> float:
    """Returns the entropy of keys `[n, m]` in bits, the mean over classes."""
    from tfcaps import rem

    classes, predicted = np.unique(trees.predicted, return_inverse=True)
    dictionary = rem.CouplingDictionary(len(classes))
    dictionary.update(keys.astype("uint8"), predicted)
    return float(dictionary.entropy_bits.mean())


def exchanged(head: Any, maps: Array, labels: Array) -> float:
    """Returns how many are right, in percent, if types are exchanged."""
    conv = head.get_layer("part_caps").conv
    kernel, bias = conv.get_weights()
    right = []
    for seed in range(_ORDERS):
        order = np.random.default_rng(seed).permutation(len(bias))
        conv.set_weights([kernel[..., order], bias[order]])
        right.append(seeds.percent_right(head.predict(maps, verbose=0), labels))
    conv.set_weights([kernel, bias])
    return float(np.mean(right))


def blanked(head: Any, maps: Array, trees: Any) -> tuple[float, float]:
    """Returns how many answers change if the features of leaves are blanked.

    Cells of the map with a leaf become the mean of the images. Unlike where
    children are silenced, other places may then win. And if as many random
    cells are blanked.
    """
    mean = maps.mean(axis=0, dtype="float64").astype("float32")
    shape = (*maps.shape[:3], 1)
    cells = trees.in_tree.reshape(len(maps), -1, trees.num_types).any(axis=-1)

    def share(cells: Array) -> float:
        seen = np.where(cells.reshape(shape), mean, maps)
        lengths = head.predict(seen, verbose=0)
        return float(np.mean(lengths.argmax(axis=-1) != trees.predicted))

    return share(cells), share(np.random.default_rng(0).permuted(cells, axis=1))


def linear(train: Any, test: Any) -> float:
    """Returns how many a linear head on pooled features has right."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def pooled(maps: Any) -> Array:
        return np.stack([maps[k].mean(axis=(0, 1)) for k in range(len(maps))])

    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.003, max_iter=500)
    )
    model.fit(pooled(train.images), train.labels)
    return float(100 * model.score(pooled(test.images), test.labels))


def draw(folder: Any, photos: Any, classes: Any, trees: Any, to: Path) -> None:
    """Draws ten photos, not chosen but for being right or wrong."""
    wrong = trees.predicted != photos.labels
    rows = [*np.flatnonzero(~wrong)[:_RIGHT], *np.flatnonzero(wrong)[:_WRONG]]
    names = folder.type_names(trees.num_types)
    titles, leaves = [], []
    for k in rows:
        title = f"{classes[trees.predicted[k]]} {trees.lengths[k].max():.2f}"
        is_wrong = f", is a {classes[photos.labels[k]]}" if wrong[k] else ""
        titles.append(title + is_wrong)
        own = np.flatnonzero(trees.in_tree[k])
        leaves.append(
            [(trees.places[k, c], names[trees.types[c]]) for c in own]
        )
    images = photos.images[np.array(rows)]
    seeds.draw_trees(to, images, titles, wrong[rows], leaves)


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
