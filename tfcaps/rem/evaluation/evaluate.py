"""Measures a capsule network: accuracy, parse trees, entropy, sparsity."""

import dataclasses
import math
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
from tfcaps.rem.finite import check_weights
from tfcaps.rem.labels import NO_CLASS, class_of_each, rightly_told
from tfcaps.rem.multiply_adds import multiply_adds
from tfcaps.rem.parse.couplings import (
    Levels,
    layer_levels,
    quantize_couplings,
    show_last,
    shown_outputs,
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
        rounded: From this list to those with it. `Counts` takes both together.
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
        self.last = layers[-1]
        if self.last.name not in self.levels_per_layer:
            raise ValueError(
                "`levels` must name the last routed layer, whose couplings "
                f"make the parse trees, {self.last.name!r}. Received: "
                f"levels={levels}."
            )
        self.levels = self.levels_per_layer[self.last.name]
        lowest = next(x for x in layers if x.name in self.levels_per_layer)
        self.below, self._above = cut(self.model, lowest, first=True)
        self._rounding = quantize_couplings(
            self._above, self.levels_per_layer, mode=mode
        )
        shown, _ = self._shown(self._above)
        if len(shown["couplings"].shape) != 3:
            raise ValueError(
                f"The last routed layer of {self.model.name!r} is a "
                f"{type(self.last).__name__}, whose children differ from "
                "window to window. Parse trees need class capsules, such as "
                "`tfcaps.layers.ClassCaps`, at the end."
            )
        self._children, self.num_classes = shown["couplings"].shape[1:]
        self._inputs = shown["children"].shape
        self.grid = _grid(self.last, self._inputs)
        self.plain = self._plain_measures(shown)
        self.rounded = self._rounded_measures(*self._shown(self._rounding))
        images = self.model.inputs[0]
        taken = keras.tree.flatten(self.below(images))
        measures = {**self.plain(taken), **self.rounded(taken)}
        del measures["lost"], measures["lost_rounded"]
        self._network = _compiled(images, measures)

    def run(
        self, dataset: Any, *, batch_size: int = 256, verbose: int = 0
    ) -> Report:
        """Measures the model on a data set, see `evaluate`."""
        self.update()
        counts = Counts(self)
        batches, count = labelled_batches(dataset, batch_size, self.model)
        bar = keras.utils.Progbar(count, verbose=verbose, unit_name="batch")
        for images, labels in batches:
            counts.add(predict(self._network, images), labels)
            bar.add(1)
        return self.report(counts)

    def update(self) -> None:
        """Gives rounding layers the newest weights of the model.

        Raises:
            ValueError: If a weight is not finite.
        """
        keep_pruned(self.model)
        check_weights(self.model.weights)
        self._rounding.set_weights(self._above.get_weights())

    def report(self, counts: "Counts") -> Report:
        """Returns the report of the counts, with the sizes of the model."""
        nonzero, total = count_parameters(self.model.weights)
        voting = np.ones(self._children, bool)
        if isinstance(self.last, ClassCaps):
            voting = voting_children(self.last, self._inputs, self._children)
        try:
            products: int | None = multiply_adds(self.model).total
        except ValueError:  # images of any size
            products = None
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
            tree_threshold=self.last.routing.tree_threshold(self.num_classes),
            multiply_adds=products,
            **counts.measures(voting),
        )

    def _shown(
        self, model: keras.Model
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Returns what the last routed layer does, and couplings by layer."""
        shown: dict[str, Any] = {}
        couplings: dict[str, Tensor] = {}
        last = last_routed_layer(model)
        call_last = show_last(model, shown)

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if layer is last or not is_routed(layer):
                return call_last(layer, *args, **kwargs)
            outputs, couplings[layer.name] = with_couplings(layer, args, kwargs)
            return outputs

        copy = clone_with_call(model, call)
        couplings[last.name] = shown["couplings"]
        shown |= shown_outputs(copy, shown)
        return {**shown, "inputs": copy.inputs, "layer": last}, couplings

    def _plain_measures(self, shown: dict[str, Any]) -> keras.Model:
        """Returns a model of the measures with couplings as they are.

        `lengths` `[b, j]`, `t_scores` `[b, i]`, `leaves` `[b]`, how many
        children are in the tree of the predicted class, and `lost` `[b]`,
        whether the class is lost without its tree.
        """
        lengths, couplings = shown["lengths"], shown["couplings"]
        inside = in_tree(
            as_float32(towards_class(couplings, longest(lengths))),
            tree_threshold(self.last.routing, self.num_classes),
        )
        measures = {
            "lengths": lengths,
            "t_scores": t_scores_of_children(couplings),
            "leaves": ops.sum(ops.cast(inside, "int32"), axis=-1),
            "lost": _lost(shown),
        }
        return _compiled(shown["inputs"], measures)

    def _rounded_measures(
        self, shown: dict[str, Any], couplings: dict[str, Tensor]
    ) -> keras.Model:
        """Returns a model of the measures with quantised couplings.

        `lengths_rounded` `[b, j]`, `keys` `[b, i]` (uint8) towards the
        predicted class, `largest` `[b, layers]`, the largest rounded coupling
        of each layer, and `lost_rounded` `[b]`.
        """
        lengths = shown["lengths"]
        towards = towards_class(shown["couplings"], ops.argmax(lengths, -1))
        largest = [
            ops.max(each, axis=tuple(range(1, len(each.shape))))
            for each in (couplings[name] for name in self.levels_per_layer)
        ]
        keys = quantize(towards, self.levels, mode=self.mode)
        measures = {
            "lengths_rounded": lengths,
            "keys": ops.cast(keys, "uint8"),
            "largest": ops.stack(largest, axis=-1),
            "lost_rounded": _lost(shown),
        }
        return _compiled(shown["inputs"], measures)


def _lost(shown: dict[str, Any]) -> Tensor:
    """Tells whether classes are lost without their trees, bool `[b]`."""
    layer, couplings = shown["layer"], shown["couplings"]
    return LostWithoutTree(layer, int(couplings.shape[-1]))(
        shown["children"],
        shown["lengths"],
        couplings,
        shown.get("activations"),
    )


def _compiled(inputs: Any, outputs: Any) -> keras.Model:
    model = keras.Model(inputs, outputs)
    model.compile()
    return model


def _grid(layer: Any, input_shape: Any) -> Grid | None:
    """Returns rows, columns and types of children, `None` without places."""
    if not isinstance(layer, ClassCaps):
        return None
    grid = layer.children_shape(input_shape)
    if len(grid) != 3 or grid[0] * grid[1] == 1:
        return None
    rows, columns, types = grid
    return rows, columns, types


class Counts:
    """Adds up the measures of batches, as an `Evaluator` makes them.

    Attributes:
        known: Int. How many images were of a class.
    """

    def __init__(self, evaluator: Evaluator):
        classes = evaluator.num_classes
        self._uniform = int(
            quantize(1.0 / classes, evaluator.levels, mode=evaluator.mode)
        )
        self._layers = list(evaluator.levels_per_layer)
        self._trees = CouplingDictionary(classes)
        self._of_class = np.zeros(classes, int)
        self._without_class = 0
        self._told = np.zeros(2, int)  # right, also with quantised couplings
        self._sums: dict[str, Any] = dict.fromkeys(
            ("off_uniform", "leaves", "whole", "codes", "t_scores"), 0
        )
        self._largest = np.zeros(len(self._layers))

    @property
    def known(self) -> int:
        return int(self._of_class.sum())

    def add(self, batch: dict[str, Array], labels: Any) -> Array:
        """Adds the measures of a batch; returns which images are of a class.

        Images of no class are counted and left out.
        """
        num_classes = len(self._of_class)
        classes = class_of_each(labels, num_classes, batch["lengths"])
        for k, name in enumerate(("lengths", "lengths_rounded")):
            self._told[k] += np.sum(rightly_told(classes, batch[name]))
        known = classes != NO_CLASS
        self._without_class += int(np.sum(~known))
        self._of_class += np.bincount(classes[known], minlength=num_classes)
        batch = {name: array[known] for name, array in batch.items()}
        keys, leaves = batch["keys"], batch["leaves"]
        self._trees.update(keys, batch["lengths_rounded"].argmax(axis=-1))
        for name, number in (
            ("off_uniform", np.sum(keys != self._uniform)),
            ("leaves", np.sum(leaves)),
            ("whole", np.sum(leaves == keys.shape[-1])),
            ("codes", keys.size),
            ("t_scores", np.sum(batch["t_scores"], axis=0, dtype="float64")),
        ):
            self._sums[name] = self._sums[name] + number
        largest = np.max(batch["largest"], axis=0, initial=0.0)
        self._largest = np.maximum(self._largest, largest)
        return known

    def measures(self, voting: Array) -> dict[str, Any]:
        """Returns fields of `Report`.

        Args:
            voting: Which children pruning has left a vote, bool `[i]`.

        Raises:
            ValueError: If there was no sample.
        """
        if not self.known:
            if self._without_class:
                raise ValueError(
                    "Some image must be of a class. Received: "
                    f"{self._without_class} images of no class."
                )
            raise ValueError(NO_SAMPLES)
        alone = len(self._of_class) == 1
        told = self._told / (self.known + alone * self._without_class)
        t_scores = self._sums["t_scores"] / self.known
        left = t_scores[voting]
        return {
            "accuracy": float(told[0]),
            "accuracy_quantized": float(told[1]),
            "majority_share": int(self._of_class.max()) / self.known,
            "without_class": self._without_class,
            "nonuniform_share": float(
                self._sums["off_uniform"] / self._sums["codes"]
            ),
            "strong_share": float(self._sums["leaves"] / self._sums["codes"]),
            "whole_share": float(self._sums["whole"] / self.known),
            "t_score": float(np.mean(t_scores)),
            "t_score_voting": float(np.mean(left)) if left.size else 0.0,
            "voting_children": int(np.sum(voting)),
            "zero_layers": [
                name
                for name, largest in zip(
                    self._layers, self._largest, strict=True
                )
                if largest == 0
            ],
            "dictionary": self._trees,
        }


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
