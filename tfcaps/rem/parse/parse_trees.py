"""Parse trees of a model: of an image, of a class, of a whole test set."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import (
    encoder,
    last_routed_layer,
    same_layers,
)
from tfcaps.layers import ClassCaps
from tfcaps.ops import Tensor
from tfcaps.rem.batches import images_of, predict_batches
from tfcaps.rem.labels import chosen_classes
from tfcaps.rem.parse.couplings import (
    quantize_couplings,
    shown_outputs,
)
from tfcaps.rem.parse.in_tree import tree_threshold
from tfcaps.rem.parse.layer_levels import Levels
from tfcaps.rem.parse.parse_tree import ParseTree, parse_tree
from tfcaps.rem.parse.with_couplings import WithCouplings

Array = NDArray[Any]


class ParseTrees:
    """Draws parse trees from a model's fully connected capsule layers.

    These are the last routed layer, a `ClassCaps`, and each `ClassCaps` whose
    capsules are directly the children of the next one. Capsules before them,
    such as the primary ones, are the leaves. A leaf that casts no vote, because
    its transformation is zero, counts as not active.

    Args:
        model: As in `capsule_outputs`.
        levels: Levels to which couplings are rounded, see `quantize_couplings`.
            Defaults to `None`, as they are.
        mode: As in `quantize_couplings`. Defaults to `"midtread"`.
        threshold: Float. See `parse_tree`. Defaults to what the layers' routing
            says, `Routing.tree_threshold`, or its rounded value if that is
            larger: 1/16 becomes 0.1 with eleven levels, and still means
            nothing.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    Raises:
        ValueError: If the last routed layer is no `ClassCaps`, or as in
            `quantize_couplings`.

    References:
        - "Capsule Networks Do Not Need to Model Everything", section 3.2 and
          figures 15 to 20
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        levels: Levels | None = None,
        mode: str = "midtread",
        threshold: float | Sequence[float] | None = None,
        batch_size: int = 256,
    ):
        if levels is not None:
            model = quantize_couplings(model, levels, mode=mode)
        self.batch_size = batch_size
        self._model, layers = _layers_shown(encoder(model))
        if threshold is None:
            threshold = [
                tree_threshold(layer.routing, layer.num_capsules)
                for layer in layers
            ]
        self.threshold = threshold

    def each(self, images: Array) -> list[ParseTree]:
        """Returns the tree of each image, from its predicted class.

        Args:
            images: The model's input `[n, h, w, c]`, or a data set of them as
                in `tfcaps.rem.evaluate`, whose labels are not looked at.
        """
        return [
            self._tree(
                [a[sample] for a in batch.activations],
                [c[sample] for c in batch.couplings],
                [int(predicted)],
            )
            for batch in self._batches(images)
            for sample, predicted in enumerate(batch.predicted)
        ]

    def by_class(
        self, images: Array, classes: ArrayLike | None = None
    ) -> list[ParseTree | None]:
        """Returns the tree of each class, from this class.

        Activations and couplings are averaged over its images.

        Args:
            images: As in `each`.
            classes: Class of each image, `[n]` or one-hot. Defaults to the
                predicted one.

        Returns:
            A tree for each class, `None` for those without an image.

        Raises:
            ValueError: If there is not one class for each image.
        """
        number = int(self._model.output["activations"][-1].shape[-1])
        given = None
        if classes is not None:
            images = images_of(images, self._model)
            given = chosen_classes(classes, len(images), number)
        means: dict[int, _Mean] = {}
        start = 0
        for batch in self._batches(images):
            count = len(batch.predicted)
            own = batch.predicted
            if given is not None:
                own = given[start : start + count]
            for j in np.unique(own).tolist():
                means.setdefault(j, _Mean()).add(batch, own == j)
            start += count
        return [
            self._tree(*means[j].result(), [j]) if j in means else None
            for j in range(number)
        ]

    def overall(self, images: Array) -> ParseTree:
        """Returns the tree of all images, from all classes.

        Activations and couplings are averaged over all images.

        Args:
            images: As in `each`.
        """
        mean = _Mean()
        for batch in self._batches(images):
            mean.add(batch, np.ones(len(batch.predicted), bool))
        activations, couplings = mean.result()
        roots = list(range(len(activations[-1])))
        return self._tree(activations, couplings, roots)

    def _tree(
        self, activations: Any, couplings: Any, roots: list[int]
    ) -> ParseTree:
        return parse_tree(
            activations, couplings, roots, threshold=self.threshold
        )

    def _batches(self, images: Array) -> Iterator["_Batch"]:
        for outputs in predict_batches(self._model, images, self.batch_size):
            predicted = np.argmax(outputs["activations"][-1], axis=-1)
            yield _Batch(
                outputs["activations"], outputs["couplings"], predicted
            )


