"""Measures a capsule network: accuracy, parse trees, entropy, sparsity."""

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import (
    clone_with_call,
    cut,
    encoder,
    is_routed,
    keep_pruned,
    last_routed_layer,
    routed_layers,
)
from tfcaps.layers import ClassCaps
from tfcaps.ops import (
    Tensor,
    as_float32,
    check_mode,
    longest,
    quantize,
    towards_class,
)
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches, predict
from tfcaps.rem.evaluation.faithfulness import (
    faithfulness as measure_faithfulness,
)
from tfcaps.rem.evaluation.report import Report
from tfcaps.rem.finite import check_finite, check_weights
from tfcaps.rem.labels import NO_CLASS, class_of_each, rightly_told
from tfcaps.rem.multiply_adds import multiply_adds
from tfcaps.rem.parse.couplings import (
    Levels,
    layer_levels,
    show_last,
    shown_outputs,
    with_levels,
)
from tfcaps.rem.parse.dictionary import CouplingDictionary, Grid
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold
from tfcaps.rem.parse.with_couplings import (
    LostWithoutTree,
    voting_children,
    with_couplings,
)
from tfcaps.rem.pruning.sparsity import count_parameters, sparsity

Array = NDArray[Any]

# Keys are bytes.
_MOST_LEVELS = 256


def evaluate(
    model: keras.Model,
    dataset: Any,
    levels: Levels = 11,
    *,
    mode: str = "midtread",
    batch_size: int = 256,
    faithfulness: bool = False,
    verbose: int = 0,
) -> Report:
    """Measures accuracy, parse trees, entropy and sparsity.

    Runs the model as it is, for accuracy and T-score. Runs it with quantised
    couplings in all routed layers, for accuracy and for the dictionaries of
    parse trees, which are those of the last layer.

    Args:
        model: A functional or sequential model with a routed layer, from images
            to class lengths or poses.
        dataset: What `fit` takes: a tuple `(images, labels)` of arrays, or an
            iterable of such batches: a `tf.data.Dataset`, a
            `keras.utils.PyDataset`, a list. Of several inputs it takes
            `images`, of several targets `lengths`. Labels are class indices,
            -1 for an image of no class, or rows `[b, j]`: one-hot or soft,
            which sum to 1, or of zeros and ones, of which several or none may
            be 1. Of several classes the one with the longest capsule counts;
            images of no class are left out, and the report says how many. With
            one class, labels are 1 where it is there and 0 where not, and the
            accuracy is that of a capsule longer than a half. Every sample
            counts once, whatever its weight, so do not drop the last partial
            batch.
        levels: Int in [2, 256], or several, one for each routed layer, as in
            `quantize_couplings`; the last routed layer must have some. The
            uniform coupling 1/J should be a level, as with 11 levels and ten
            classes. Defaults to `11`.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`. Defaults
            to `"midtread"`.
        batch_size: Int. Size of the batches cut from arrays. Defaults to `256`.
        faithfulness: Bool. Also measure whether the network uses its trees, by
            `tfcaps.rem.faithfulness` with its defaults, for which the data set
            is read a second time. Defaults to `False`.
        verbose: 0 or 1. Show a progress bar. Defaults to `0`.

    Returns:
        A `Report`, which prints as a table and saves as JSON.

    Raises:
        ValueError: If the model has no routed layer, the data set is empty or
            never ends, a label is out of range or `levels` is, or what the
            network returns is not finite.
    """
    report = Evaluator(model, levels, mode=mode).run(
        dataset, batch_size=batch_size, verbose=verbose
    )
    if not faithfulness:
        return report
    used = measure_faithfulness(
        model, dataset, batch_size=batch_size, verbose=verbose
    )
    return dataclasses.replace(report, faithfulness=used)


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


