"""Data as `fit` takes them, batch by batch, and a model's outputs for them."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.finite import check_finite, check_images, check_weights

Array = NDArray[Any]

# Outputs whose targets are the labels.
_OF_LABELS = ("lengths", "couplings", "counterfactual")
_INFINITE = -1  # the cardinality of such a `tf.data.Dataset`


class Batch(NamedTuple):
    """The data that `fit` takes for one step.

    Attributes:
        x: Inputs: an array, or a dict or list of arrays.
        y: Targets in the same way, or `None`.
        sample_weight: Weights, or `None`.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None


def batches_of(
    dataset: Any, batch_size: int, image_rank: int | None = None
) -> tuple[Iterator[Batch], int | None]:
    """Returns batches, and how many there are if that is known.

    Args:
        dataset: What `fit` takes: a tuple `(x, y)` or `(x, y, sample_weight)`
            of arrays, of dicts or of lists of arrays, or `x` alone; or an
            iterable of such batches: a `tf.data.Dataset`, a
            `keras.utils.PyDataset`, a `DataLoader`, a list.
        batch_size: Int. Size of the batches cut from arrays.
        image_rank: Int. Axes of the images of a batch, by which a list of
            images is told from a list of inputs. Defaults to `None`, inputs.

    Raises:
        ValueError: If it is none of these, there are not as many labels as
            images, the batch size is below 1, or the data never end.
    """
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: {batch_size}."
        )
    if (whole := _in_memory(dataset, image_rank)) is not None:
        return _cut(whole, batch_size)
    if isinstance(dataset, keras.utils.PyDataset):
        count = dataset.num_batches
        if count is None:
            raise ValueError(_NEVER_ENDS)
        return map(_batch, (dataset[index] for index in range(count))), count
    if isinstance(dataset, Iterable) and not isinstance(dataset, (str, bytes)):
        return map(_batch, dataset), _known_count(dataset)
    raise ValueError(
        "`dataset` must be (images, labels) or an iterable of such batches. "
        f"Received: {type(dataset).__name__}."
    )


_NEVER_ENDS = (
    "The data set never ends, so that it cannot be measured. Leave out "
    "`repeat()`, or use `dataset.take(...)`."
)


def labelled_batches(
    dataset: Any,
    batch_size: int,
    model: keras.Model,
    *,
    need_labels: bool = True,
) -> tuple[Iterator[tuple[Array, Any]], int | None]:
    """Returns pairs of images and labels, and how many if that is known.

    Of several inputs it takes `images`, of several targets `lengths`. Without
    targets the labels are the input of that name. Weights do not matter.

    Args:
        dataset: As in `batches_of`.
        batch_size: As in `batches_of`.
        model: The network that the images are for, of one input.
        need_labels: Bool. Labels must be there. Defaults to `True`.

    Raises:
        ValueError: As in `batches_of`, or if there are no labels, or single
            images instead of batches.
    """
    shape = tuple(model.inputs[0].shape)
    whole = dataset[0] if isinstance(dataset, tuple) and dataset else dataset
    if _is_array(whole):
        _check_shape(whole.shape, shape[1:])
    batches, count = batches_of(dataset, batch_size, len(shape))
    return _pairs(batches, shape[1:], need_labels), count


def images_of(data: Any, model: keras.Model, batch_size: int = 256) -> Array:
    """Returns all images of data as one array.

    Args:
        data: As in `batches_of`; labels are not looked at.
        model: The network that they are for.
        batch_size: As in `batches_of`.
    """
    if isinstance(data, np.ndarray) and data.dtype.kind not in "OUS":
        _check_images(data, tuple(model.inputs[0].shape[1:]), 0)
        return data
    pairs, _ = labelled_batches(data, batch_size, model, need_labels=False)
    parts = [images for images, _ in pairs]
    if not parts:
        raise ValueError(NO_SAMPLES)
    return np.concatenate(parts)


NO_SAMPLES = (
    "The data set has no samples. A generator can be read only once; pass "
    "arrays or a `tf.data.Dataset`."
)


def predict_batches(
    model: keras.Model, data: Any, batch_size: int
) -> Iterator[Any]:
    """Yields a model's outputs for each batch of images.

    Args:
        model: A functional model.
        data: Images as in `batches_of`; for a model of several inputs a list of
            them, `[n, ...]` each.
        batch_size: Int, at least 1. Most images in a batch cut from arrays.

    Raises:
        ValueError: If there are no images, the batch size is below 1, or an
            output is not finite.
    """
    check_weights(model.weights)  # a ReLU may make zeros of what is no number
    empty = True
    for batch in _inputs(model, data, batch_size):
        empty = False
        yield predict_batch(model, batch)
    if empty:
        raise ValueError(
            "There must be at least one image, and one in a batch. Received: "
            f"0 images, batch_size={batch_size}."
        )