class _Batch(NamedTuple):
    """Activations `[b, n]`, couplings `[b, n, m]`, classes `[b]`."""

    activations: list[Array]
    couplings: list[Array]
    predicted: Array


class _Mean:
    """Averages activations and couplings over samples."""

    def __init__(self) -> None:
        self._count = 0
        self._sums: Any = None

    def add(self, batch: _Batch, chosen: NDArray[np.bool_]) -> None:
        """Adds the samples of a batch that are chosen."""
        sums = keras.tree.map_structure(
            lambda x: np.sum(x[chosen], axis=0, dtype=np.float64),
            (batch.activations, batch.couplings),
        )
        if self._sums is not None:
            sums = keras.tree.map_structure(np.add, self._sums, sums)
        self._sums = sums
        self._count += int(np.count_nonzero(chosen))

    def result(self) -> tuple[list[Array], list[Array]]:
        """Returns the means `[n]` and `[n, m]` of each layer."""
        return keras.tree.map_structure(lambda x: x / self._count, self._sums)


class _Call(NamedTuple):
    """The inputs and outputs of a call of a layer."""

    layer: Any
    children: Tensor
    activations: Tensor | None
    poses: Tensor
    couplings: Tensor


def _layers_shown(model: keras.Model) -> tuple[keras.Model, list[ClassCaps]]:
    """From images to `activations` of all layers and `couplings` between.

    Returns the layers that make the couplings too.
    """
    last = last_routed_layer(model)
    if not isinstance(last, ClassCaps):
        raise ValueError(
            f"The last routed layer of {model.name!r} is a "
            f"{type(last).__name__}. Parse trees of capsules need fully "
            "connected ones, `tfcaps.layers.ClassCaps`, at the end."
        )
    calls: dict[int, _Call] = {}  # by the poses that they made

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(layer, ClassCaps):
            return layer(*args, **kwargs)
        *outputs, couplings = WithCouplings(layer)(*args, **kwargs)
        children, *rest = args
        activations = rest[0] if rest else kwargs.get("activations")
        done = _Call(layer, children, activations, outputs[0], couplings)
        calls[id(outputs[0])] = done
        return tuple(outputs) if outputs[1:] else outputs[0]

    copy = same_layers(model, call)
    found = [[c for c in calls.values() if c.layer is last][-1]]
    while (before := calls.get(id(found[0].children))) is not None:
        if before.couplings.shape[2] != found[0].couplings.shape[1]:
            break  # `compact` took capsules out
        found.insert(0, before)
    poses = found[-1].poses
    outputs = {
        "activations": [
            *(_VotingActivations(c.layer)(*c[1:3]) for c in found),
            shown_outputs(copy, {"poses": poses})["lengths"],
        ],
        "couplings": [c.couplings for c in found],
    }
    layers = [c.layer for c in found]
    return keras.Model(copy.input, outputs, name=model.name), layers


class _VotingActivations(keras.layers.Layer):
    """Returns how active the children of a `ClassCaps` are, `[b, i]`."""

    def __init__(self, layer: Any):
        super().__init__(dtype="float32")
        self.layer = layer

    def call(
        self, children: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        return self.layer.voting_activations(children, activations)