class Evaluator:
    """`evaluate` for repeated use on one model, compiled once.

    Args:
        model: As in `evaluate`. Its weights may change between runs.
        levels: As in `evaluate`.
        mode: As in `evaluate`.

    Attributes:
        levels: Levels of the last routed layer.
        levels_per_layer: Levels of each layer that is rounded, by its name.
        mode: As given.
        below: The network from images to the list of all tensors that do not
            depend on the rounding of couplings.
        plain: From this list to the measures without rounding.
        rounded: From this list and class indices to those with it.
            `EvaluationCounts` takes the measures of both together.
        grid: Rows, columns and types of the children, or `None` where they have
            no positions.
    """

    def __init__(
        self,
        model: keras.Model,
        levels: Levels = 11,
        *,
        mode: str = "midtread",
    ):
        routed_layers(model)  # their absence is the clearer error
        self.model = encoder(model)
        layers = routed_layers(self.model)
        self.levels_per_layer = layer_levels(layers, levels, most=_MOST_LEVELS)
        self.mode = check_mode(mode)
        last = layers[-1]
        if last.name not in self.levels_per_layer:
            raise ValueError(
                "`levels` must name the last routed layer, whose couplings "
                f"make the parse trees, {last.name!r}. Received: "
                f"levels={levels}."
            )
        self.levels = self.levels_per_layer[last.name]
        self._copies: dict[int, tuple[Any, Any]] = {}
        lowest = next(x for x in layers if x.name in self.levels_per_layer)
        self.below, above = cut(self.model, lowest, first=True)
        shown: dict[str, Tensor] = {}
        outputs = _outputs(above, show_last(above, shown), shown)
        if len(outputs["couplings"].shape) != 3:
            raise ValueError(
                f"The last routed layer of {self.model.name!r} is a "
                f"{type(last).__name__}, whose children differ from window to "
                "window. Parse trees need class capsules, such as "
                "`tfcaps.layers.ClassCaps`, at the end."
            )
        self._children, self.num_classes = outputs["couplings"].shape[1:]
        self._last, self._inputs = last, outputs["children"].shape
        self.grid = _grid(last, self._inputs)
        self.plain = _compiled(
            above.inputs, self._plain_measures(outputs, _lost(last, outputs))
        )
        rounded: dict[str, Tensor] = {}
        outputs = _outputs(above, self._rounds(above, shown, rounded), shown)
        rounded[last.name] = outputs["couplings"]
        labels = keras.Input((), dtype="int32", name="labels")
        self.rounded = _compiled(
            [*above.inputs, labels],
            self._rounded_measures(
                outputs, rounded, labels, _lost(self._rounding(last), outputs)
            ),
        )

    def run(
        self, dataset: Any, *, batch_size: int = 256, verbose: int = 0
    ) -> Report:
        """Measures the model on a data set, see `evaluate`."""
        self.update()
        counts = self.counts()
        batches, count = labelled_batches(dataset, batch_size, self.model)
        bar = keras.utils.Progbar(count, verbose=verbose, unit_name="batch")
        for images, labels in batches:
            lengths = partial(self._lengths, images)
            classes = class_of_each(labels, self.num_classes, lengths)
            inputs = [images, np.maximum(classes, 0).astype("int32")]
            batch = predict(self._network, inputs, compiled=True)
            check_finite(batch, self.model)
            counts.add(batch, classes)
            bar.add(1)
        return self.report(counts)

    def _lengths(self, images: Any) -> Array:
        """Returns the lengths, by which one of several classes is chosen."""
        no_labels = np.zeros(len(images), "int32")
        inputs = [images, no_labels]
        lengths: Array = predict(self._network, inputs, compiled=True)[
            "lengths"
        ]
        return lengths

    @cached_property
    def _network(self) -> keras.Model:
        """From images and labels to all measures, in one step."""
        images, labels = self.model.inputs[0], self.rounded.inputs[-1]
        taken = keras.tree.flatten(self.below(images))
        measures = {**self.plain(taken), **self.rounded([*taken, labels])}
        del measures["lost"], measures["lost_rounded"]
        return _compiled([images, labels], measures)

    def update(self) -> None:
        """Gives rounding layers the newest weights of the model.

        Raises:
            ValueError: If a weight is not finite.
        """
        keep_pruned(self.model)
        check_weights(self.model.weights)
        for layer, copy in self._copies.values():
            copy.set_weights(layer.get_weights())

    def counts(self) -> EvaluationCounts:
        """Returns empty counts."""
        uniform = quantize(1.0 / self.num_classes, self.levels, mode=self.mode)
        return EvaluationCounts(
            self.num_classes, int(uniform), list(self.levels_per_layer)
        )

    def report(self, counts: EvaluationCounts) -> Report:
        """Returns the report of the counts, with the sizes of the model."""
        nonzero, total = count_parameters(self.model.weights)
        return Report(
            levels=self.levels,
            levels_per_layer=self.levels_per_layer,
            mode=self.mode,
            sparsity=sparsity(self.model),
            sparsity_paper=sparsity(self.model, scope="paper"),
            sparsity_all=1.0 - nonzero / total,
            nonzero_parameters=nonzero,
            total_parameters=total,
            grid=self.grid,
            tree_threshold=self._last.routing.tree_threshold(self.num_classes),
            **_multiply_adds(self.model),
            **counts.measures(self._voting()),
        )

    def _voting(self) -> Array:
        """Returns a mask of the children that still have a vote, `[i]`."""
        if not isinstance(self._last, ClassCaps):
            return np.ones(self._children, bool)
        return voting_children(self._last, self._inputs, self._children)

    def _rounding(self, layer: Any) -> Any:
        """Returns a rounding copy of a layer, or the layer if not chosen."""
        if not is_routed(layer) or layer.name not in self.levels_per_layer:
            return layer
        if id(layer) not in self._copies:  # it may be called more than once
            name = f"{layer.name}_rounded"  # the two are in one model
            levels = self.levels_per_layer[layer.name]
            copy = with_levels(layer, levels, self.mode, name=name)
            copy.build_from_config(layer.get_build_config())
            self._copies[id(layer)] = layer, copy
        return self._copies[id(layer)][1]

    def _rounds(
        self,
        model: keras.Model,
        shown: dict[str, Tensor],
        rounded: dict[str, Tensor],
    ) -> Callable[..., Any]:
        """Returns a caller of layers that round, which notes couplings."""
        last = last_routed_layer(model)
        call_last = show_last(model, shown, replace=self._rounding)

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            copy = self._rounding(layer)
            if layer is last or copy is layer:
                return call_last(layer, *args, **kwargs)
            outputs, rounded[layer.name] = with_couplings(copy, args, kwargs)
            return outputs

        return call

    def _plain_measures(
        self, outputs: dict[str, Tensor], lost: Tensor
    ) -> dict[str, Tensor]:
        """Returns the measures with couplings as they are.

        `lengths` `[b, j]`, `t_scores` `[b, i]`, `leaves` `[b]`, how many
        children are in the tree of the predicted class, and `lost` `[b]`,
        whether the class is lost without its tree.
        """
        lengths, couplings = outputs["lengths"], outputs["couplings"]
        towards = towards_class(couplings, longest(lengths))
        inside = in_tree(
            as_float32(towards),
            tree_threshold(self._last.routing, self.num_classes),
        )
        return {
            "lengths": lengths,
            "t_scores": t_scores_of_children(couplings),
            "leaves": ops.sum(ops.cast(inside, "int32"), axis=-1),
            "lost": lost,
        }

    def _rounded_measures(
        self,
        outputs: dict[str, Tensor],
        rounded: dict[str, Tensor],
        labels: Tensor,
        lost: Tensor,
    ) -> dict[str, Tensor]:
        """Returns the measures with quantised couplings.

        `predicted` `[b]`, `keys` and `true_keys` `[b, i]` (uint8) towards the
        predicted and the true class, `largest` `[b, layers]`, the largest
        rounded coupling of each layer, `lost_rounded` `[b]`, and with one class
        `lengths_quantized` `[b, 1]`.
        """
        predicted = ops.argmax(outputs["lengths"], axis=-1)
        of_layers = [rounded[name] for name in self.levels_per_layer]
        largest = [
            ops.max(couplings, axis=tuple(range(1, len(couplings.shape))))
            for couplings in of_layers
        ]
        alone = self.num_classes == 1
        return {
            **({"lengths_quantized": outputs["lengths"]} if alone else {}),
            "predicted": predicted,
            "keys": self._keys(outputs["couplings"], predicted),
            "true_keys": self._keys(outputs["couplings"], labels),
            "largest": ops.stack(largest, axis=-1),
            "lost_rounded": lost,
        }

    def _keys(self, couplings: Tensor, classes: Tensor) -> Tensor:
        towards = towards_class(couplings, classes)
        codes = quantize(towards, self.levels, mode=self.mode)
        return ops.cast(codes, "uint8")


