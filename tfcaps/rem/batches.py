"""Data as `fit` takes them, batch by batch, and a model's outputs for them."""

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps.finite import check_finite, check_images
from tfcaps.ops import Array

# Outputs whose targets are the labels.
_OF_LABELS = ("lengths", "couplings", "counterfactual")
_INFINITE, _UNKNOWN = -1, -2  # what `tf.data.Dataset.cardinality` says
# Numbers that the layers of a network make at most at once, as all are kept
# until the last layer is done where it runs eagerly: 256 MB.
_AT_ONCE = 2**26

NO_SAMPLES = (
    "The data set has no samples. A generator can be read only once; pass "
    "arrays or a `tf.data.Dataset`."
)


class Batch(NamedTuple):
    """The arrays, or dicts or lists of them, that `fit` takes for one step."""

    x: Any
    y: Any = None
    sample_weight: Any = None


def batches_of(
    dataset: Any, batch_size: int
) -> tuple[Iterator[Batch], int | None]:
    """Returns batches of what `fit` takes, and how many if that is known.

    They are cut from a tuple `(x, y)` or `(x, y, sample_weight)` of arrays, or
    dicts or lists of them, or from `x` alone; or it has them, as an iterable.
    """
    if batch_size < 1:
        raise ValueError(
            "There must be at least one image in a batch. Received: "
            f"batch_size={batch_size}."
        )
    if isinstance(dataset, (tuple, dict)) or _is_array(dataset):
        return _cut(_batch(dataset), batch_size)
    if not isinstance(dataset, Iterable | keras.utils.PyDataset) or isinstance(
        dataset, (str, bytes)
    ):
        raise ValueError(
            "`dataset` must be (images, labels) or an iterable of such batches."
            f" Received: {type(dataset).__name__}."
        )
    count = _known_count(dataset)
    if isinstance(dataset, keras.utils.PyDataset):
        dataset = _epoch(dataset)
    return map(_batch, dataset), count


def _epoch(dataset: keras.utils.PyDataset) -> Iterator[Any]:
    """Yields the batches of an epoch, which begins and ends as for `fit`."""
    dataset.on_epoch_begin()
    try:
        for index in range(dataset.num_batches):
            yield dataset[index]
    finally:
        dataset.on_epoch_end()


def labelled_batches(
    dataset: Any,
    batch_size: int,
    model: keras.Model,
    *,
    need_labels: bool = True,
) -> tuple[Iterator[tuple[Array, Any]], int | None]:
    """Returns pairs of images and labels, and how many if that is known.

    Of several inputs it takes `images`, of several targets `lengths`. Without
    targets the labels are the input of that name.
    """
    shape = tuple(model.inputs[0].shape[1:])
    whole = dataset[0] if isinstance(dataset, tuple) and dataset else dataset
    if _is_array(whole):
        _check_shape(whole.shape, shape)
    batches, count = batches_of(dataset, batch_size)
    return _pairs(batches, shape, need_labels), count


