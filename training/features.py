"""The feature maps of a frozen backbone, computed once for a whole run.

While the backbone does not change, only what stands on it is trained, on maps
that lie in a file of the run folder: those of some copies of each training
image, each changed at random as it would be in an epoch of its own, and those
of the validation and test images. All models of a run share them, also when it
is resumed; at its end they are removed.
"""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from cli import UserError
from tfcaps import graphs
from tfcaps.models.backbone import FrozenModel
from training import devices, feeding
from training.augmentation import Augmentation
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.image_data import Array, Floats, Images, Split

# Copies of each training image that are changed at random, at most.
COPIES = 4
_DTYPE = np.float16
_FOLDER = "features"


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
    if config.pairs:
        return "images are merged in each epoch anew"
    if devices.num_processes() > 1:
        return "several processes train"
    return None


def num_copies(config: Config) -> int:
    """Returns how many copies of a training image are kept."""
    if feeding.augmentation(config) == Augmentation():
        return 1
    return min(COPIES, config.epochs)


def cache_features(
    model: keras.Model, data: Data, config: Config, path: Path, verbose: int
) -> CachedFeatures | None:
    """Computes the features of a frozen backbone, or finds them on disk.

    Args:
        model: The network.
        data: Images and labels.
        config: Settings of the run.
        path: The run folder, where the maps are or will be.
        verbose: Int. Show a bar (1), or nothing more than a line.

    Returns:
        `None` if there is no backbone, or its maps cannot be kept.

    Raises:
        UserError: If they do not fit on the disk.
    """
    front, head = _parts(model, config)
    if front is None:
        if backbone_of(model) is not None and devices.process() == 0:
            print(
                "The backbone runs in each step, because "
                f"{obstacle(model, config)}."
            )
        return None
    folder = path / _FOLDER
    sources = _sources(data, config)
    maps = _read(folder, front, sources)
    if maps is None:
        _write(folder, front, sources, verbose)
        maps = _read(folder, front, sources)
    return _cached(head, data, maps or {})


def with_dummy_features(
    model: keras.Model, data: Data, config: Config
) -> CachedFeatures | None:
    """Returns the same with features of zeros, which take no memory."""
    front, head = _parts(model, config)
    if front is None:
        return None
    zero = np.zeros((), _DTYPE)
    maps = {
        name: np.broadcast_to(zero, _shape(front, batches))
        for name, batches in _sources(data, config).items()
    }
    return _cached(head, data, maps)


def plan(
    model: keras.Model, data: Data, config: Config
) -> tuple[int, int, Callable[[], Any]] | None:
    """Returns how many maps are kept, their bytes, and a call for one batch.

    Or `None`, as `cache_features` does. The call takes the time of a batch of
    training images.
    """
    front, _ = _parts(model, config)
    if front is None:
        return None
    shapes = [_shape(front, each) for each in _sources(data, config).values()]
    images = data.train.images[: config.batch_size]
    return (
        sum(count for count, *_ in shapes),
        sum(map(math.prod, shapes)) * np.dtype(_DTYPE).itemsize,
        partial(_maps_of, front, images, config.batch_size),
    )


@contextlib.contextmanager
def removed_after(path: Path) -> Iterator[None]:
    """Removes what is kept in a run folder at the end of a block.

    It stays where the run is stopped, to be resumed.
    """
    try:
        yield
    except UserError:
        shutil.rmtree(path / _FOLDER, ignore_errors=True)
        raise
    shutil.rmtree(path / _FOLDER, ignore_errors=True)


def _parts(model: keras.Model, config: Config) -> tuple[Any, Any]:
    layer = backbone_of(model)
    if layer is None or obstacle(model, config) is not None:
        return None, None
    front, head = graphs.split(model, layer)
    if keras.backend.backend() == "tensorflow":
        # XLA takes longer to compile a network than most runs to use it, and
        # on CPUs it is slower: MobileNetV3Small by 10 times.
        front.jit_compile = False
    return front, head


def _sources(data: Data, config: Config) -> dict[str, Batches]:
    """Returns the images of each file, with their numbers as labels.

    Training images are changed as a training would do it in this epoch.
    """

    def numbered(split: Split, **settings: Any) -> Batches:
        numbers = np.arange(len(split.labels))
        return Batches(split.images, numbers, config.batch_size, **settings)

    augment = feeding.augmentation(config)
    sources = {}
    for copy in range(num_copies(config)):
        batches = numbered(data.train, seed=config.seed, augment=augment)
        batches.start_epoch(copy)
        sources[f"train-{copy}"] = batches
    sources["validation"] = numbered(data.validation)
    sources["test"] = numbered(data.test)
    return sources


def _shape(front: keras.Model, batches: Batches) -> tuple[int, ...]:
    return (len(batches.labels), *front.output_shape[1:])


def _cached(
    head: keras.Model, data: Data, maps: dict[str, Array]
) -> CachedFeatures:
    # The maps stay on disk as float16; taken, they are float32 as images are.
    images = {name: Images(array) for name, array in maps.items()}
    copies = [images[name] for name in images if name.startswith("train")]
    seen = Data(
        data.name,
        Split(copies[0], data.train.labels),
        Split(images["validation"], data.validation.labels),
        Split(images["test"], data.test.labels),
        data.class_names,
    )
    return CachedFeatures(head, seen, partial(FeatureBatches, copies))


def _read(
    folder: Path, front: keras.Model, sources: dict[str, Batches]
) -> dict[str, Array] | None:
    """Returns the maps, which stay on disk, or `None` if there are none."""
    maps = {}
    for name, batches in sources.items():
        shape = _shape(front, batches)
        maps[name] = np.zeros(shape, _DTYPE)
        if shape[0]:
            try:
                maps[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
            except FileNotFoundError:
                return None
        if maps[name].shape != shape:
            return None  # of other images
    return maps


def _write(
    folder: Path, front: keras.Model, sources: dict[str, Batches], verbose: int
) -> None:
    total = sum(len(batches.labels) for batches in sources.values())
    print(f"the backbone's features of {total:,} images", flush=True)
    bar = keras.utils.Progbar(total, verbose=verbose)
    staged = folder.with_name(f".staged-{_FOLDER}")
    for path in (staged, folder):
        shutil.rmtree(path, ignore_errors=True)
    model = devices.Local(front).model
    try:
        staged.mkdir()
        for name, batches in sources.items():
            if not batches.num_batches:
                continue
            file = np.lib.format.open_memmap(
                staged / f"{name}.npy", "w+", _DTYPE, _shape(front, batches)
            )
            for k in range(batches.num_batches):
                images, places = batches[k]
                file[places] = _maps_of(model, images, batches.batch_size)
                bar.add(len(places))
            file.flush()
        staged.rename(folder)
    except OSError as error:
        raise UserError(
            f"the features cannot be kept in {folder}: {error}. They need "
            "space; see the plan of --dry-run."
        ) from error


def _maps_of(front: keras.Model, images: Floats, size: int) -> Array:
    """Returns the maps of a batch, computed for as many images as the others.

    A graph is traced for each size, which takes as long as many batches.
    """
    full = np.resize(images, (size, *images.shape[1:]))
    with devices.alone():
        maps = front.predict_on_batch(full)[: len(images)]
    largest = np.finfo(_DTYPE).max
    return np.clip(maps, -largest, largest).astype(_DTYPE)
