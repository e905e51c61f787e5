"""Draws parse trees, what they look at, and saliency maps of own images.

python training/explain.py --run runs/digits-rem three.png

Writes `explained/parse_trees.png` into the run folder, `tree_fields.png` with
the parts of the image that a tree's children see, and `saliency.png` if the
children of the class capsules have positions; beside each its data as JSON.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

# The repository's own folders, wherever the command is called from.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    from training.quiet import start_quietly

    start_quietly()

import keras  # noqa: E402
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

import tfcaps  # noqa: E402, F401 (registers the layers)
from tfcaps import rem, viz  # noqa: E402
from tfcaps.cli import Parser, UserError, run_command  # noqa: E402
from training import images as pixels  # noqa: E402
from training.batches import to_float  # noqa: E402
from training.folder import RunFolder  # noqa: E402

_MODES = {1: "L", 3: "RGB"}
# More panels than this would be too small to read.
_MOST = 12


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="training/explain.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--run", required=True, type=Path, help="run folder that is finished")
    add(
        "images",
        nargs="+",
        type=Path,
        metavar="IMAGE",
        help=f"picture file, at most {_MOST} of them",
    )
    add(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where the pictures go (default: explained/ in the run folder)",
    )
    add(
        "--invert",
        action="store_true",
        help="swap dark and bright, for dark digits on a white page",
    )
    return parser


def explain(options: argparse.Namespace) -> None:
    """Draws the images' parse trees and prints what was recognised."""
    if len(options.images) > _MOST:
        raise UserError(
            f"{len(options.images)} images were given; at most {_MOST} fit "
            "into a picture."
        )
    folder = RunFolder.open(options.run)
    config, names = folder.config, folder.class_names()
    model = rem.encoder(folder.load_model(config.model_names[-1]))
    shape = next(t for t in model.inputs if t.name == "images").shape[1:]
    images = to_float(
        np.stack(
            [_read(path, shape, options.invert) for path in options.images]
        )
    )
    trees = rem.ParseTrees(model, levels=config.levels, mode=config.mode)
    shown = rem.explanation(
        rem.quantize_couplings(model, config.levels, mode=config.mode)
    )(images)
    shown = {
        name: keras.ops.convert_to_numpy(value) for name, value in shown.items()
    }
    classes = [names[j] for j in shown["classes"]]
    drawings = {
        "parse_trees": viz.parse_tree(
            {
                f"{path.name}: {recognised}": tree
                for path, recognised, tree in zip(
                    _told_apart(options.images),
                    classes,
                    trees.each(images),
                    strict=True,
                )
            },
            images=images,
            class_names=names,
        ),
        "tree_fields": viz.tree_fields(
            images,
            rem.tree_fields(
                model, images, levels=config.levels, mode=config.mode
            ),
            class_names=names,
        ),
    }
    if "saliency" in shown:
        drawings["saliency"] = viz.saliency(
            images, {config.model: shown}, class_names=names
        )
    for path, recognised, lengths, same in zip(
        options.images,
        classes,
        shown["lengths"],
        _same_trees(folder, model, images),
        strict=True,
    ):
        print(f"{path}: {recognised} (length {lengths.max():.2f}); {same}")
    out = options.out or options.run / "explained"
    out.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.items():
        print(drawing.save(out / name))


def _read(path: Path, shape: Any, invert: bool) -> Any:
    rows, columns, channels = shape
    if channels not in _MODES:
        raise UserError(
            f"the network takes images of {channels} channels, which no "
            "picture file has."
        )
    image = pixels.read(path, _MODES[channels])
    if image.shape[:2] != (rows, columns):
        print(
            f"{path} is resized from {image.shape[1]}x{image.shape[0]} to "
            f"{columns}x{rows} pixels, width by height"
        )
        image = np.asarray(
            Image.fromarray(image).resize(
                (columns, rows), Image.Resampling.BILINEAR
            )
        )
    image = image.reshape(rows, columns, channels)
    image = 255 - image if invert else image
    if channels == 1 and _border(image).mean() > max(127, image.mean()):
        flag = "without --invert" if invert else "--invert"
        print(
            f"{path} is dark on a bright ground now; if the network was "
            f"trained on bright on dark, try {flag}"
        )
    return image


def _border(image: Any) -> Any:
    inner = np.zeros(image.shape, bool)
    inner[1:-1, 1:-1] = True
    return image[~inner]


def _told_apart(paths: list[Path]) -> list[Path]:
    """Returns the paths; numbered where names repeat, which are titles."""
    names = [path.name for path in paths]
    return [
        path
        if names.count(path.name) == 1
        else path.with_name(f"{k} {path.name}")
        for k, path in enumerate(paths, 1)
    ]


def _same_trees(
    folder: RunFolder, model: keras.Model, images: Any
) -> list[str]:
    """Tells how many test images have the lines, and the tree, of each."""
    told = [
        f"of {samples:,} test images of this class {lines:,} have lines to the "
        f"same children, {same:,} the very same tree"
        for samples, lines, same in _counts(
            folder, model, images, folder.dictionary()
        )
    ]
    types = folder.type_dictionary()
    if types is None:
        return told
    counts = _counts(folder, model, images, types, of_types=True)
    return [
        f"{of_places}; wherever they are, {lines:,} have lines to the same "
        f"types of children, {same:,} the very same tree of types"
        for of_places, (_, lines, same) in zip(told, counts, strict=True)
    ]


def _counts(
    folder: RunFolder,
    model: keras.Model,
    images: Any,
    dictionary: rem.CouplingDictionary,
    *,
    of_types: bool = False,
) -> list[tuple[int, int, int]]:
    """Counts for each image the samples of its class in a dictionary.

    Returns all of them, those with the same lines, and those with the same key.
    """
    config = folder.config
    # What a line of the pictures means: more than the uniform coupling.
    uniform = int(
        rem.quantize(
            1 / dictionary.num_classes, config.class_levels, mode=config.mode
        )
    )
    keys, predicted = rem.sample_keys(
        model, images, config.levels, mode=config.mode, of_types=of_types
    )
    found = []
    for key, j in zip(keys, predicted, strict=True):
        known = dictionary.keys(int(j))
        counts = np.asarray(dictionary.counts(int(j)), int)
        same = np.all(known == key, axis=-1)
        alike = np.all((known > uniform) == (key > uniform), axis=-1)
        samples = int(dictionary.num_samples[j])
        found.append(
            (samples, int(counts[alike].sum()), int(counts[same].sum()))
        )
    return found


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), explain))
