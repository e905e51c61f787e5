"""Classes made of parts that all classes share, and the frame of an object."""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from tfcaps import routing as routings
from tfcaps.layers import ClassCaps
from tfcaps.layers.constellation_caps import select
from tfcaps.ops import Tensor, as_float32, check_positive, longest
from tfcaps.routing import MeanShiftRouting

# What a leaf must say for a class to be in its tree, in nats.
_ORPHAN = 0.1
_LEAST = 1e-6
# Of the weights of parts by how well they fit.
_ROUNDS = 3
# Row, column and presence of a pose, before its votes.
_PLACE = 3


class Frame(NamedTuple):
    """The frame of an object.

    Attributes:
        place: Row and column in pixels, `[b, 2]`.
        size: Pixels of one unit of the plan, `[b]`.
        facing: 1 as the plan, or -1 if mirrored, `[b]`.
        plan: The plan's number, `[b]`.
        parts: Where the plan has the parts in the image, `[b, t, 2]`.
    """

    place: Tensor
    size: Tensor
    facing: Tensor
    plan: Tensor
    parts: Tensor


def frame_of(
    places: Tensor, weights: Tensor, plans: Tensor, spreads: Tensor
) -> Frame:
    """Returns the frame in which the places of parts agree best with a plan.

    For each plan, and its mirror image, place and size are those of least
    squares, in which parts that stand far off lose their weight; of these
    frames it is the likeliest, by a distribution with heavy tails.

    Args:
        places: Rows and columns of parts, `[b, t, 2]`.
        weights: How sure they are, `[b, t]`.
        plans: Where plans have them, `[p, t, 2]`.
        spreads: Deviations of parts from there, `[p, t]`.
    """
    count = plans.shape[0]
    # Both sides of each plan, [2 p, t, 2].
    mirrored = plans * ops.convert_to_tensor([1.0, -1.0], "float32")
    both = ops.concatenate([plans, mirrored], axis=0)
    spread = ops.concatenate([spreads, spreads], axis=0)
    sure = ops.expand_dims(weights, 1) / spread**2  # [b, 2 p, t]
    at = ops.expand_dims(places, 1)
    fits: Any = 1.0
    for _ in range(_ROUNDS):
        share = sure * fits
        share = share / (ops.sum(share, -1, keepdims=True) + _LEAST)
        share = ops.expand_dims(share, -1)
        middle = ops.sum(share * at, 2, keepdims=True)
        origin = ops.sum(share * both, 2, keepdims=True)
        own, seen = both - origin, at - middle
        size = ops.sum(share * own * seen, (2, 3), keepdims=True) / (
            ops.sum(share * own**2, (2, 3), keepdims=True) + _LEAST
        )
        size = ops.maximum(size, 1.0)
        wide = spread * size[..., 0]
        apart = ops.sum((seen - size * own) ** 2, -1) / wide**2
        # A part that is far from its place has little weight.
        fits = 1.0 / (1.0 + apart)
    cost = 1.5 * ops.log(1.0 + apart) + 2.0 * ops.log(wide)
    cost = ops.sum(ops.expand_dims(weights, 1) * cost, -1)
    best = ops.one_hot(ops.argmin(cost, -1), 2 * count, dtype="float32")

    def chosen(values: Tensor) -> Tensor:
        shape = (-1, 2 * count, *[1] * (len(values.shape) - 2))
        return ops.sum(ops.reshape(best, shape) * values, 1)

    place = middle - size * origin
    parts = place + size * both
    number = ops.argmax(best, -1)
    return Frame(
        chosen(place)[:, 0],
        chosen(size)[:, 0, 0],
        ops.where(number < count, 1.0, -1.0),
        number % count,
        chosen(parts),
    )


