"""Data sets: one `load` for every source of images and labels.

`training/sources.toml` lists those that have a name. Besides them there are any
name of TensorFlow Datasets, a file ending in `.npz` with the arrays `x_train`,
`y_train`, `x_test`, `y_test`, and a folder with one folder of images for each
class, see `own`.

`--data-dir` is where TensorFlow Datasets are prepared, or where `<name>.npz`
has one of them, for machines without TensorFlow; or where the original files of
affNIST or Tiny ImageNet lie; the modules say which. A folder of the
current directory comes before a name of TensorFlow Datasets.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

from cli import UserError
from training.configs import Config
from training.datasets import own, prepared
from training.datasets.data import Data
from training.images import channel_statistics
from training.sources import SOURCES, Source, check

__all__ = ["Data", "channel_statistics", "load", "of_run"]


def of_run(config: Config) -> Data:
    """Loads the data of a run, as its settings say."""
    data = load(
        config.dataset,
        config.data_dir,
        config.validation,
        resize=config.resize,
        crop=config.crop,
        skip_broken=config.skip_broken,
        seed=config.data_seed,
    )
    return data if config.samples is None else data.reduced(config.samples)


def load(
    name: str,
    data_dir: str | None = None,
    validation: float = 0.1,
    *,
    resize: int | None = None,
    crop: int | None = None,
    skip_broken: bool = False,
    seed: int = 0,
) -> Data:
    """Loads a data set.

    Args:
        name: See the head of this module.
        data_dir: See there; without it TensorFlow Datasets are downloaded.
        validation: Share of the training images that is held out, of each class
            the same, at every call the same; 0 for none.
        resize: Rows and columns that all images get.
        crop: Rows and columns that are cut out of the middle of all but the
            training images, which `Batches` cuts.
        skip_broken: Leave out files of a folder that cannot be read.
        seed: Draws other images of the same figures.
    """
    check(name, data_dir)
    source, path = SOURCES.get(name, Source()), Path(name)
    if seed and not source.drawn:
        raise UserError(f"--data-seed is for figures; {name} is not drawn.")
    if source.loader:
        place, _, function = source.loader.partition(":")
        module = importlib.import_module(f"training.datasets.{place}")
        make: Callable[..., Data] = getattr(module, function)
        options = {**source.options, **({"seed": seed} if seed else {})}
        data = make(data_dir=data_dir, validation=validation, **options)
    elif name not in SOURCES and name and path.is_dir():
        data = own.load(path, resize, validation, skip_broken=skip_broken)
    else:
        packed = Path(data_dir or "") / f"{name}.npz"
        if path.suffix == ".npz":
            data = own.npz(path)
        elif data_dir and packed.is_file():
            data = own.npz(packed)
        else:
            data = prepared.load(name, data_dir, resize)
        data = data.with_validation(validation)
    if resize is not None:
        data = data.resized(resize)
    if crop is None:
        return data
    if crop > min(data.image_shape[:2]):
        raise UserError(
            f"{name}: {crop} rows and columns cannot be cut out of images of "
            f"{data.image_shape[0]}x{data.image_shape[1]}."
        )
    return data.centre_cropped(crop)
