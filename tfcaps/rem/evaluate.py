"""Measures a capsule network: accuracy, parse trees, entropy, sparsity."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.ops import quantize
from tfcaps.rem.couplings import (
    PlainAndQuantized,
    encoder,
    last_routed_layer,
)
from tfcaps.rem.dictionary import CouplingDictionary
from tfcaps.rem.metrics import t_score
from tfcaps.rem.pruning import sparsity
from tfcaps.rem.report import Report

Array = NDArray[Any]


def evaluate(
    model: keras.Model,
    dataset: Any,
    levels: int = 11,
    *,
    batch_size: int = 256,
    verbose: int = 0,
) -> Report:
    """Measures what REM is about.

    Runs the model as it is, for the accuracy and the T-score, and with
    quantised couplings, for the accuracy and the dictionary of parse trees.

    Args:
        model: A functional or sequential model with a routed layer, from images
            to class lengths or poses.
        dataset: A tuple `(images, labels)` of arrays, or an iterable of such
            batches: a `tf.data.Dataset`, a `keras.utils.PyDataset`, a list.
            Labels are class indices or one-hot. Every sample counts, so do not
            drop the last partial batch.
        levels: Int in [2, 256]. Levels of the couplings. The uniform coupling
            1/J should be one of them, as with 11 levels and ten classes.
            Defaults to `11`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        verbose: 0 or 1. Show a progress bar. Defaults to `0`.

    Returns:
        A `Report`, which prints as a table and saves as JSON.

    Raises:
        ValueError: If the model has no routed layer, the data set is empty, a
            label is out of range, or `levels` is.
    """
    return Evaluator(model, levels).run(
        dataset, batch_size=batch_size, verbose=verbose
    )


class Evaluator:
    """`evaluate` for repeated use on one model, compiled once.

    Args:
        model: As in `evaluate`. Its weights may change between runs.
        levels: As in `evaluate`.
    """

    def __init__(self, model: keras.Model, levels: int = 11):
        if not 2 <= levels <= 256:
            raise ValueError(
                f"`levels` must be in [2, 256]. Received: levels={levels}."
            )
        last_routed_layer(model)  # its absence is the clearer error
        self.model = encoder(model)
        self.levels = levels
        self._outputs = PlainAndQuantized(self.model, levels)
        self._measures = _measures(self.model, self._outputs, levels)

    def run(
        self, dataset: Any, *, batch_size: int = 256, verbose: int = 0
    ) -> Report:
        """Measures the model on a data set, see `evaluate`."""
        self._outputs.update()
        parents = int(self._measures.output["lengths"].shape[-1])
        uniform = int(quantize(1.0 / parents, self.levels))
        trees = CouplingDictionary(parents)
        samples = right = right_quantized = nonuniform = codes = 0
        t_scores = 0.0
        batches, count = _batches(dataset, batch_size)
        bar = keras.utils.Progbar(count, verbose=verbose, unit_name="batch")
        for images, labels in batches:
            labels = _class_indices(np.asarray(labels), parents)
            batch = self._predict(images)
            keys, predicted = batch["keys"], batch["predicted"]
            trees.update(keys, predicted)
            samples += len(labels)
            right += np.sum(np.argmax(batch["lengths"], axis=-1) == labels)
            right_quantized += np.sum(predicted == labels)
            nonuniform += np.sum(keys != uniform)
            codes += keys.size
            t_scores += float(np.sum(batch["t_score"], dtype=np.float64))
            bar.add(1)
        if not samples:
            raise ValueError(
                "The data set has no samples. A generator can be read only "
                "once; pass arrays or a `tf.data.Dataset`."
            )
        nonzero, total = _count_parameters(self.model)
        return Report(
            levels=self.levels,
            accuracy=float(right / samples),
            accuracy_quantized=float(right_quantized / samples),
            nonuniform_share=float(nonuniform / codes),
            t_score=t_scores / samples,
            sparsity=sparsity(self.model),
            nonzero_parameters=nonzero,
            total_parameters=total,
            dictionary=trees,
        )

    def _predict(self, images: Array) -> dict[str, Array]:
        strategy = getattr(self._measures, "distribute_strategy", None)
        if strategy is not None and strategy.num_replicas_in_sync > 1:
            # `predict_on_batch` would give every replica the whole batch.
            return self._measures.predict(images, verbose=0)
        return self._measures.predict_on_batch(images)


def _measures(
    model: keras.Model, outputs: PlainAndQuantized, levels: int
) -> keras.Model:
    """From images to what `run` adds up, all that leaves the device.

    `lengths` `[b, j]` and `t_score` `[b]` of the model as it is, `predicted`
    `[b]` and `keys` `[b, i]` (uint8) with quantised couplings.
    """
    plain, rounded = outputs.plain, outputs.quantized
    if len(plain["couplings"].shape) != 3:
        raise ValueError(
            f"The last routed layer of {model.name!r} is a "
            f"{type(last_routed_layer(model)).__name__}, whose children differ "
            "from window to window. Parse trees need class capsules, such as "
            "`tfcaps.layers.ClassCaps`, at the end."
        )
    predicted = ops.argmax(rounded["lengths"], axis=-1)
    column = ops.expand_dims(ops.expand_dims(predicted, -1), -1)
    couplings = ops.take_along_axis(rounded["couplings"], column, axis=-1)
    codes = quantize(ops.squeeze(couplings, axis=-1), levels)
    measures = keras.Model(
        outputs.input,
        {
            "lengths": plain["lengths"],
            "t_score": t_score(plain["couplings"]),
            "predicted": predicted,
            "keys": ops.cast(codes, "uint8"),
        },
    )
    measures.compile()
    return measures


def _batches(
    dataset: Any, batch_size: int
) -> tuple[Iterable[tuple[Array, Array]], int | None]:
    """Returns batches, and how many there are if that is known."""
    if isinstance(dataset, tuple) and len(dataset) == 2:
        images, labels = (np.asarray(part) for part in dataset)
        if len(images) != len(labels):
            raise ValueError(
                "There must be one label for each image. Received: "
                f"{len(images)} images and {len(labels)} labels."
            )
        starts = range(0, len(images), batch_size)
        parts = (slice(start, start + batch_size) for start in starts)
        return ((images[part], labels[part]) for part in parts), len(starts)
    if isinstance(dataset, keras.utils.PyDataset):
        count = dataset.num_batches
        return (dataset[index] for index in range(count)), count
    if isinstance(dataset, Iterable):
        return dataset, None
    raise ValueError(
        "`dataset` must be (images, labels) or an iterable of such batches. "
        f"Received: {type(dataset).__name__}."
    )


def _class_indices(labels: Array, classes: int) -> Array:
    if labels.ndim == 2 and labels.shape[1] == classes and classes > 1:
        return np.argmax(labels, axis=-1)
    labels = labels.reshape(-1)
    if labels.size and not (0 <= labels.min() and labels.max() < classes):
        raise ValueError(
            f"Labels must be in [0, {classes - 1}]. Received: "
            f"{labels.min()} to {labels.max()}."
        )
    return labels


def _count_parameters(model: keras.Model) -> tuple[int, int]:
    """Returns the parameters that are not zero, and all."""
    arrays = [ops.convert_to_numpy(variable) for variable in model.weights]
    nonzero = sum(int(np.count_nonzero(array)) for array in arrays)
    return nonzero, sum(array.size for array in arrays)