@keras.saving.register_keras_serializable(package="tfcaps")
class BodyPlanCaps(ClassCaps):
    """Adds up what shared parts say for classes, and finds the object's frame.

    Children of type `t` are candidates for one part, such as a head. Of each
    type the most active one is the part, with the activation `a_t`. It votes
    `v_tj` for each class, and the classes are what the votes say:

        E_tj = a_t v_tj,  L_j = b_j + sum_t E_tj,  P_j = exp L_j / sum_k exp L_k
        c_tj = D_j s_tj / (s_tj + o),  s_tj = max(0, E_tj)

    `P` are the activations and `c` the couplings; those of other children are
    0. `D` is `P` in training; at inference it is 1 for the likeliest class and
    0 for others. So in the tree of a class are the parts that say more than `o`
    for it, and their sum, with that of the parts that say less, is all that
    tells the classes.

    The parts also vote for the object's frame, which all classes share: place,
    size and mirror, in which they stand best as one of the plans has them. It
    is the pose of every class. `tfcaps.parts.BodyPlanModel` estimates plans.

    Args:
        num_capsules: Int. Number of classes.
        routing: A `tfcaps.routing.MeanShiftRouting`, whose `orphan` `o` and
            levels count. Defaults to `None`, one with an `orphan` of 0.1 nats.
        plans: Int. How many plans there may be. Defaults to `1`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Poses of the children, as `PartVotes` makes them.
        activations: Activations of the children, 0 but for candidates.
        return_activations: Bool. Return `(poses, activations)`. Defaults to
            `False`.
        return_couplings: Bool. Return `(poses, couplings)`, or all three.
            Defaults to `False`.

    Input shape:
        Poses `[b, h, w, t, 3 + num_capsules]`, activations `[b, h, w, t]`.

    Output shape:
        Poses `[b, num_capsules, 4]`: row, column and size in pixels, and 1 if
        the object faces as its plan, -1 if it is mirrored. Activations `[b,
        num_capsules]` and couplings `[b, i, num_capsules]`, float32.

    Raises:
        ValueError: If an argument is out of range, or shapes do not fit.

    References:
        - Fergus, Perona, Zisserman, 2003, "Object class recognition by
          unsupervised scale-invariant learning"
    """

    routing: MeanShiftRouting

    def __init__(
        self,
        num_capsules: int,
        routing: Any = None,
        plans: int = 1,
        **kwargs: Any,
    ):
        check_positive(plans=plans)
        routing = routings.get(routing or MeanShiftRouting(orphan=_ORPHAN))
        if not isinstance(routing, MeanShiftRouting):
            raise ValueError(
                "`routing` must be a `tfcaps.routing.MeanShiftRouting`. "
                f"Received: {type(routing).__name__}."
            )
        # Places are float32 whatever the policy: half a pixel is much.
        kwargs.setdefault("autocast", False)
        super().__init__(
            num_capsules, 4, routing, use_bias=False, share="type", **kwargs
        )
        self.plans = plans

    def build(self, input_shape: Any) -> None:
        shape = tuple(input_shape)
        components = _PLACE + self.num_capsules
        if len(shape) != 5 or None in shape[1:] or shape[-1] != components:
            raise ValueError(
                "BodyPlanCaps takes poses [batch, rows, columns, types, "
                f"{components}], all known but the batch: row, column, presence "
                f"and a vote for each class. Received: input_shape={shape}."
            )
        self._routing_weights = []
        for name, size, value in (
            ("bias", (self.num_capsules,), "zeros"),
            ("plan", (self.plans, shape[-2], 2), "zeros"),
            ("spread", (self.plans, shape[-2]), "ones"),
        ):
            weight = self.add_weight(
                shape=size,
                initializer=value,
                trainable=name == "bias",
                autocast=False,
                name=name,
            )
            setattr(self, name, weight)

    def call(
        self,
        inputs: Tensor,
        activations: Tensor,
        return_activations: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
    ) -> Any:
        rows, columns, types, size = inputs.shape[1:]
        places, parents = rows * columns, self.num_capsules
        active = ops.reshape(as_float32(activations), (-1, places, types))
        most = ops.max(active, axis=1, keepdims=True)
        best = ops.cast(active >= most, "float32")
        best = best / ops.sum(best, axis=1, keepdims=True)
        poses = ops.reshape(as_float32(inputs), (-1, places, types, size))
        told = ops.expand_dims(active * best, -1) * poses[..., _PLACE:]
        told = ops.reshape(told, (-1, places * types, parents))
        logits = as_float32(self.bias) + ops.sum(told, axis=1)
        odds = ops.softmax(logits, axis=-1)
        decided = odds
        if not training:
            decided = ops.one_hot(longest(odds), parents, dtype="float32")
        told = ops.relu(told)
        couplings = ops.expand_dims(decided, 1) * (
            told / (told + self.routing.orphan)
        )
        couplings = self.routing.rounded(couplings)
        stands = ops.sum(ops.expand_dims(best, -1) * poses[..., :2], axis=1)
        frame = self.frame(stands, most[:, 0])
        pose = ops.concatenate(
            [frame.place, frame.size[:, None], frame.facing[:, None]], axis=-1
        )
        poses = ops.tile(ops.expand_dims(pose, 1), (1, parents, 1))
        wanted = (return_activations, return_couplings)
        return select((poses, odds, couplings), wanted)

    def frame(self, places: Tensor, weights: Tensor) -> Frame:
        """Returns the frame of parts at places `[b, t, 2]`, see `Frame`."""
        return frame_of(
            places, weights, as_float32(self.plan), as_float32(self.spread)
        )

    def stated(self, couplings: Any) -> Any:
        """Returns the evidence in nats that couplings state, an array.

        What is rounded to 1 states half a level less.
        """
        most = 1.0 - 1e-6
        if self.routing.levels is not None:
            most = 1.0 - 0.5 / (self.routing.levels - 1)
        couplings = couplings.clip(0.0, most)
        return self.routing.orphan * couplings / (1.0 - couplings)

    def child_places(self, inputs: Tensor) -> Tensor:
        """Returns rows and columns `[b, i, 2]` of the children in pixels."""
        children = math.prod(inputs.shape[1:-1])
        return ops.reshape(inputs[..., :2], (-1, children, 2))

    def child_presence(self, inputs: Tensor) -> Tensor:
        """Returns how much of its type is at each child's place, `[b, i]`."""
        children = math.prod(inputs.shape[1:-1])
        return ops.reshape(inputs[..., 2], (-1, children))

    def voting_activations(
        self, inputs: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        children = math.prod(inputs.shape[1:-1])
        return ops.reshape(as_float32(activations), (-1, children))

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the sum of votes, see `tfcaps.rem.multiply_adds`."""
        return math.prod(input_shape[1:-1]) * self.num_capsules

    def get_config(self) -> dict[str, Any]:
        return {
            **keras.layers.Layer.get_config(self),
            "num_capsules": self.num_capsules,
            "routing": routings.serialize(self.routing),
            "plans": self.plans,
        }


@keras.saving.register_keras_serializable(package="tfcaps")
class PlaceFeatures(keras.layers.Layer):
    """A hidden layer on a coarse map, and on a finer one within its places.

    Args:
        units: Int. Features of a place.
        fine: Int. Channels of the finer map.
        ratio: Int. Its places along a side of a coarse one. Defaults to `1`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `[b, h, w, coarse + ratio^2 fine]`, the finer map last.

    Output shape:
        `[b, h ratio, w ratio, units]`.
    """

    def __init__(self, units: int, fine: int, ratio: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units
        self.fine = fine
        self.ratio = ratio

    def build(self, input_shape: Any) -> None:
        coarse = input_shape[-1] - self.ratio**2 * self.fine
        for name, size in (("kernel", coarse), ("fine_kernel", self.fine)):
            weight = self.add_weight(shape=(size, self.units), name=name)
            setattr(self, name, weight)
        self.bias = self.add_weight(
            shape=(self.units,), initializer="zeros", name="bias"
        )

    def call(self, inputs: Tensor) -> Tensor:
        _, rows, columns, _ = inputs.shape
        r, coarse = self.ratio, self.kernel.shape[0]
        x = ops.matmul(inputs[..., :coarse], self.kernel)
        x = ops.repeat(ops.repeat(x, r, axis=1), r, axis=2)
        fine = ops.reshape(
            inputs[..., coarse:], (-1, rows, columns, r, r, self.fine)
        )
        fine = ops.transpose(fine, (0, 1, 3, 2, 4, 5))
        fine = ops.reshape(fine, (-1, rows * r, columns * r, self.fine))
        return ops.relu(x + ops.matmul(fine, self.fine_kernel) + self.bias)

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts both products, see `tfcaps.rem.multiply_adds`."""
        return math.prod(input_shape[1:]) * self.units

    @property
    def equivalent_layers(self) -> list[keras.layers.Layer]:
        """Layers of equal receptive fields, for `rem.receptive_fields`."""
        upsample = keras.layers.UpSampling2D(
            self.ratio, data_format="channels_last"
        )
        dense = keras.layers.Dense(self.units)
        return [upsample, dense]

    def get_config(self) -> dict[str, Any]:
        config = {"units": self.units, "fine": self.fine, "ratio": self.ratio}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="tfcaps")
