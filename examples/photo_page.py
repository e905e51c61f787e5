"""Draws test photos of a run with their leaves, and what each type stands on.

python -m examples.photo_page runs/cats --cache CACHE --to docs/guides

draws photos that are taken at random into photos_trees.jpg: the leaves with
their windows, and beside each photo the same one without these, with what the
network says then. photos_types.jpg has crops of each type, the most active ones
and random ones, of all test photos, whose features the cache keeps;
photos_field.jpg what a place of the backbone's map sees, on the whole photo and
in windows.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli import Parser, check_installed, run_command, start_quietly

Array = NDArray[Any]

_SHOWN, _COLUMNS, _CROPS = 20, 5, 12
_WINDOW = 0.35  # of a side, as in `rem.pixel_faithfulness`
_FIELDS = 6  # photos on which fields are drawn


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.photo_page", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    return parser


def run(options: argparse.Namespace) -> None:
    """Draws the pictures."""
    check_installed(data="PIL", viz="matplotlib")
    start_quietly("tensorflow")  # whose gradients are drawn
    from tfcaps import graphs, rem
    from training import datasets
    from training.folder import RunFolder

    folder = RunFolder.resume(options.run)
    config = folder.config
    data = datasets.of_run(config)
    images, labels = data.test
    model: Any = folder.load_model(config.model_names[-1])
    maps = model.maps(images, options.cache)["local"]
    _, head = graphs.split(model, model.get_layer("backbone"))
    trees = rem.trees(head, maps, couplings=False, batch_size=64)
    options.to.mkdir(parents=True, exist_ok=True)
    # Test photos may come class by class.
    some = np.random.default_rng(0).permutation(len(labels))[:_SHOWN]
    shown = (images[some], trees[some], labels[some])
    draw_trees(options.to, model, *shown, data.class_names)
    draw_types(options.to, images[:], trees)
    draw_fields(options.to, model, images[some[:_FIELDS]])


def in_windows(trees: Any, images: Array) -> NDArray[np.bool_]:
    """Tells which pixels are in the windows of leaves, `[n, h, w, 1]`."""
    masks = np.zeros((*images.shape[:3], 1), bool)
    for k, (places, inside) in enumerate(
        zip(trees.places, trees.in_tree, strict=True)
    ):
        for low, high in map(borders(images), places[inside]):
            masks[k, low[0] : high[0], low[1] : high[1]] = True
    return masks


def borders(images: Array) -> Any:
    """Returns a function from a place to the borders of its window."""
    sides = np.array(images.shape[1:3])

    def around(place: Array) -> tuple[Array, Array]:
        half = _WINDOW * sides / 2
        low = np.ceil(place - half).clip(0, sides).astype(int)
        return low, np.ceil(place + half).clip(0, sides).astype(int)

    return around


def draw_trees(
    to: Path,
    model: Any,
    images: Array,
    trees: Any,
    labels: Array,
    names: tuple[str, ...],
) -> None:
    """Draws photos with the windows of their leaves, and without these."""
    import matplotlib.pyplot as plt

    mask = in_windows(trees, images)
    without = np.where(mask, images.mean(axis=(0, 1, 2)), images)
    answers = [trees.predicted]
    answers += [
        model.predict(seen, batch_size=4, verbose=0).argmax(axis=-1)
        for seen in (without.astype("f4"),)
    ]
    count = -(-len(images) // _COLUMNS)
    figure, axes = plt.subplots(
        count, 2 * _COLUMNS, figsize=(12, 1.42 * count + 0.5)
    )
    figure.suptitle(
        "Test photos drawn at random, with the windows of the leaves (their "
        "colour: the type of part), and without them. Above: what the network "
        "says; red: wrong.",
        fontsize=9,
    )
    for panel in axes.flat:
        panel.set_axis_off()
    for k, panels in enumerate(axes.reshape(-1, 2)):
        for panel, seen, answer in zip(
            panels, (images, without), answers, strict=True
        ):
            panel.imshow(seen[k].clip(0, 1))
            panel.set_title(
                names[answer[k]],
                fontsize=8,
                pad=2,
                color="k" if answer[k] == labels[k] else "crimson",
            )
        for child in np.flatnonzero(trees.in_tree[k]):
            low, high = borders(images)(trees.places[k, child])
            tint = f"C{trees.types[child] % 10}"
            size = (high - low)[::-1] - 1
            panels[0].add_patch(
                plt.Rectangle(low[::-1], *size, ec=tint, fc="none", lw=1.2)
            )
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.93, 0.03, 0.16)
    save(figure, to / "photos_trees.jpg")


def draw_types(to: Path, images: Array, trees: Any) -> None:
    """Draws the most active leaves of each type, and random ones."""
    import matplotlib.pyplot as plt

    from tfcaps import rem

    window = round(_WINDOW * min(images.shape[1:3])) // 2 * 2 + 1
    strength = np.where(trees.in_tree, trees.activations, -1.0)
    most = np.zeros_like(trees.in_tree)
    for kind in range(trees.num_types):
        of_kind = np.where(trees.types == kind, strength, -1.0)
        best = np.argsort(-of_kind, axis=None)[:_CROPS]
        best = best[of_kind.ravel()[best] > 0]
        most.ravel()[best] = True
    groups = {
        "most active": dataclasses.replace(trees, in_tree=most),
        "at random": trees,
    }
    crops = [
        rem.part_pictures(images, each, window, count=_CROPS)
        for each in groups.values()
    ]
    figure, axes = plt.subplots(
        trees.num_types,
        2 * _CROPS + 1,
        figsize=(12, 0.48 * trees.num_types + 0.3),
        gridspec_kw={"width_ratios": [1] * _CROPS + [0.4] + [1] * _CROPS},
    )
    for panel in axes.flat:
        panel.set_axis_off()
    for kind, row in enumerate(axes):
        both = np.concatenate([each[kind] for each in crops])
        shown = [*row[:_CROPS], *row[_CROPS + 1 :]]
        for panel, crop in zip(shown, both, strict=True):
            panel.imshow(np.nan_to_num(crop, nan=1.0).clip(0, 1))
        row[0].text(
            *(-0.15, 0.5, str(kind)),
            color=f"C{kind % 10}",
            weight="bold",
            ha="right",
            va="center",
            transform=row[0].transAxes,
        )
    for column, title in zip((0, _CROPS + 1), groups, strict=True):
        axes[0, column].set_title(
            f"leaves of each type, {title}", fontsize=8, loc="left", pad=3
        )
    figure.subplots_adjust(0.025, 0.005, 0.995, 0.94, 0.04, 0.04)
    save(figure, to / "photos_types.jpg")


def draw_fields(to: Path, model: Any, images: Array) -> None:
    """Draws how much pixels move the features of the middle place.

    That is the mean size of gradients of random sums of the features, in the
    map of whole photos and in that of windows.
    """
    import keras
    import matplotlib.pyplot as plt
    import tensorflow as tf

    layer = model.get_layer("backbone")
    sides = tuple(layer.sides)
    seen = keras.ops.image.resize(images, sides, data_format="channels_last")
    row, column = (n // 2 for n in layer.grid)
    maps = {
        "map of the whole photo": lambda x: layer.whole()(x)[0],
        "map of windows": layer,
    }
    draw = np.random.default_rng(0)
    figure, axes = plt.subplots(
        1, 1 + len(maps), figsize=(3 * (1 + len(maps)), 3.2)
    )
    axes[0].imshow(keras.ops.convert_to_numpy(seen)[0].clip(0, 1))
    axes[0].set_title("a photo", fontsize=9)
    for panel, (title, make) in zip(axes[1:], maps.items(), strict=True):
        field: Any = 0.0
        for image in np.asarray(seen):
            pixels = tf.Variable(image[None])
            with tf.GradientTape() as tape:
                at = make(pixels)[0, row, column]
                total = tf.reduce_sum(at * draw.normal(size=at.shape[-1]))
            slope = tape.gradient(total, pixels)
            field = field + np.abs(np.asarray(slope)[0]).sum(axis=-1)
        panel.imshow(np.sqrt(field / field.max()), cmap="magma")
        share = np.mean(field > 0.01 * field.max())
        panel.set_title(f"{title}: {share:.0%} of the pixels", fontsize=9)
    for panel in axes:
        panel.set_axis_off()
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.92, 0.03, 0.03)
    save(figure, to / "photos_field.jpg")


def save(figure: Any, path: Path) -> None:
    """Writes a figure as a small JPEG."""
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110, pil_kwargs={"quality": 80})
    plt.close(figure)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
