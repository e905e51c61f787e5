"""The feature maps of a frozen backbone, computed once for a whole run.

While the backbone does not change, only what stands on it is trained, on maps
that lie in temporary files: those of some copies of each training image, each
changed at random as it would be in an epoch of its own, and those of the
validation and test images. All models of a run share them.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from cli import UserError
from tfcaps import graphs
from tfcaps.models.backbone import FrozenModel
from training import devices
from training.augmentation import Augmentation
from training.batches import Batches, augmentation
from training.configs import Config
from training.datasets import Data
from training.image_data import Array, Floats, Images, Split
from training.progress import progress

# Copies of each training image that are changed at random, at most.
COPIES = 4
_DTYPE = np.float16
BYTES = 2


class CachedFeatures(NamedTuple):
    """The features of a frozen backbone, and what is trained on them.

    Attributes:
        head: The part of the model behind the backbone.
        data: The data set with feature maps in place of images.
        batches: Makes the training batches, as `Batches` does.
    """

    head: keras.Model
    data: Data
    batches: Callable[..., Batches]


class FeatureBatches(Batches):
    """Batches of feature maps, in each epoch those of the next copy.

    Args:
        copies: Maps `[n, h, w, c]` of the images, float16, for each copy.
        images: Ignored, as is `augment`: the copies have been changed.
        *args: As of `Batches`.
        **kwargs: As of `Batches`.
    """

    def __init__(
        self, copies: list[Images], images: Images, *args: Any, **kwargs: Any
    ):
        self.copies = copies
        super().__init__(images, *args, **{**kwargs, "augment": None})

    def start_epoch(self, epoch: int) -> None:
        self.images = self.copies[epoch % len(self.copies)]
        super().start_epoch(epoch)


def backbone_of(model: keras.Model) -> FrozenModel | None:
    """Returns the layer that is a frozen backbone, if there is one."""
    found = [layer for layer in model.layers if isinstance(layer, FrozenModel)]
    return found[0] if found else None


def obstacle(model: keras.Model, config: Config) -> str | None:
    """Returns why the maps cannot be kept, or `None` if they can."""
    if config.decoder == "joint":
        return "a decoder that is trained with the capsules needs images"
    if len(model.inputs) > 1:
        return "the routing learns from labels"
    if devices.num_processes() > 1:
        return "several processes train"
    return None


def cache_features(
    model: keras.Model,
    data: Data,
    config: Config,
    kept: dict[str, Array] | None,
) -> CachedFeatures:
    """Computes the features of a frozen backbone, unless that has been done.

    Without a backbone, or where its maps cannot be kept, the head is the whole
    model, and the data are the images.

    Args:
        model: The network.
        data: Images and labels.
        config: Settings of the run.
        kept: The maps, shared by the models of a run; at first empty. Or `None`
            for maps of zeros, which take no memory.

    Raises:
        UserError: If they do not fit on the disk.
    """
    layer = backbone_of(model)
    why = obstacle(model, config)
    if layer is None or why is not None:
        if layer is not None and kept is not None and devices.process() == 0:
            print(f"The backbone runs in each step, because {why}.")
        return CachedFeatures(model, data, Batches)
    front, head = graphs.split(model, layer)
    sources = images_of(data, config)
    if kept is None:
        zero, shape = np.zeros((), _DTYPE), front.output_shape[1:]
        kept = {
            name: np.broadcast_to(zero, (len(batches.labels), *shape))
            for name, batches in sources.items()
        }
    elif not kept:
        kept.update(_computed(front, sources))
    # The maps stay on disk as float16; taken, they are float32 as images are.
    maps = {name: Images(array) for name, array in kept.items()}
    copies = [maps[name] for name in maps if name.startswith("train")]
    seen = Data(
        data.name,
        Split(copies[0], data.train.labels),
        Split(maps["validation"], data.validation.labels),
        Split(maps["test"], data.test.labels),
        data.class_names,
    )
    return CachedFeatures(head, seen, partial(FeatureBatches, copies))


def images_of(data: Data, config: Config) -> dict[str, Batches]:
    """Returns the images whose maps are kept, with their numbers as labels.

    Training images are changed as a training would do it in this epoch.
    """

    def numbered(split: Split, **settings: Any) -> Batches:
        numbers = np.arange(len(split.labels))
        return Batches(split.images, numbers, config.batch_size, **settings)

    augment = augmentation(config)
    changes = augment != Augmentation()
    sources = {}
    for copy in range(min(COPIES, config.epochs) if changes else 1):
        batches = numbered(data.train, seed=config.seed, augment=augment)
        batches.start_epoch(copy)
        sources[f"train-{copy}"] = batches
    sources["validation"] = numbered(data.validation)
    sources["test"] = numbered(data.test)
    return sources


def _computed(
    front: keras.Model, sources: dict[str, Batches]
) -> dict[str, Array]:
    """Returns the maps, which lie on disk as long as something uses them."""
    total = sum(len(batches.labels) for batches in sources.values())
    print(f"the backbone's features of {total:,} images", flush=True)
    bar = keras.utils.Progbar(total, verbose=progress() % 2)
    model, maps = devices.Local(front).model, {}
    try:
        for name, batches in sources.items():
            shape = (len(batches.labels), *front.output_shape[1:])
            maps[name] = np.zeros(shape, _DTYPE)
            if not shape[0]:
                continue
            with tempfile.TemporaryFile() as file:
                maps[name] = np.memmap(file, _DTYPE, "w+", shape=shape)
            for k in range(batches.num_batches):
                images, places = batches[k]
                maps[name][places] = maps_of(model, images, batches.batch_size)
                bar.add(len(places))
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
