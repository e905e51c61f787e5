"""Counts accuracy and couplings while a model sees a data set."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.batches import NO_SAMPLES
from tfcaps.rem.labels import NO_CLASS, rightly_told
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
        self._without_class = 0
        self._told = np.zeros(2, int)  # right with one class, also quantised

    def add(self, batch: dict[str, Array], labels: Array) -> None:
        """Adds the measures of a batch, as `Evaluator` makes them.

        Images of no class, -1, are counted and left out.
        """
        if self._num_classes == 1:
            for k, name in enumerate(("lengths", "lengths_quantized")):
                self._told[k] += np.sum(rightly_told(labels, batch[name]))
        known = labels != NO_CLASS
        if not np.all(known):
            self._without_class += int(np.sum(~known))
            batch = {name: array[known] for name, array in batch.items()}
            labels = labels[known]
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
            if self._without_class:
                raise ValueError(
                    "Some image must be of a class. Received: "
                    f"{self._without_class} images of no class."
                )
            raise ValueError(NO_SAMPLES)
        accuracies = np.array([self._right, self._right_quantized])
        accuracies = accuracies / self._samples
        if self._num_classes == 1:
            accuracies = self._told / (self._samples + self._without_class)
        zero = [
            name
            for name, largest in zip(self._layers, self._largest, strict=True)
            if largest == 0
        ]
        t_scores = np.asarray(self._t_scores) / self._samples
        left = t_scores[voting]
        return {
            "accuracy": float(accuracies[0]),
            "accuracy_quantized": float(accuracies[1]),
            "without_class": self._without_class,
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
