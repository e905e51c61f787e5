"""Measures a capsule network: accuracy, parse trees, entropy, sparsity."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import (
    class_caps_and_input,
    cut,
    encoder,
    is_routed,
    keep_pruned,
    last_routed_layer,
    routed_layers,
    same_layers,
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
from tfcaps.rem.batches import labelled_batches, predict
from tfcaps.rem.evaluation.evaluation_counts import EvaluationCounts
from tfcaps.rem.evaluation.faithfulness import (
    faithfulness as measure_faithfulness,
)
from tfcaps.rem.evaluation.metrics import t_scores_of_children
from tfcaps.rem.evaluation.report import Report
from tfcaps.rem.finite import check_finite, check_weights
from tfcaps.rem.labels import class_of_each
from tfcaps.rem.multiply_adds import multiply_adds
from tfcaps.rem.parse.couplings import (
    show_last,
    shown_outputs,
    with_levels,
)
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold
from tfcaps.rem.parse.layer_levels import Levels, layer_levels
from tfcaps.rem.parse.type_keys import children_grid
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
        self._routing = last.routing
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
        self.grid = children_grid(self.model)
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
        images = self.model.inputs[0]
        taken = keras.tree.flatten(self.below(images))
        measures = {**self.plain(taken), **self.rounded([*taken, labels])}
        del measures["lost"], measures["lost_rounded"]
        self._network = _compiled([images, labels], measures)

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
            batch = predict(self._network, inputs)
            check_finite(batch, self.model)
            counts.add(batch, classes)
            bar.add(1)
        return self.report(counts)

    def _lengths(self, images: Any) -> Array:
        """Returns the lengths, by which one of several classes is chosen."""
        no_labels = np.zeros(len(images), "int32")
        lengths: Array = predict(self._network, [images, no_labels])["lengths"]
        return lengths

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
            tree_threshold=self._routing.tree_threshold(self.num_classes),
            **_multiply_adds(self.model),
            **counts.measures(self._voting()),
        )

    def _voting(self) -> Array:
        """Returns which children pruning has left a vote, bool `[i]`."""
        if not isinstance(routed_layers(self.model)[-1], ClassCaps):
            return np.ones(self._children, bool)
        layer, shape = class_caps_and_input(self.model)
        return voting_children(layer, shape, self._children)

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
            as_float32(towards), tree_threshold(self._routing, self.num_classes)
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
    """Returns what the report says of them, nothing for images of any size."""
    try:
        counted = multiply_adds(model)
    except ValueError:
        return {}
    return {
        "multiply_adds": counted.total,
        "multiply_adds_per_layer": counted.per_layer,
    }


def _outputs(
    model: keras.Model, call: Callable[..., Any], shown: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns `shown`, and the lengths, of the same layers in other calls."""
    copy = same_layers(model, call)
    return shown | shown_outputs(copy, shown)


def _lost(layer: Any, outputs: dict[str, Tensor]) -> Tensor:
    """Returns whether classes are lost without their trees, `[b]`."""
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
