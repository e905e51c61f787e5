"""The trained network that `--backbone` names, a file or one by its name.

Those of `keras.applications`, and those whose weights a package carries, are
trained on ImageNet. They take images in [0, 1], grey or in colours, as all
networks here do: what each expects of its images is a part of it.
"""

import re
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cli import UserError, read_model
from tfcaps.models.backbone import ReverseChannels
from training import efficientnet_lite

Shape = tuple[int, int, int]

NAMES = tuple(
    name
    for name in sorted(dir(keras.applications))
    if name[0].isupper() and callable(getattr(keras.applications, name))
)
# Fewest rows and columns of a feature map, so that trees have positions.
_GRID = 4
# Above this step, in pixels, there must be more of them.
_STEP = 16
_BORDERS = (keras.layers.ZeroPadding2D, keras.layers.Cropping2D)
_JOINTS = (keras.layers.Add, keras.layers.Concatenate)
# What Keras says of images that are too small.
_TOO_SMALL = re.compile(r"Input size must be at least (\d+)")


def load(name: str, folder: str | None, shape: Shape) -> keras.Model:
    """Loads a trained network without its top.

    Its name is one of `keras.applications`, `efficientnet_lite0` or another of
    its family, or that of a `.keras` file, by itself or in the folder.
    """
    if is_application(name):
        return application(name, shape)
    for path in (Path(folder or ".") / name, Path(name)):
        if path.is_file():
            return read_model(path)
    raise UserError(
        f"there is no backbone {name!r}, neither as a path nor in the folder "
        "of --data-dir; give a .keras file of a trained network without its "
        "top, a name of keras.applications, such as MobileNetV3Small, or "
        f"one of {', '.join(efficientnet_lite.NAMES)}."
    )


def is_application(name: str | None) -> bool:
    """Tells whether it has a name; such networks scale images themselves."""
    return name in (*efficientnet_lite.NAMES, *NAMES)


def application(name: str, shape: Shape) -> keras.Model:
    """Returns a network up to the deepest feature map with enough positions.

    It takes images in [0, 1]; its last layer has the name of the one that makes
    the map. For images that are too small it is one for the smallest it takes.
    """
    rows, columns, channels = shape
    if channels not in (1, 3):
        raise UserError(
            f"--backbone {name} takes grey or colour images; these have "
            f"{channels} channels. Give a .keras file for them."
        )
    try:
        network = build(name, (rows, columns, 3))
    except ValueError as error:
        too_small = _TOO_SMALL.search(str(error))
        if too_small is None:
            raise
        side = int(too_small[1])
        network = build(name, (max(rows, side), max(columns, side), 3))
    deepest = _feature_map(network)
    images = keras.Input((*network.input.shape[1:3], channels), name="images")
    colours = keras.layers.Concatenate(name="colours")([images] * 3)
    seen = preprocessed(name, colours if channels == 1 else images)
    cut = keras.Model(network.input, deepest.output, name=deepest.name)
    return keras.Model(images, cut(seen), name=name)


def preprocessed(name: str, images: Any) -> Any:
    """Returns colours in [0, 1] as a network wants them.

    `preprocess_input` of its family says how, for black and for each colour; it
    scales channels, adds to them, and may exchange them.
    """
    if name in efficientnet_lite.NAMES:
        return images
    black_and_colours = 255.0 * np.eye(4, 3, k=-1, dtype=np.float32)
    family = getattr(keras.applications, name).__module__.rpartition(".")[-1]
    module = getattr(keras.applications, family)
    scaled = module.preprocess_input(
        black_and_colours[np.newaxis, :, np.newaxis]
    )
    offset, *scales = scaled[0, :, 0]
    matrix = np.stack(scales) - offset
    if not matrix[0, 0]:
        images = ReverseChannels(name="reverse_channels")(images)
        matrix = matrix[::-1]
    return keras.layers.Rescaling(
        np.diag(matrix).tolist(), offset.tolist(), name="scale"
    )(images)


def _feature_map(network: keras.Model) -> Any:
    """Returns the layer of the deepest map with enough positions.

    All that is deeper must follow from it alone, so that no branch is cut,
    unless the network has branches everywhere.
    """
    operations = network.operations
    made = {id(op.output): k for k, op in enumerate(operations)}
    sides = network.input.shape[1:3]
    grid, joint, earliest = None, None, len(operations)
    for k in range(len(operations) - 1, 0, -1):
        operation = operations[k]
        size = operation.output.shape[1:3]
        if (
            not isinstance(operation, _BORDERS)
            and _has_positions(operation.output, sides)
            and size == (grid or size)
        ):
            grid = size
            if earliest >= k:
                return operation
            if isinstance(operation, _JOINTS):
                joint = joint or operation
        sources = keras.tree.flatten(operation.input)
        earliest = min(earliest, *(made[id(source)] for source in sources))
    if joint is None:
        raise ValueError(f"{network.name} has no map with enough positions.")
    return joint


def _has_positions(tensor: Any, sides: tuple[int, int]) -> bool:
    if len(tensor.shape) != 4:
        return False
    grid = tensor.shape[1:3]
    step = max(side / count for side, count in zip(sides, grid, strict=True))
    return min(grid) > _GRID or (min(grid) == _GRID and step <= _STEP)


def build(
    name: str, shape: Shape, weights: str | None = "imagenet"
) -> keras.Model:
    """Returns a network that has a name, without its top.

    Raises:
        ValueError: If the images are too small.
    """
    if name in efficientnet_lite.NAMES:
        return efficientnet_lite.build(name, shape)
    make = getattr(keras.applications, name)
    with warnings.catch_warnings():
        # It means that the weights are those for 224 pixels.
        warnings.filterwarnings("ignore", "`input_shape` is undefined or non")
        try:
            return make(include_top=False, weights=weights, input_shape=shape)
        # Keras raises a plain `Exception` where a download fails, and the
        # others where the file is broken; what is none of them is a mistake.
        except Exception as error:
            of_file = isinstance(error, (OSError, ValueError))
            of_file |= type(error) is Exception
            if not of_file or _TOO_SMALL.search(str(error)):
                raise
            reason = " ".join(str(error).split()).rstrip(".")
            url = re.search(r"https?://\S+/([^/\s:]+)", reason)
            raise UserError(
                f"the weights of --backbone {name} cannot be had: {reason}. "
                "Where there is a network, download "
                f"{url[1] if url else 'the file'} and put it into "
                "~/.keras/models here, or into models/ in the folder that "
                "KERAS_HOME names; or give a .keras file of a trained network "
                "without its top."
            ) from error
