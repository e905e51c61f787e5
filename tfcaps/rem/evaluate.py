"""Measures a capsule network: accuracy, parse trees, entropy, sparsity."""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps import xla
from tfcaps.ops import quantize
from tfcaps.rem.couplings import capsule_outputs, quantize_couplings
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
        dataset: `(images, labels)` arrays, or an iterable of such batches, such
            as a `tf.data.Dataset`. Labels are class indices or one-hot. Every
            sample counts, so do not drop the last partial batch.
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
        self.model = model
        self.levels = levels
        self._quantized = quantize_couplings(model, levels)
        self._plain_outputs = _with_t_score(model)
        self._quantized_outputs = _with_keys(self._quantized, levels)

    def run(
        self, dataset: Any, *, batch_size: int = 256, verbose: int = 0
    ) -> Report:
        """Measures the model on a data set, see `evaluate`."""
        self._quantized.set_weights(self.model.get_weights())
        parents = int(self._plain_outputs.output["lengths"].shape[-1])
        uniform = int(quantize(1.0 / parents, self.levels))
        trees = CouplingDictionary(parents)
        samples = right = right_quantized = nonuniform = codes = 0
        t_scores = 0.0
        bar = keras.utils.Progbar(None, verbose=verbose, unit_name="batch")
        for images, labels in _batches(dataset, batch_size):
            labels = _class_indices(labels, parents)
            plain = self._plain_outputs.predict_on_batch(images)
            quantized = self._quantized_outputs.predict_on_batch(images)
            predicted = np.argmax(quantized["lengths"], axis=-1)
            keys = quantized["keys"]
            trees.update(keys, predicted)
            samples += len(labels)
            right += np.sum(np.argmax(plain["lengths"], axis=-1) == labels)
            right_quantized += np.sum(predicted == labels)
            nonuniform += np.sum(keys != uniform)
            codes += keys.size
            t_scores += float(np.sum(plain["t_score"], dtype=np.float64))
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


def _with_t_score(model: keras.Model) -> keras.Model:
    outputs = capsule_outputs(model)
    score = t_score(outputs.output["couplings"])
    lengths = outputs.output["lengths"]
    return _compiled(outputs, {"lengths": lengths, "t_score": score})


def _with_keys(quantized: keras.Model, levels: int) -> keras.Model:
    """Codes `[b, i]` towards the predicted class, as uint8."""
    outputs = capsule_outputs(quantized)
    lengths = outputs.output["lengths"]
    predicted = ops.argmax(lengths, axis=-1)
    column = ops.expand_dims(ops.expand_dims(predicted, -1), -1)
    couplings = ops.take_along_axis(
        outputs.output["couplings"], column, axis=-1
    )
    codes = quantize(ops.squeeze(couplings, axis=-1), levels)
    keys = ops.cast(codes, "uint8")
    return _compiled(outputs, {"lengths": lengths, "keys": keys})


def _compiled(model: keras.Model, outputs: dict[str, Any]) -> keras.Model:
    model = keras.Model(model.inputs, outputs)
    model.compile(jit_compile=xla.pays())
    return model


def _batches(dataset: Any, batch_size: int) -> Iterator[tuple[Array, Array]]:
    if not isinstance(dataset, Iterable):
        raise ValueError(
            "`dataset` must be (images, labels) or an iterable of such "
            f"batches. Received: {type(dataset).__name__}."
        )
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        images, labels = (np.asarray(part) for part in dataset)
        if len(images) != len(labels):
            raise ValueError(
                "There must be one label for each image. Received: "
                f"{len(images)} images and {len(labels)} labels."
            )
        for start in range(0, len(images), batch_size):
            part = slice(start, start + batch_size)
            yield images[part], labels[part]
        return
    for images, labels in dataset:
        yield images, np.asarray(labels)


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
