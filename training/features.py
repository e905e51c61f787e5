"""The feature maps of a frozen backbone, computed once for a whole run.

While neither the backbone nor the images change, only what stands on it is
trained, on maps that lie in temporary files. All models of a run share them.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from cli import UserError, progress
from tfcaps import graphs
from tfcaps.models.backbone import FrozenModel
from training import devices
from training.augmentation import Augmentation
from training.batches import ON_BACKBONE, augmentation
from training.configs import Config
from training.datasets import Data
from training.images import Array, Floats, Split, forget

_DTYPE = np.float16
BYTES = 2
# Folders of a run for the maps of a network's own `fit`, while it lasts.
TRAIN, TEST = "features/train", "features/test"


class CachedFeatures(NamedTuple):
    """The features of a frozen backbone, and what is trained on them."""

    head: keras.Model  # the part of the model behind the backbone
    data: Data  # with feature maps in place of images
    augment: Augmentation  # what may happen to what the head takes


def backbone_of(model: keras.Model) -> FrozenModel | None:
    """Returns the layer that is a frozen backbone, if there is one."""
    frozen = (x for x in model.layers if isinstance(x, FrozenModel))
    return next(frozen, None)


def obstacle(model: keras.Model, config: Config) -> str | None:
    """Returns why the maps cannot be kept, or `None` if they can."""
    if config.decoder == "joint":
        return "a decoder that is trained with the capsules needs images"
    if len(model.inputs) > 1:
        return "the routing learns from labels"
    if augmentation(config) != Augmentation():
        return "training images are changed at random"
    if devices.num_processes() > 1:
        return "several processes train"
    return None


def cache_features(
    model: keras.Model,
    data: Data,
    config: Config,
    cache: dict[str, Array] | None,
) -> CachedFeatures:
    """Computes the features of a frozen backbone, unless that has been done.

    Without a backbone, or where its maps cannot be kept, the head is the whole
    model, and the data are the images.

    The `cache` has the maps, shared by the models of a run, and is empty at
    first. Or it is `None` for maps of zeros, which take no memory.
    """
    layer = backbone_of(model)
    why = obstacle(model, config)
    if layer is None or why is not None:
        if layer is not None and cache is not None and devices.process() == 0:
            print(f"The backbone runs in each step, because {why}.")
        return CachedFeatures(model, data, augmentation(config))
    front, head = graphs.split(model, layer)
    parts = {
        "train": data.train,
        "validation": data.validation,
        "test": data.test,
    }
    if cache is None:
        zero, shape = np.zeros((), _DTYPE), front.output_shape[1:]
        cache = {
            name: np.broadcast_to(zero, (len(split.labels), *shape))
            for name, split in parts.items()
        }
    elif not cache:
        size = max(1, ON_BACKBONE // layer.calls_a_sample)
        cache.update(computed(front, parts, size))
    # The maps stay on disk as float16; taken, they are float32 as images are.
    train, validation, test = (
        part.with_pixels(cache[name]) for name, part in parts.items()
    )
    features = Data(data.name, train, validation, test, data.class_names)
    return CachedFeatures(head, features, Augmentation())


def kept(folder: Path) -> dict[str, Array]:
    """Returns the maps of test images that a network's own `fit` has left."""
    path = folder / TEST / "local.npy"
    if not path.exists():
        return {}
    test = np.load(path, "r")
    return {"train": test[:0], "validation": test[:0], "test": test}


def computed(
    front: keras.Model, parts: dict[str, Split], batch_size: int
) -> dict[str, Array]:
    """Returns the maps, which lie on disk as long as something uses them."""
    total = sum(len(split.labels) for split in parts.values())
    print(f"the backbone's features of {total:,} images", flush=True)
    bar = keras.utils.Progbar(total, verbose=progress() % 2)
    model, maps = devices.local_copy(front), {}
    try:
        for name, (images, labels) in parts.items():
            shape = (len(labels), *front.output_shape[1:])
            maps[name] = np.zeros(shape, _DTYPE)
            if not shape[0]:
                continue
            with tempfile.TemporaryFile() as file:
                maps[name] = np.memmap(file, _DTYPE, "w+", shape=shape)
            for start in range(0, len(labels), batch_size):
                rows = slice(start, start + batch_size)
                part = maps_of(model, images[rows], batch_size)
                maps[name][rows] = part
                forget(maps[name])
                bar.add(len(part))
    except OSError as error:
        raise UserError(
            f"the features cannot be kept in {tempfile.gettempdir()}: {error}. "
            "They need space; name another folder by the environment variable "
            "TMPDIR."
        ) from error
    return maps


def maps_of(front: keras.Model, images: Floats, size: int) -> Array:
    """Returns the maps of a batch, computed for as many images as the others.

    A graph is traced for each size, which takes as long as many batches.
    """
    if keras.backend.backend() == "tensorflow":
        # XLA takes longer to compile a network than most runs to use it, and
        # on CPUs it is slower: MobileNetV3Small by 10 times.
        front.jit_compile = False
    full = np.resize(images, (size, *images.shape[1:]))
    with devices.alone():
        maps = front.predict_on_batch(full)[: len(images)]
    largest = np.finfo(_DTYPE).max
    return np.clip(maps, -largest, largest).astype(_DTYPE)
