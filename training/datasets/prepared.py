"""Reads TensorFlow Datasets."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from cli import UserError, check_installed, progress
from training.datasets.data import Arrays, Data, checked, held_out
from training.images import Array, resize

# Share of the images held out where a source has no test split of its own.
TEST_SHARE = 0.2
# The split of the REM paper is not known.
_TEST_SHARES = {"cats_vs_dogs": 0.1}
# WordNet's names of Imagenette's classes, which are called by their numbers.
_WORDNET = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


def load(name: str, data_dir: str | None, size: int | None = None) -> Data:
    """Loads a data set of images and class labels.

    Images of different sizes get `size` rows and columns.
    """
    builder = builder_of(name, data_dir)
    import tensorflow_datasets as tfds

    features = builder.info.features
    if not {"image", "label"} <= set(features) or not isinstance(
        features["label"], tfds.features.ClassLabel
    ):
        raise UserError(
            f"{name} is not for image classification: it has the features "
            f"{', '.join(features)}, not an image and a class label."
        )
    splits = builder.info.splits
    tests = [name for name in ("test", "validation") if name in splits]
    if "train" not in splits:
        raise UserError(f"{name} has no split called train.")
    train = _labelled_images(builder, "train", size)
    if tests:
        test = _labelled_images(builder, tests[0], size)
    else:
        images, labels = train
        share = _TEST_SHARES.get(builder.name, TEST_SHARE)
        train, test = (
            (images[rows], labels[rows]) for rows in held_out(labels, share)
        )
    names = [_WORDNET.get(label, label) for label in features["label"].names]
    return checked(name, train, test, names)


def builder_of(name: str, data_dir: str | None) -> Any:
    """Returns the builder of a data set that is prepared or downloaded now."""
    check_installed(tfds="tensorflow_datasets importlib_resources")
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (
        tfds.core.DatasetNotFoundError,
        AssertionError,
        ValueError,
    ) as error:
        raise UserError(
            f"unknown data set {name!r}; use digits, a name of TensorFlow "
            "Datasets such as mnist, fashion_mnist or cifar10, another name of "
            "training/datasets/, an .npz file, or a folder with one folder of "
            "images for each class."
        ) from error
    if builder.info.splits:
        return builder
    if data_dir is not None:
        raise UserError(
            f"{name} is not prepared in {data_dir}; leave out --data-dir "
            "to download it."
        )
    print(f"downloading {name} to {builder.data_dir}", flush=True)
    # One sentence below is enough where there is no network.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        builder.download_and_prepare()
    except Exception as error:  # each data set raises others
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(
            f"{name} could not be downloaded ({type(error).__name__}: "
            f"{reason}); give a folder where it is prepared by --data-dir."
        ) from error
    return builder


def read(builder: Any, split: str, features: Iterable[str]) -> list[Array]:
    """Returns some features of a split whose images have one size."""
    batches = list(_examples(builder, split, batch_size=512))
    return [np.concatenate([b[name] for b in batches]) for name in features]


def _labelled_images(builder: Any, split: str, size: int | None) -> Arrays:
    if None not in builder.info.features["image"].shape:
        images, labels = read(builder, split, ("image", "label"))
        return images, labels
    pictures: list[Array] = []
    classes: list[Array] = []
    for example in _examples(builder, split, batch_size=None):
        image = example["image"]
        if size is not None:
            image = resize(image[np.newaxis], size)[0]
        if pictures and image.shape != pictures[0].shape:
            raise UserError(
                f"{builder.name} has images of different sizes; tfcaps needs "
                "one. Choose it by --resize."
            )
        pictures.append(image)
        classes.append(example["label"])
    return np.stack(pictures), np.array(classes)


def _examples(
    builder: Any, split: str, batch_size: int | None
) -> Iterator[dict[str, Array]]:
    """Yields examples, or batches of them, under a progress bar."""
    import keras
    import tensorflow as tf
    import tensorflow_datasets as tfds

    count = builder.info.splits[split].num_examples
    bar = keras.utils.Progbar(count, verbose=progress(), unit_name="image")
    try:
        dataset = builder.as_dataset(split=split, batch_size=batch_size)
        for done in tfds.as_numpy(dataset):
            yield done
            bar.add(len(next(iter(done.values()))) if batch_size else 1)
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(
            f"the prepared files of {builder.name} cannot be read: {error}."
        ) from error
