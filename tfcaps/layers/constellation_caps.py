"""Class capsules that know which parts they have, and where."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import routing as routings
from tfcaps.layers.class_caps import ClassCaps
from tfcaps.layers.part_caps import centres
from tfcaps.layers.routed import child_activations
from tfcaps.ops import Tensor, check_positive
from tfcaps.routing import MeanShiftRouting
from tfcaps.routing.loop import is_unrolled, unrolled
from tfcaps.routing.mean_shift import Mode
from tfcaps.routing.translated_votes import TranslatedVotes
from tfcaps.routing.votes import Votes

# The best place of a class is looked for at all but an eighth of the places on
# each side of the image; its blueprint reaches further.
_BORDER = 8
# After training something is at fewer places than one in so many, as a rule.
_FEW = 8


@keras.saving.register_keras_serializable(package="tfcaps")
class ConstellationCaps(ClassCaps):
    """Finds classes as constellations of parts: which types stand where.

    A child of type `t` at place `p` votes `p - o_tj` for the place of class
    `j`: the transformation of capsules, reduced to a translation. `o` is the
    weight `blueprint`, from which can be read where each part of a class is;
    the weight `slots` tells which types a class has at all. Routing finds the
    place at which the votes agree. In the tree of a class are the children that
    vote for its place, at most `instances` of each type.

    Args:
        num_capsules: Int. Number of classes.
        routing: A `tfcaps.routing.MeanShiftRouting`, or its config. `types` is
            set to those of the input. Defaults to `None`, one with its
            defaults.
        stride: Float. As in `PartCaps`. Defaults to `1`.
        offset: As in `PartCaps`. Defaults to `(0, 0)`.
        spread: Float. Standard deviation in pixels of where types stand before
            training. Defaults to `2`.
        repulsion: Float. Weight of a penalty that keeps the types of a class
            apart. Defaults to `0`.
        apart: Float. How many pixels apart. Defaults to `6`.
        instances: Int. How many parts of one type a class may have. Row
            `k * t + type` of `blueprint` and `slots` is of the `k`-th of them,
            from 0 on. Defaults to `1`.
        shared: Bool. Classes may have the same types. Otherwise type `t` is of
            class `t mod num_capsules` alone. Defaults to `True`.
        parts: Int or `None`. How many slots of a class give evidence, those
            that are largest: faster, where a class has few of many types.
            Defaults to `None`, all.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Places of the children.
        activations: Activations of the children.
        return_activations: Bool. Return `(poses, activations)`. Defaults to
            `False`.
        return_couplings: Bool. Return `(poses, couplings)`, or all three.
            Defaults to `False`.
        return_evidence: Bool. Return the evidence last, the logits on which
            classes are trained, see `MeanShiftRouting`. Defaults to `False`.

    Input shape:
        `[b, h, w, t, 2]`, rows and columns in pixels, as `PartCaps` makes them,
        or `[b, t, 2]`, those of one child of each type, as these capsules are
        themselves: of constellations of parts others can be made.

    Output shape:
        Poses `[b, num_capsules, 2]`, the places of the classes in pixels.
        Activations `[b, num_capsules]` in [0, 1], couplings `[b, i,
        num_capsules]` and evidence `[b, num_capsules]`, float32.

    Raises:
        ValueError: If an argument is out of range, or the input's shape does
            not fit.

    Example:

    >>> import numpy as np
    >>> parts = np.zeros((2, 8, 8, 5, 2), "float32")
    >>> present = np.zeros((2, 8, 8, 5), "float32")
    >>> tuple(ConstellationCaps(10)(parts, present).shape)
    (2, 10, 2)
    """

    routing: MeanShiftRouting

    def __init__(
        self,
        num_capsules: int,
        routing: Any = None,
        stride: float = 1.0,
        offset: tuple[float, float] = (0.0, 0.0),
        spread: float = 2.0,
        repulsion: float = 0.0,
        apart: float = 6.0,
        instances: int = 1,
        shared: bool = True,
        parts: int | None = None,
        **kwargs: Any,
    ):
        check_positive(instances=instances)
        if parts is not None:
            check_positive(parts=parts)
        for name, value in (("stride", stride), ("apart", apart)):
            if value <= 0:
                raise ValueError(
                    f"`{name}` must be above 0. Received: {name}={value}."
                )
        for name, value in (("spread", spread), ("repulsion", repulsion)):
            if value < 0:
                raise ValueError(
                    f"`{name}` must not be negative. Received: {name}={value}."
                )
        routing = routings.get(routing or MeanShiftRouting())
        if not isinstance(routing, MeanShiftRouting):
            raise ValueError(
                "`routing` must be a `tfcaps.routing.MeanShiftRouting`, which "
                "knows places. Received: "
                f"{type(routing).__name__}. Use `ClassCaps` for the others."
            )
        # Places are float32 whatever the policy: half a pixel is much.
        kwargs.setdefault("autocast", False)
        super().__init__(
            num_capsules, 2, routing, use_bias=False, share="type", **kwargs
        )
        self.stride = float(stride)
        self.offset = tuple(float(pixel) for pixel in offset)
        self.spread = float(spread)
        self.repulsion = float(repulsion)
        self.apart = float(apart)
        self.instances = instances
        self.shared = shared
        self.parts = parts

    def build(self, input_shape: Any) -> None:
        rows, columns, types = self._checked(input_shape)
        types = types * self.instances
        config = {**self.routing.get_config(), "types": types}
        self.routing = MeanShiftRouting(**config)
        self.side = self.stride * max(rows, columns)
        # In sides of the image, so that a step of Adam is a share of it.
        self.transformation_initializer = keras.initializers.RandomNormal(
            stddev=self.spread / self.side
        )
        self.blueprint = self.add_weight(
            shape=(types, self.num_capsules, 2),
            initializer=self.transformation_initializer,
            regularizer=_Apart(self) if self.repulsion else None,
            autocast=False,
            name="blueprint",
        )
        self._routing_weights = []
        weights = self.routing.weights(
            rows * columns * types, self.num_capsules, 2
        )
        for name, weight in weights.items():
            initializer = weight.initializer
            if name == "slots":
                initializer = self._first_instances
            variable = self.add_weight(
                shape=weight.shape,
                initializer=initializer,
                trainable=weight.trainable,
                autocast=False,
                name=name,
            )
            setattr(self, name, variable)
            self._routing_weights.append(name)

    def _checked(self, input_shape: Any) -> tuple[int, ...]:
        """Returns the numbers of rows, columns and types of the children."""
        shape = tuple(input_shape)
        if len(shape) not in (3, 5) or None in shape[1:] or shape[-1] != 2:
            raise ValueError(
                f"{type(self).__name__} takes places [batch, rows, columns, "
                "types, 2], or [batch, types, 2], all known but the batch, and "
                "their activations, as `PartCaps` returns them. Received: "
                f"input_shape={shape}."
            )
        return self.children_shape(shape)

    def _first_instances(self, shape: Any, dtype: Any = None) -> Tensor:
        """Returns slots of which only those of first instances are there."""
        rows = np.arange(shape[0])[:, None]
        there = np.tile(rows < shape[0] // self.instances, (1, shape[1]))
        if not self.shared:
            there &= rows % shape[1] == np.arange(shape[1])
        return ops.cast(there, dtype)

    @property
    def shifts(self) -> Tensor:
        """Places of types in classes, `[instances * t, j, 2]` in pixels."""
        return self.blueprint * self.side

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        labels: Tensor | None = None,
        return_activations: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
        return_evidence: bool = False,
    ) -> Any:
        del labels
        votes, present, weights = self._prepared(inputs, activations)
        mode = self.routing.best_place(votes, present, **weights)

        def routed() -> tuple[Tensor, ...]:
            return self.routing.trace(
                votes, mode, present, decided=not training, **weights
            )

        # In training something is at most places; other runtimes are to have
        # no conditions.
        if training or is_unrolled():
            found = routed()
        else:
            with unrolled():
                found = self._routed_of_few(inputs, activations, mode, routed)
        outputs = [ops.cast(x, "float32") for x in (*found, mode.evidence)]
        wanted = (return_activations, return_couplings, return_evidence)
        return select(outputs, wanted)

    def _routed_of_few(
        self,
        inputs: Tensor,
        activations: Tensor | None,
        mode: Mode,
        of_all: Callable[[], tuple[Tensor, ...]],
    ) -> tuple[Tensor, ...]:
        """Returns what `of_all` does, from the places where something is.

        Inactive children change nothing, and what makes them so, such as the
        competition of `PartCaps`, passes no gradient on. If something is at
        more than an eighth of the places, in some image, all are taken.
        """
        rows, columns, types = self.children_shape(inputs.shape)
        few = math.ceil(rows * columns / _FEW)
        if few == rows * columns:
            return of_all()
        places = ops.reshape(inputs, (-1, rows * columns, types * 2))
        present = self._present(inputs, activations)
        present = ops.reshape(present, (-1, rows * columns, types))
        there = ops.cast(ops.any(present != 0, axis=-1), "int32")  # [b, n]
        first = np.arange(rows * columns, 0, -1, dtype="int32")
        _, chosen = ops.top_k(there * first, few)  # in their order
        rank = ops.where(there != 0, ops.cumsum(there, axis=-1) - 1, few)

        def of_few() -> tuple[Tensor, ...]:
            near = ops.reshape(_rows(places, chosen), (-1, 1, few, types, 2))
            active = ops.reshape(_rows(present, chosen), (-1, 1, few, types))
            votes, active, weights = self._prepared(near, active)
            poses, activations, couplings = self.routing.trace(
                votes, mode, active, decided=True, **weights
            )
            parents = self.num_capsules
            couplings = ops.reshape(couplings, (-1, few, types * parents))
            none = [[0, 0], [0, 1], [0, 0]]  # of places where nothing is
            couplings = _rows(ops.pad(couplings, none), rank)
            children = rows * columns * types
            couplings = ops.reshape(couplings, (-1, children, parents))
            return poses, activations, couplings

        enough = ops.all(ops.sum(there, axis=-1) <= few)
        return ops.cond(enough, of_few, lambda: tuple(of_all()))

    def evidence_map(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Returns the evidence of each class at each place, see the routing.

        Args:
            inputs: As in the call.
            activations: As in the call.
        """
        votes, present, weights = self._prepared(inputs, activations)
        return self.routing.evidence_map(votes, present, **weights)

    def _prepared(
        self,
        inputs: Tensor,
        activations: Tensor | None,
    ) -> tuple[Votes, Tensor, dict[str, Tensor]]:
        """Returns the routing's arguments; activations are `[b, i]`."""
        present = self._present(inputs, activations)
        shifts, weights = self._weights()
        rows, columns, types = self.children_shape(inputs.shape)
        inputs = ops.reshape(inputs, (-1, rows, columns, types, 2))
        votes = self._votes(inputs, shifts, weights["slots"])
        present = ops.reshape(present, (-1, rows * columns, types))
        # Each child may be each of the instances of its type.
        present = ops.tile(present, (1, 1, self.instances))
        present = ops.reshape(present, (-1, votes.num_children))
        return votes, ops.cast(present, votes.dtype), weights

    def _present(self, inputs: Tensor, activations: Tensor | None) -> Tensor:
        """Returns the activations of the children, `[b, h, w, t]`."""
        if activations is None:
            raise ValueError(
                f"{type(self).__name__} need the `activations` of the parts, "
                "as a place does not tell whether something is there. "
                "Received: activations=None. Call it on both outputs of "
                "`PartCaps`."
            )
        return child_activations(inputs, activations)

    def _weights(self) -> tuple[Tensor, dict[str, Tensor]]:
        names = self._routing_weights
        weights = {
            name: ops.cast(getattr(self, name), "float32") for name in names
        }
        return ops.cast(self.shifts, "float32"), weights

    def _votes(
        self,
        inputs: Tensor,
        transformation: Tensor,
        slots: Any = None,
    ) -> Votes:
        sides = zip(inputs.shape[1:3], self.offset, strict=True)
        cells = [centres(count, self.stride, first) for count, first in sides]
        edges = [len(c) // _BORDER for c in cells]
        within = [
            c[edge : len(c) - edge]
            for c, edge in zip(cells, edges, strict=True)
        ]
        places = ops.tile(inputs, (1, 1, 1, self.instances, 1))
        kept = None
        if self.parts is not None and slots is not None:
            most = min(self.parts, int(slots.shape[0]))
            _, kept = ops.top_k(ops.transpose(slots), most)
            kept = ops.transpose(kept)
        return TranslatedVotes(
            places, transformation, cells, within, kept, self.instances
        )

    def children_shape(self, input_shape: Any) -> tuple[int, ...]:
        *grid, types, _ = input_shape[1:]
        return (*(grid or (1, 1)), types)

    def scanned(self, counts: tuple[int, int]) -> tuple[int, int]:
        """Returns rows and columns of places at which classes are sought."""
        rows, columns = (count - 2 * (count // _BORDER) for count in counts)
        return rows, columns

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the search for the modes, and the passes over the votes.

        See `tfcaps.rem.multiply_adds`.
        """
        rows, columns, types = self.children_shape(input_shape)
        types *= self.instances
        types = min(self.parts or types, types)
        down, right = self.scanned((rows, columns))
        each = columns * rows * right + right * rows * down
        if rows * columns == 1:  # sought at the votes themselves
            each = types * self.dim
        found = types * self.num_capsules
        votes = rows * columns * found * self.dim
        return int(found * each + votes * self.routing.vote_passes)

    @property
    def can_be_silent(self) -> bool:
        """False: children with weights of zero still stand somewhere."""
        return False

    def child_places(self, inputs: Tensor) -> Tensor:
        """Returns rows and columns `[b, i, 2]` of the children in pixels."""
        return ops.reshape(inputs, (-1, math.prod(inputs.shape[1:-1]), 2))

    def voting_activations(
        self, inputs: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        activations = child_activations(inputs, activations)
        children = math.prod(inputs.shape[1:-1])
        activations = ops.reshape(activations, (-1, children))
        types = int(inputs.shape[-2])
        wanted = ops.reshape(self.slots, (self.instances, types, -1))
        votes = ops.any(wanted != 0, axis=(0, 2))
        votes = ops.tile(votes, children // types)
        return ops.where(votes, ops.cast(activations, "float32"), 0.0)

    def compute_output_spec(  # type: ignore[override]
        self,
        inputs: Any,
        activations: Any = None,
        labels: Any = None,
        return_activations: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
        return_evidence: bool = False,
    ) -> Any:
        parents = (inputs.shape[0], self.num_capsules)
        children = math.prod(inputs.shape[1:-1])
        shapes = ((*parents, 2), parents, (parents[0], children, parents[1]))
        outputs = [
            keras.KerasTensor(shape, dtype="float32")
            for shape in (*shapes, parents)
        ]
        wanted = (return_activations, return_couplings, return_evidence)
        return select(outputs, wanted)

    def get_config(self) -> dict[str, Any]:
        # What is fixed here is no argument.
        of_all = keras.layers.Layer.get_config(self)
        return {
            **of_all,
            "num_capsules": self.num_capsules,
            "routing": routings.serialize(self.routing),
            "stride": self.stride,
            "offset": self.offset,
            "spread": self.spread,
            "repulsion": self.repulsion,
            "apart": self.apart,
            "instances": self.instances,
            "shared": self.shared,
            "parts": self.parts,
        }


def select(outputs: Sequence[Any], wanted: Sequence[bool]) -> Any:
    """Returns the first output alone, or a tuple of it and those wanted."""
    chosen = (outputs[0], *itertools.compress(outputs[1:], wanted))
    return chosen if chosen[1:] else chosen[0]


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """Returns rows `[b, m, k]` of values `[b, n, k]`, by an index `[b, m]`.

    Of each image whole rows are copied, which `take_along_axis` does not do.
    """
    _, count, size = values.shape
    first = count * ops.arange(ops.shape(values)[0], dtype="int32")
    flat = ops.reshape(index + first[:, None], (-1,))
    rows = ops.take(ops.reshape(values, (-1, size)), flat, axis=0)
    return ops.reshape(rows, (-1, index.shape[1], size))


class _Apart(keras.regularizers.Regularizer):
    """Penalises types of a class that stand at one place."""

    def __init__(self, layer: ConstellationCaps):
        self._layer = layer

    def __call__(self, blueprint: Tensor) -> Tensor:
        layer = self._layer
        places = blueprint * layer.side
        types, parents, _ = places.shape
        apart = ops.expand_dims(places, 1) - ops.expand_dims(places, 0)
        square = ops.sum(ops.square(apart), axis=-1)  # [t, t, j]
        near = ops.square(ops.relu(1.0 - square / layer.apart**2))
        slots = layer.slots
        both = ops.expand_dims(slots, 1) * ops.expand_dims(slots, 0)
        others = ops.expand_dims(1.0 - np.eye(types, dtype="float32"), -1)
        total = ops.sum(near * both * others)
        return layer.repulsion * total / (types * parents)

    def get_config(self) -> dict[str, Any]:
        return {}
