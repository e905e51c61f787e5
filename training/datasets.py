"""Where images and labels come from: one `load` for every source.

| `--dataset` | what it is |
|---|---|
| `digits` | scikit-learn's 8x8 digits, part of that package |
| a name such as `mnist`, `fashion_mnist`, `cifar10` | TensorFlow Datasets |
| a file ending in `.npz` | arrays `x_train`, `y_train`, `x_test`, `y_test` |
| a folder | one folder of images for each class |

A folder of the current directory comes before a name.
"""

import dataclasses
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from tfcaps.cli import UserError

Array = NDArray[Any]
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
# Share of the samples held out where a source has no test split of its own.
_TEST_SHARE = 0.2
_DIGITS_TEST_SHARE = 0.5  # 90 samples a class: entropies up to 6.5 bits


@dataclasses.dataclass(frozen=True)
class Data:
    """A data set in memory.

    Attributes:
        name: What to call it.
        train: Images `[n, h, w, c]`, uint8, or float in [0, 1]; labels `[n]`.
        test: The same for testing.
        class_names: One for each class.
    """

    name: str
    train: tuple[Array, Array]
    test: tuple[Array, Array]
    class_names: tuple[str, ...]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        rows, columns, channels = self.train[0].shape[1:]
        return rows, columns, channels

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def reduced(self, samples: int) -> "Data":
        """Returns at most so many training and test images, drawn at random."""
        draw = np.random.default_rng(0)

        def some(part: tuple[Array, Array]) -> tuple[Array, Array]:
            images, labels = part
            chosen = np.sort(draw.permutation(len(labels))[:samples])
            return images[chosen], labels[chosen]

        return dataclasses.replace(
            self, train=some(self.train), test=some(self.test)
        )


def load(name: str, data_dir: str | None = None) -> Data:
    """Loads a data set.

    Args:
        name: See the table of this module.
        data_dir: Folder of prepared TensorFlow Datasets. Without it they are
            downloaded to the library's own folder.

    Raises:
        UserError: If there is no such data set or it is not usable.
    """
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir!r} is not a folder.")
    if name == "digits":
        return _digits()
    path = Path(name)
    if path.suffix == ".npz":
        return _npz(path)
    if name and path.is_dir():
        return _folder(path)
    if not name or path.exists() or name[0] in "/.~":
        raise UserError(
            f"data set {name!r} is neither a folder nor an .npz file."
        )
    return _tensorflow_datasets(name, data_dir)


def _digits() -> Data:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    train, test = _hold_out(images, labels, _DIGITS_TEST_SHARE)
    return _checked("digits", train, test, [str(k) for k in range(10)])


def _npz(path: Path) -> Data:
    try:
        # Opened here, because numpy leaves a broken file open.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            names = getattr(arrays, "files", [])
            if not set(_ARRAYS) <= set(names):
                raise UserError(
                    f"{path} must have the arrays {', '.join(_ARRAYS)}; "
                    f"it has {', '.join(names) or 'none'}."
                )
            x_train, y_train, x_test, y_test = (arrays[n] for n in _ARRAYS)
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is not a readable .npz file: {error}.") from (
            error
        )
    parts = (x_train, y_train, x_test, y_test)
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise UserError(f"{path} has members that are no arrays.")
    return _checked(path.stem, (x_train, y_train), (x_test, y_test), None)


def _folder(path: Path) -> Data:
    from PIL import Image, UnidentifiedImageError

    folders = sorted(p for p in path.iterdir() if p.is_dir())
    if len(folders) < 2:
        raise UserError(
            f"{path} must have at least two folders, one of images for each "
            f"class; it has {len(folders)}."
        )
    images, labels = [], []
    for label, folder in enumerate(folders):
        files = sorted(
            p for p in folder.iterdir() if p.suffix.lower() in _IMAGE_SUFFIXES
        )
        if len(files) < 2:
            raise UserError(f"{folder} must have at least two images.")
        for file in files:
            try:
                with Image.open(file) as image:
                    mode = "L" if image.mode in ("1", "L") else "RGB"
                    pixels = np.asarray(image.convert(mode))
            except (UnidentifiedImageError, OSError) as error:
                raise UserError(f"{file} is not a readable image.") from error
            if images and pixels.shape != images[0].shape:
                raise UserError(
                    "all images must have one size and colour mode: "
                    f"{file} is {_size(pixels)}, those before are "
                    f"{_size(images[0])}."
                )
            images.append(pixels)
            labels.append(label)
    train, test = _hold_out(np.stack(images), np.array(labels), _TEST_SHARE)
    return _checked(path.name, train, test, [p.name for p in folders])


def _size(pixels: Array) -> str:
    return "x".join(str(side) for side in pixels.shape)


