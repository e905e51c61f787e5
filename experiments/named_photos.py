"""Measures and draws the named parts of photos, beside a plain linear head.

python experiments/named_photos.py runs/cats-1 runs/cats-2 --to results/photos

measures finished runs of `training/run.py --rem --backbone` that differ by
their seed, writes named_parts.json and .md, and draws ten photos of the first.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from numpy.typing import NDArray

from cli import Parser, check_installed, start_quietly
from markdown_table import table

Array = NDArray[Any]

_COLUMNS = (
    ("data set", "{dataset}"),
    ("seed", "{seed}"),
    ("right, %", "{accuracy:.2f}"),
    ("linear head", "{linear:.2f}"),
    ("types exchanged", "{exchanged:.2f}"),
    ("bits of types", "{bits:.2f}"),
    ("of places", "{bits_of_places:.2f}"),
    ("leaves", "{leaves:.1f}"),
    ("no leaf, %", "{empty:.1f}"),
    ("necessity", "{necessity:.3f}"),
    ("random", "{random:.3f}"),
    ("other active", "{active:.3f}"),
    ("in the map", "{in_map:.3f}"),
    ("random", "{in_map_random:.3f}"),
    ("sufficiency", "{sufficiency:.3f}"),
    ("random", "{sufficiency_random:.3f}"),
)
# Orders in which types are exchanged.
_ORDERS = 5
_RIGHT, _WRONG = 6, 4


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/named_photos.py", description=__doc__.splitlines()[0]
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    return parser


def entropy(trees: Any, keys: Array) -> float:
    """Returns the entropy of keys `[n, m]` in bits, the mean over classes."""
    bits = []
    for j in np.unique(trees.predicted):
        of_class = keys[trees.predicted == j]
        counts = np.unique(of_class, axis=0, return_counts=True)[1]
        shares = counts / counts.sum()
        bits.append(float(-np.sum(shares * np.log2(shares))))
    return float(np.mean(bits))


def exchanged(head: Any, maps: Array, labels: Array) -> float:
    """Returns how many are right, in percent, if types are exchanged."""
    conv = head.get_layer("part_caps").conv
    kernel, bias = conv.get_weights()
    right = []
    for seed in range(_ORDERS):
        order = np.random.default_rng(seed).permutation(len(bias))
        conv.set_weights([kernel[..., order], bias[order]])
        told = head.predict(maps, verbose=0).argmax(axis=1)
        right.append(np.mean(told == labels))
    conv.set_weights([kernel, bias])
    return float(100 * np.mean(right))


def blanked(head: Any, maps: Array, trees: Any) -> tuple[float, float]:
    """Returns how many lose their class if the features of leaves are blanked.

    Cells of the map with a leaf become the mean of the images. Unlike where
    children are silenced, other places may then win. And if as many random
    cells are blanked.
    """
    from tfcaps.rem.evaluation.faithfulness import lost, of_class

    mean = maps.mean(axis=0, dtype="float64").astype("float32")
    inside = trees.in_tree.reshape(*maps.shape[:3], -1).any(axis=-1)
    order = np.random.default_rng(0)
    before = of_class(trees.lengths, trees.predicted)
    shares = []
    for cells in (
        inside,
        order.permuted(inside.reshape(len(maps), -1), axis=1),
    ):
        cells = cells.reshape(*maps.shape[:3], 1)
        lengths = head.predict(np.where(cells, mean, maps), verbose=0)
        shares.append(float(np.mean(lost(lengths, trees.predicted, before))))
    return shares[0], shares[1]


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


def measure(run: Path, kept: dict[str, dict[str, Array]]) -> dict[str, Any]:
    """Returns what is measured of a run; features of a data set are kept."""
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
    maps = kept.setdefault(config.dataset, {})
    cached = features.cache_features(model, data, config, maps)
    head, (seen, labels) = cached.head, cached.data.test
    # In an order of its own, as test images may come class by class.
    order = np.random.default_rng(0).permutation(len(labels))[:2000]
    images, labels = seen[order], labels[order]
    trees = rem.trees(head, images, couplings=False)
    used = rem.faithfulness(head, (images, labels))
    in_map = blanked(head, images, trees)
    return {
        "dataset": config.dataset,
        "seed": config.seed,
        "accuracy": 100 * float(np.mean(trees.predicted == labels)),
        "linear": linear(cached.data.train, cached.data.test),
        "exchanged": exchanged(head, images, labels),
        "bits": entropy(trees, trees.slots),
        "bits_of_places": entropy(trees, trees.in_tree),
        "leaves": float(trees.leaves.mean()),
        "empty": 100 * float(np.mean(trees.leaves == 0)),
        "necessity": used.necessity["zero"],
        "random": used.necessity_random["zero"],
        "active": used.necessity_active["zero"],
        "in_map": in_map[0],
        "in_map_random": in_map[1],
        "sufficiency": used.sufficiency["zero"],
        "sufficiency_random": used.sufficiency_random["zero"],
        "drawn": (folder, data, trees, order),
    }


def choose(trees: Any, labels: Array) -> Array:
    """Returns the first images that are right, and that are wrong."""
    right = trees.predicted == labels
    return np.concatenate(
        [np.flatnonzero(right)[:_RIGHT], np.flatnonzero(~right)[:_WRONG]]
    )


def draw(folder: Any, data: Any, trees: Any, order: Array, path: Path) -> None:
    """Draws ten photos, not chosen but for being right or wrong."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch, Rectangle

    from training.figures import names_of_types

    labels = data.test.labels[order]
    names = names_of_types(folder, trees.num_types)
    colours = [f"C{t}" for t in range(trees.num_types)]
    rows = choose(trees, labels)
    figure, axes = plt.subplots(2, 5, figsize=(10, 5.1))
    step = np.sqrt(np.prod(data.image_shape[:2]) / (trees.in_tree.shape[1]))
    step *= np.sqrt(trees.num_types)
    for axis, k in zip(axes.flat, rows, strict=False):
        axis.imshow(data.test.images[order[k : k + 1]][0])
        axis.axis("off")
        told = data.class_names[trees.predicted[k]]
        true = data.class_names[labels[k]]
        is_right = told == true
        length = trees.lengths[k].max()
        title = f"{told} {length:.2f}" + ("" if is_right else f", is a {true}")
        axis.set_title(
            title, fontsize=9, color="black" if is_right else "crimson"
        )
        for child in np.flatnonzero(trees.in_tree[k]):
            down, right = trees.places[k, child] - step / 2 + 0.5
            colour = colours[trees.types[child]]
            axis.add_patch(
                Rectangle(
                    (right, down), step, step, fill=False, ec=colour, lw=1.8
                )
            )
    figure.legend(
        handles=[
            Patch(fill=False, ec=colour, lw=2, label=name)
            for name, colour in zip(names, colours, strict=True)
        ],
        loc="lower center",
        ncols=min(len(names), 6),
        fontsize=9,
        frameon=False,
    )
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=80, pil_kwargs={"quality": 80})
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures the runs that the arguments name."""
    options: argparse.Namespace = make_parser().parse_args(argv)
    check_installed(data="sklearn PIL", viz="matplotlib")
    start_quietly()
    kept: dict[str, dict[str, Array]] = {}
    found = [measure(run, kept) for run in options.runs]
    options.to.mkdir(parents=True, exist_ok=True)
    folder, data, trees, order = found[0]["drawn"]
    draw(folder, data, trees, order, options.to / "named_parts.jpg")
    rows = [{k: v for k, v in row.items() if k != "drawn"} for row in found]
    path = options.to / "named_parts"
    path.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    text = table(rows, _COLUMNS) + "\n"
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