def predict_batch(model: keras.Model, inputs: Any) -> Any:
    """Returns a model's outputs for one batch.

    Raises:
        ValueError: If an output is not finite.
    """
    # On TensorFlow a step would be traced, and large routings compiled for
    # seconds: more than it saves with a few batches. Others must compile.
    eager = keras.backend.backend() == "tensorflow"
    outputs = model(inputs) if eager else model.predict_on_batch(inputs)
    shown = keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)
    check_finite(shown, model)
    return shown


def predict(model: keras.Model, inputs: Any) -> Any:
    """Returns the outputs for one batch.

    A batch smaller than one before is filled up: nothing is compiled for it.
    """
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is not None and strategy.num_replicas_in_sync > 1:
        # `predict_on_batch` would give every replica the whole batch.
        return model.predict(inputs, verbose=0)
    count = len(keras.tree.flatten(inputs)[0])
    missing = max(getattr(model, "largest_batch", 0) - count, 0)
    model.largest_batch = count + missing
    if missing:
        inputs = keras.tree.map_structure(
            lambda x: np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]),
            inputs,
        )
    outputs = model.predict_on_batch(inputs)
    return keras.tree.map_structure(lambda x: x[:count], outputs)


def _inputs(model: keras.Model, data: Any, batch_size: int) -> Iterator[Any]:
    if batch_size < 1:
        raise ValueError(
            "There must be at least one image, and one in a batch. Received: "
            f"batch_size={batch_size}."
        )
    if len(model.inputs) == 1:
        pairs, _ = labelled_batches(data, batch_size, model, need_labels=False)
        yield from (images for images, _ in pairs if len(images))
        return
    for start in range(0, len(data[0]), batch_size):
        yield [part[start : start + batch_size] for part in data]


def _in_memory(dataset: Any, image_rank: int | None) -> Batch | None:
    """Returns arrays as one batch of all, `None` of batches."""
    if isinstance(dataset, tuple) and 1 <= len(dataset) <= 3:
        if all(_is_pair(part, image_rank) for part in dataset):
            return None
        x, *rest = dataset
        x = _inputs_as_arrays(x, image_rank)
        count = len(keras.tree.flatten(x)[0])
        return Batch(x, *(_targets_as_arrays(part, count) for part in rest))
    if isinstance(dataset, dict) or _is_array(dataset):
        return Batch(_inputs_as_arrays(dataset, image_rank))
    if isinstance(dataset, list) and dataset:
        first = dataset[0]
        is_image = _is_array(first) and len(first.shape) + 1 == image_rank
        is_nested = isinstance(first, list) and not any(map(_is_array, first))
        if is_image or is_nested:
            return Batch(np.asarray(dataset))
    return None


def _cut(whole: Batch, batch_size: int) -> tuple[Iterator[Batch], int]:
    total = len(keras.tree.flatten(whole.x)[0])
    for leaf in keras.tree.flatten(tuple(whole)):
        if leaf is not None and np.shape(leaf)[:1] != (total,):
            raise ValueError(
                "There must be one label for each image. Received: "
                f"{total} images and labels of the shape {np.shape(leaf)}."
            )
    starts = range(0, total, batch_size)

    def part_from(start: int) -> Batch:
        def cut(leaf: Any) -> Any:
            return None if leaf is None else leaf[start : start + batch_size]

        return Batch(*keras.tree.map_structure(cut, tuple(whole)))

    return map(part_from, starts), len(starts)


def _batch(batch: Any) -> Batch:
    """Returns an element of an iterable as a batch."""
    if isinstance(batch, (tuple, list)):
        if not 1 <= len(batch) <= 3:
            raise ValueError(
                "Each batch must be (images, labels), or images alone. "
                f"Received: {type(batch).__name__} of {len(batch)} parts."
            )
        return Batch(*batch)
    return Batch(batch)