def predict(model: keras.Model, inputs: Any) -> Any:
    """Returns a model's outputs for one batch, as arrays.

    It runs as many samples at once as there is room for.
    """
    count = max(1, len(keras.tree.flatten(inputs)[0]))
    most = max(1, _AT_ONCE // max(1, _numbers(model)))
    # Parts are about as large, since smaller ones are filled up.
    step = math.ceil(count / math.ceil(count / most))
    parts = []
    for start in range(0, count, step):
        some = operator.itemgetter(slice(start, start + step))
        parts.append(_predicted(model, keras.tree.map_structure(some, inputs)))
    arrays = keras.tree.map_structure(
        lambda *x: np.concatenate([*map(keras.ops.convert_to_numpy, x)]), *parts
    )
    check_finite(arrays, model)
    return arrays


def _predicted(model: keras.Model, inputs: Any) -> Any:
    strategy = getattr(model, "distribute_strategy", None)
    if keras.backend.backend() == "tensorflow" and not model.compiled:
        # Tracing takes seconds for a large routing. Keras' own layers of random
        # images are in training unless told otherwise.
        return model(inputs, training=False)
    if strategy is not None and strategy.num_replicas_in_sync > 1:
        # `predict_on_batch` would give every replica the whole batch.
        return model.predict(inputs, verbose=0)
    # A smaller batch is padded, so that nothing is compiled anew.
    count = len(keras.tree.flatten(inputs)[0])
    missing = max(getattr(model, "largest_batch", 0) - count, 0)
    model.largest_batch = count + missing
    if missing:
        inputs = keras.tree.map_structure(
            lambda x: np.concatenate([x, np.repeat(x[-1:], missing, 0)]), inputs
        )
    outputs = model.predict_on_batch(inputs)
    return keras.tree.map_structure(lambda x: x[:count], outputs)


def _numbers(model: keras.Model) -> int:
    """Returns how many numbers the layers of a model make of a sample."""
    total = 0
    for layer in model.layers:
        inside = getattr(layer, "model", layer)  # as of a frozen backbone
        if isinstance(inside, keras.Model):
            times = getattr(layer, "calls_a_sample", 1)
            total += times * _numbers(inside)
        for tensor in keras.tree.flatten(getattr(layer, "output", [])):
            total += math.prod(size or 1 for size in tensor.shape[1:])
    return total


def _cut(whole: Batch, batch_size: int) -> tuple[Iterator[Batch], int]:
    """Cuts arrays, and lists or dicts of arrays, into batches."""
    x = _as_arrays(whole.x)
    total = len(keras.tree.flatten(x)[0])
    whole = Batch(x, *(_as_arrays(part, total) for part in whole[1:]))
    for leaf in keras.tree.flatten(tuple(whole)):
        if leaf is not None:
            _check_count(leaf, total)

    def part_from(start: int) -> Batch:
        return keras.tree.map_structure(
            lambda leaf: leaf if leaf is None else leaf[start:][:batch_size],
            whole,
        )

    starts = range(0, total, batch_size)
    return map(part_from, starts), len(starts)


def _check_count(labels: Any, images: int) -> None:
    """Raises `ValueError` unless there are so many labels."""
    if np.shape(labels)[:1] != (images,):
        raise ValueError(
            "There must be one label for each image. Received: "
            f"{images} images and labels of the shape {np.shape(labels)}."
        )


def _as_arrays(values: Any, count: int | None = None) -> Any:
    """Returns an array, or a dict or list of those, unless of `count` rows."""
    if values is None:
        return None
    if isinstance(values, dict):
        return {name: np.asarray(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)) and values and _is_array(values[0]):
        if len(values) != count:
            return [np.asarray(value) for value in values]
    return np.asarray(values)


def _batch(batch: Any) -> Batch:
    """Returns a tuple, or an element of an iterable, as a batch."""
    if not isinstance(batch, (tuple, list)):
        return Batch(batch)
    if not 1 <= len(batch) <= 3:
        raise ValueError(
            "Each batch must be (images, labels), or images alone. Received: "
            f"{type(batch).__name__} of {len(batch)} parts."
        )
    return Batch(*batch)


def _pairs(
    batches: Iterable[Batch], shape: tuple[int | None, ...], need_labels: bool
) -> Iterator[tuple[Array, Any]]:
    start = 0
    for batch in batches:
        images = np.asarray(_images(batch.x))
        if not images.size:
            continue  # there is nothing to run, which some backends cannot
        if images.dtype.kind in "OUS" or images.ndim == 0:
            raise ValueError(
                "Images must be arrays of numbers. Received: an array of "
                f"{images.dtype} of the shape {images.shape}."
            )
        _check_shape(images.shape, shape)
        check_images(images, start)
        labels = _labels(batch)
        if labels is None and need_labels:
            raise ValueError(
                "Labels are needed: give (images, labels), or batches of both. "
                "Received: images alone."
            )
        if labels is not None:
            _check_count(labels, len(images))
        yield images, labels
        start += len(images)


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
        return x.get("images", x[names[0]])
    if not (isinstance(x, (list, tuple)) and x and _is_array(x[0])):
        return x
    if len(x) > 1:
        raise ValueError(
            "Several inputs must be a dict of them, such as {'images': "
            f"..., 'labels': ...}}. Received: a list of {len(x)}."
        )
    return x[0]


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
    is_list = isinstance(y, (list, tuple)) and y and _is_array(y[0])
    return y[0] if is_list and np.ndim(y[0]) else y


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _known_count(dataset: Any) -> int | None:
    """Returns the number of batches that a data set says to have."""
    if isinstance(dataset, keras.utils.PyDataset):
        count = dataset.num_batches
        count = _INFINITE if count is None else count
    else:
        cardinality = getattr(dataset, "cardinality", None)
        count = int(cardinality()) if callable(cardinality) else _UNKNOWN
    if count == _INFINITE:
        raise ValueError(
            "The data set never ends, so that it cannot be measured. Leave out "
            "`repeat()`, or use `dataset.take(...)`."
        )
    return count if count >= 0 else None
