"""Counts accuracy and couplings while a model sees a data set."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.parse.dictionary import CouplingDictionary

Array = NDArray[Any]


class EvaluationCounts:
    """Adds up the measures of batches.

    A sample's key is counted once: under its class if that is predicted right,
    else under the predicted class and, another key, under the true one.

    Args:
        num_classes: Int.
        uniform: The code of the uniform coupling.
        layers: Names of the layers that round their couplings.
    """

    def __init__(self, num_classes: int, uniform: int, layers: list[str]):
        self._num_classes = num_classes
        self._uniform = uniform
        self._layers = layers
        self._correct, self._mistaken, self._missed = (
            CouplingDictionary(num_classes) for _ in range(3)
        )
        self._samples = self._right = self._right_quantized = 0
        self._nonuniform = self._leaves = self._codes = self._whole = 0
        self._t_scores: Array | float = 0.0  # of each child
        self._largest = np.zeros(len(layers))

    def add(self, batch: dict[str, Array], labels: Array) -> None:
        """Adds the measures of a batch, as `Evaluator` makes them."""
        keys, predicted = batch["keys"], batch["predicted"]
        right = predicted == labels
        wrong = ~right
        self._correct.update(keys[right], predicted[right])
        self._mistaken.update(keys[wrong], predicted[wrong])
        self._missed.update(batch["true_keys"][wrong], labels[wrong])
        self._samples += len(labels)
        self._right += int(np.sum(batch["lengths"].argmax(axis=-1) == labels))
        self._right_quantized += int(np.sum(right))
        self._nonuniform += int(np.sum(keys != self._uniform))
        self._leaves += int(np.sum(batch["leaves"]))
        self._whole += int(np.sum(batch["leaves"] == keys.shape[-1]))
        self._codes += keys.size
        self._t_scores += np.sum(batch["t_scores"], axis=0, dtype=np.float64)
        largest = np.max(batch["largest"], axis=0, initial=0.0)
        self._largest = np.maximum(self._largest, largest)

    def measures(self, voting: Array) -> dict[str, Any]:
        """Returns fields of `Report`.

        Args:
            voting: Which children pruning has left a vote, bool `[i]`.

        Raises:
            ValueError: If there was no sample.
        """
        if not self._samples:
            raise ValueError(
                "The data set has no samples. A generator can be read only "
                "once; pass arrays or a `tf.data.Dataset`."
            )
        zero = [
            name
            for name, largest in zip(self._layers, self._largest, strict=True)
            if largest == 0
        ]
        t_scores = np.asarray(self._t_scores) / self._samples
        left = t_scores[voting]
        return {
            "accuracy": self._right / self._samples,
            "accuracy_quantized": self._right_quantized / self._samples,
            "nonuniform_share": self._nonuniform / self._codes,
            "strong_share": self._leaves / self._codes,
            "whole_share": self._whole / self._samples,
            "t_score": float(np.mean(t_scores)),
            "t_score_voting": float(np.mean(left)) if left.size else 0.0,
            "voting_children": int(np.sum(voting)),
            "zero_layers": zero,
            "dictionaries": {
                "predicted": self._merged(self._mistaken),
                "true": self._merged(self._missed),
                "correct": self._merged(),
            },
        }

    def _merged(self, *wrong: CouplingDictionary) -> CouplingDictionary:
        """Returns a dictionary of right predictions, and of wrong ones."""
        trees = CouplingDictionary(self._num_classes)
        for part in (self._correct, *wrong):
            trees.merge(part)
        return trees