def _pairs(
    batches: Iterable[Batch], shape: tuple[int | None, ...], need_labels: bool
) -> Iterator[tuple[Array, Any]]:
    start = 0
    for batch in batches:
        images = np.asarray(_images(batch.x))
        _check_images(images, shape, start)
        labels = _labels(batch)
        if labels is None and need_labels:
            raise ValueError(
                "Labels are needed: give (images, labels), or batches of both. "
                "Received: images alone."
            )
        if labels is not None and np.shape(labels)[:1] != (len(images),):
            raise ValueError(
                "There must be one label for each image of a batch. Received: "
                f"{len(images)} images and labels of the shape "
                f"{np.shape(labels)}."
            )
        yield images, labels
        start += len(images)


def _check_images(
    images: Array, shape: tuple[int | None, ...], start: int
) -> None:
    if images.dtype.kind in "OUS" or images.ndim == 0:
        raise ValueError(
            "Images must be arrays of numbers. Received: an array of "
            f"{images.dtype} of the shape {images.shape}."
        )
    _check_shape(images.shape, shape)
    check_images(images, start)


def _check_shape(given: Any, shape: tuple[int | None, ...]) -> None:
    """Raises `ValueError` if the shape of a batch is that of an image."""
    if len(given) == len(shape) and all(
        known in (None, size) for known, size in zip(shape, given, strict=True)
    ):
        raise ValueError(
            "`dataset` must yield batches, not single images; use "
            "`dataset.batch(64)`, or `image[None]` of one image. Received: "
            f"an array of the shape {tuple(given)}."
        )


def _images(x: Any) -> Any:
    """Returns the images among a network's inputs."""
    if isinstance(x, dict):
        names = [name for name in x if name != "labels"]
        if "images" not in x and len(names) != 1:
            raise ValueError(
                "Of several inputs one must be called 'images'. Received: "
                f"{sorted(x)}."
            )
        return x["images"] if "images" in x else x[names[0]]
    if isinstance(x, (list, tuple)) and x and _is_array(x[0]):
        if len(x) > 1:
            raise ValueError(
                "Several inputs must be a dict of them, such as {'images': "
                f"..., 'labels': ...}}. Received: a list of {len(x)}."
            )
        return x[0]
    return x


def _labels(batch: Batch) -> Any:
    """Returns the labels among a network's targets, `None` without any."""
    x, y = batch.x, batch.y
    if y is None:
        return x.get("labels") if isinstance(x, dict) else None
    if isinstance(y, dict):
        known = [name for name in _OF_LABELS if name in y]
        if not known and len(y) > 1:
            raise ValueError(
                "Of several targets one must be called 'lengths', the labels. "
                f"Received: {sorted(y)}."
            )
        return y[known[0]] if known else next(iter(y.values()), None)
    if isinstance(y, (list, tuple)) and y and np.ndim(y[0]):
        # A tuple is of targets; a list may be of rows, one for each image.
        rows = len(y) == len(keras.tree.flatten(x)[0])
        alike = len({np.ndim(value) for value in y}) == 1
        is_rows = isinstance(y, list) and rows and alike
        return y if is_rows or not _is_array(y[0]) else y[0]
    return y


def _is_pair(part: Any, image_rank: int | None) -> bool:
    """Tells whether a part of a tuple is a batch of images and labels."""
    if not isinstance(part, tuple) or not 1 <= len(part) <= 3:
        return False
    first = part[0]
    of_rank = _is_array(first) and len(first.shape) == image_rank
    return isinstance(first, dict) or of_rank


def _inputs_as_arrays(x: Any, image_rank: int | None) -> Any:
    """Returns inputs as an array, or as a dict or list of arrays."""
    if isinstance(x, dict):
        return {name: np.asarray(value) for name, value in x.items()}
    if isinstance(x, (list, tuple)) and x and _is_array(x[0]):
        if len(x[0].shape) + 1 != image_rank:
            return [np.asarray(value) for value in x]
    return np.asarray(x)


def _targets_as_arrays(y: Any, count: int) -> Any:
    """Returns targets of `count` images as `_inputs_as_arrays` does."""
    if y is None:
        return None
    if isinstance(y, dict):
        return {name: np.asarray(value) for name, value in y.items()}
    if isinstance(y, (list, tuple)) and y and len(y) != count:
        if np.shape(y[0])[:1] == (count,):
            return tuple(np.asarray(value) for value in y)
    return np.asarray(y)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _known_count(dataset: Any) -> int | None:
    """Returns the number of batches that a data set says to have."""
    cardinality = getattr(dataset, "cardinality", None)
    if not callable(cardinality):
        return None
    count = int(cardinality())
    if count == _INFINITE:
        raise ValueError(_NEVER_ENDS)
    return count if count >= 0 else None