class PartVotes(keras.layers.Layer):
    """Makes poses of parts: where, how present, and what each says for classes.

    A part of type `t` votes `f W_tj + b_tj` for class `j`, by the features `f`
    that its place has.

    Args:
        num_classes: Int. Number of classes.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        places: Rows and columns in pixels, `[b, h, w, t, 2]`.
        presence: How much of each type, and of nothing, is there, whatever
            wins, `[b, h, w, t + 1]`.
        features: On a grid that may be coarser, `[b, h / r, w / r, d]`.

    Output shape:
        `[b, h, w, t, 3 + num_classes]`, float32.
    """

    def __init__(self, num_classes: int, **kwargs: Any):
        super().__init__(**{"autocast": False, **kwargs})
        self.num_classes = num_classes

    def build(
        self, places_shape: Any, presence_shape: Any, features_shape: Any
    ) -> None:
        types, parents = places_shape[-2], self.num_classes
        self.transformation = self.add_weight(
            shape=(types, features_shape[-1], parents),
            initializer="zeros",
            autocast=False,
            name="transformation",
        )
        self.constants = self.add_weight(
            shape=(types, parents),
            initializer="zeros",
            autocast=False,
            name="constants",
        )

    def call(
        self, places: Tensor, presence: Tensor, features: Tensor
    ) -> Tensor:
        types, size, parents = self.transformation.shape
        rows, columns = places.shape[1:3]
        kernel = as_float32(self.transformation)
        kernel = ops.reshape(ops.transpose(kernel, (1, 0, 2)), (size, -1))
        votes = ops.matmul(as_float32(features), kernel)
        votes += ops.reshape(as_float32(self.constants), (-1,))
        down, right = (
            n // m
            for n, m in zip((rows, columns), votes.shape[1:3], strict=True)
        )
        votes = ops.repeat(ops.repeat(votes, down, axis=1), right, axis=2)
        votes = ops.reshape(votes, (-1, rows, columns, types, parents))
        there = ops.expand_dims(presence[..., :-1], -1)
        return ops.concatenate([places, there, votes], axis=-1)

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the votes at all places, see `tfcaps.rem.multiply_adds`."""
        return math.prod(input_shape[1:3]) * math.prod(
            self.transformation.shape
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_classes": self.num_classes}