def _multiply_adds(model: keras.Model) -> dict[str, Any]:
    """Returns fields of the report, none for images of any size."""
    try:
        counted = multiply_adds(model)
    except ValueError:
        return {}
    return {
        "multiply_adds": counted.total,
        "multiply_adds_per_layer": counted.per_layer,
    }


def _grid(layer: Any, input_shape: Any) -> Grid | None:
    """Returns rows, columns and types of children, `None` without places."""
    if not isinstance(layer, ClassCaps):
        return None
    grid = layer.children_shape(input_shape)
    if len(grid) != 3 or grid[0] * grid[1] == 1:
        return None
    rows, columns, types = grid
    return rows, columns, types


def _outputs(
    model: keras.Model, call: Callable[..., Any], shown: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns `shown`, and the lengths, of the same layers in other calls."""
    copy = clone_with_call(model, call)
    return shown | shown_outputs(copy, shown)


def _lost(layer: Any, outputs: dict[str, Tensor]) -> Tensor:
    """Tells whether classes are lost without their trees, bool `[b]`."""
    return LostWithoutTree(layer, int(outputs["couplings"].shape[-1]))(
        outputs["children"],
        outputs["lengths"],
        outputs["couplings"],
        outputs.get("activations"),
    )


def _compiled(inputs: Any, outputs: Any) -> keras.Model:
    model = keras.Model(inputs, outputs)
    model.compile()
    return model


def t_score(couplings: Tensor) -> Tensor:
    """Measures how tree-like each sample's couplings are.

    `T = mean_i [1 - H(c_i) / ln J]` with the entropy `H` over parents in nats:
    0 if every child is coupled equally to all parents, 1 if each child has one
    parent, as in a tree.

    Args:
        couplings: Unquantised couplings `[b, i, j]`.

    Returns:
        T-scores `[b]`, float32, in [0, 1] where the couplings of a child sum to
        1. (Those of `RegularizedRouting` do not, nor with `leaky=True`, where a
        child that is coupled with no parent counts as one that has chosen.)
        With a single parent there is nothing to choose, and the score is 1.

    References:
        - Peer, Stabinger, Rodriguez-Sanchez, 2018,
          https://arxiv.org/abs/1812.09707
    """
    return ops.mean(t_scores_of_children(couplings), axis=-1)


def t_scores_of_children(couplings: Tensor) -> Tensor:
    """Measures how clearly each child chooses a parent.

    Args:
        couplings: Unquantised couplings `[b, i, j]`.

    Returns:
        `1 - H(c_i) / ln J`, `[b, i]`, whose mean over children is `t_score`.
    """
    parents = couplings.shape[-1]
    if parents == 1:
        return ops.ones_like(couplings[..., 0])
    # Coefficients that are no shares may be negative; these count as none.
    shares = ops.maximum(couplings, 0.0)
    nats = -ops.sum(shares * ops.log(shares + 1e-11), axis=-1)
    return 1.0 - nats / math.log(parents)