def _tensorflow_datasets(name: str, data_dir: str | None) -> Data:
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
            "Datasets such as mnist, fashion_mnist or cifar10, an .npz file, "
            "or a folder with one folder of images for each class."
        ) from error
    if not builder.info.splits:
        if data_dir is not None:
            raise UserError(
                f"{name} is not prepared in {data_dir}; leave out --data-dir "
                "to download it."
            )
        try:
            builder.download_and_prepare()
        except Exception as error:
            raise UserError(
                f"{name} could not be downloaded ({type(error).__name__}); "
                "give a folder where it is prepared by --data-dir."
            ) from error
    features = builder.info.features
    if not {"image", "label"} <= set(features) or not isinstance(
        features["label"], tfds.features.ClassLabel
    ):
        raise UserError(
            f"{name} is not for image classification: it has the features "
            f"{', '.join(features)}, not an image and a class label."
        )
    splits = builder.info.splits
    held_out = [s for s in ("test", "validation") if s in splits]
    if "train" not in splits:
        raise UserError(f"{name} has no split called train.")
    train = _read_split(builder, "train")
    if held_out:
        test = _read_split(builder, held_out[0])
    else:
        train, test = _hold_out(*train, _TEST_SHARE)
    return _checked(name, train, test, features["label"].names)


def _read_split(builder: Any, split: str) -> tuple[Array, Array]:
    import keras
    import tensorflow as tf
    import tensorflow_datasets as tfds

    count = builder.info.splits[split].num_examples
    bar = keras.utils.Progbar(count, unit_name="image")
    images, labels = [], []
    try:
        dataset = builder.as_dataset(split=split).batch(512)
        for batch in tfds.as_numpy(dataset):
            images.append(batch["image"])
            labels.append(batch["label"])
            bar.add(len(batch["label"]))
        return np.concatenate(images), np.concatenate(labels)
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise UserError(
            f"{builder.name} has images of different sizes; tfcaps needs one."
        ) from error
    except tf.errors.OpError as error:
        raise UserError(
            f"the prepared files of {builder.name} cannot be read: "
            f"{error.message}."
        ) from error


def _hold_out(
    images: Array, labels: Array, share: float
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Splits off the same share of each class, the same at every call."""
    order = np.random.default_rng(0).permutation(len(labels))
    by_class = [order[labels[order] == j] for j in np.unique(labels)]
    cuts = [max(1, round(len(members) * share)) for members in by_class]
    test = np.sort(
        np.concatenate([m[:cut] for m, cut in zip(by_class, cuts, strict=True)])
    )
    train = np.setdiff1d(order, test)
    return (images[train], labels[train]), (images[test], labels[test])


def _checked(
    name: str,
    train: tuple[Array, Array],
    test: tuple[Array, Array],
    class_names: list[str] | None,
) -> Data:
    """Returns `Data` if images and labels can be used together."""
    train, test = _in_shape(train), _in_shape(test)
    for part, (images, labels) in (("training", train), ("test", test)):
        _check_images(name, part, images)
        if labels.shape != (len(images),):
            raise UserError(
                f"{name}: there must be one label for each {part} image; "
                f"there are {len(images)} images and labels of the shape "
                f"{labels.shape}."
            )
        if labels.dtype.kind not in "iu":
            raise UserError(
                f"{name}: the {part} labels must be integers from 0; they are "
                f"{labels.dtype}."
            )
    if train[0].shape[1:] != test[0].shape[1:]:
        raise UserError(
            f"{name}: training images are {_size(train[0][0])}, test images "
            f"{_size(test[0][0])}; they must have one shape."
        )
    classes = (
        len(class_names) if class_names else _count_classes(name, train[1])
    )
    for part, (_, labels) in (("training", train), ("test", test)):
        if labels.min() < 0 or labels.max() >= classes:
            raise UserError(
                f"{name}: the {part} labels must be in 0 to {classes - 1}, the "
                f"classes of the training images; they go from {labels.min()} "
                f"to {labels.max()}."
            )
    if classes < 2:
        raise UserError(f"{name}: there must be at least two classes.")
    names = class_names or [str(j) for j in range(classes)]
    return Data(name, train, test, tuple(names))


def _in_shape(part: tuple[Array, Array]) -> tuple[Array, Array]:
    """Adds a channel to grey images; makes a column of labels a vector."""
    images, labels = part
    if images.ndim == 3:
        images = images[..., np.newaxis]
    return images, labels[:, 0] if labels.shape[1:] == (1,) else labels


def _count_classes(name: str, labels: Array) -> int:
    """Returns how many classes labels from 0 without gaps show."""
    present = np.unique(labels)
    expected = np.arange(len(present))
    if not np.array_equal(present, expected):
        wrong = present[present != expected][0]
        raise UserError(
            f"{name}: the training labels must be 0, 1, 2 and so on without "
            f"gaps; {len(present)} classes are there, but one label is {wrong}."
        )
    return len(present)


def _check_images(name: str, part: str, images: Array) -> None:
    if images.ndim != 4 or 0 in images.shape or images.shape[3] not in (1, 3):
        raise UserError(
            f"{name}: the {part} images must have the shape [images, rows, "
            "columns] or [images, rows, columns, 1 or 3 channels]; they have "
            f"{images.shape}."
        )
    if images.dtype == np.uint8:
        return
    if images.dtype.kind != "f" or not (
        images.min() >= 0.0 and images.max() <= 1.0
    ):
        raise UserError(
            f"{name}: the {part} images must be uint8, or floats in 0 to 1; "
            f"they are {images.dtype} from {images.min()} to {images.max()}."
        )
