"""Classes made of parts that all classes share, and the frame of an object."""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from tfcaps.configs import Configured
from tfcaps.layers.routed import select_outputs
from tfcaps.ops import Tensor, as_float32, check_positive, check_that, longest
from tfcaps.parts.placed import OfPlacedParts, add_float32

# Rows and columns of places, of which one is a candidate for a type.
_NEAR = 3
_LEAST = 1e-6
# Of the weights of parts by how well they fit.
_ROUNDS = 3
# Row, column and presence of a pose, before its votes.
_PLACE = 3


class Frame(NamedTuple):
    """The frame of an object."""

    place: Tensor  # row and column in pixels, `[b, 2]`
    size: Tensor  # pixels of one unit of the plan, `[b]`
    facing: Tensor  # 1 as the plan, or -1 if mirrored, `[b]`
    plan: Tensor  # the plan's number, `[b]`
    parts: Tensor  # where the plan has the parts in the image, `[b, t, 2]`


def frame_of(
    places: Tensor, weights: Tensor, plans: Tensor, spreads: Tensor
) -> Frame:
    """Returns the frame in which the places of parts agree best with a plan.

    For each plan `[p, t, 2]`, and its mirror image, place and size are those of
    least squares, in which parts `[b, t, 2]` that stand far off, by the spreads
    `[p, t]`, lose their weight `[b, t]`; of these frames it is the likeliest,
    by a distribution with heavy tails.
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
    number = longest(-cost)
    best = ops.one_hot(number, 2 * count, dtype="float32")

    def chosen(values: Tensor) -> Tensor:
        shape = (-1, 2 * count, *[1] * (len(values.shape) - 2))
        return ops.sum(ops.reshape(best, shape) * values, 1)

    place = middle - size * origin
    parts = place + size * both
    return Frame(
        chosen(place)[:, 0],
        chosen(size)[:, 0, 0],
        ops.where(number < count, 1.0, -1.0),
        number % count,
        chosen(parts),
    )


@keras.saving.register_keras_serializable(package="tfcaps")
class BodyPlanCaps(OfPlacedParts):
    """Adds up what shared parts say for classes, and finds the object's frame.

    Children of type `t` are candidates for one part, such as a head. Of each
    type the most active one is the part, with the activation `a_t`. It votes
    `v_tj` for each class, and the classes are what the votes say:

        E_tj = a_t v_tj,  L_j = b_j + sum_t E_tj,  P_j = exp L_j / sum_k exp L_k
        c_tj = D_j s_tj / (s_tj + o (J - 1)),  s_tj = max(0, E_tj)

    `P` are the activations and `c` the couplings; those of other children are
    0. `D` is `P` in training; at inference it is 1 for the likeliest of the `J`
    classes and 0 for others. So in the tree of a class are the parts that say
    more than `o` for it, whose couplings exceed 1/J; and their sum, with that
    of the parts that say less, is all that tells the classes.

    The parts also vote for the object's frame, which all classes share: place,
    size and mirror, in which they stand best as one of the plans has them. It
    is the pose of every class. `tfcaps.parts.BodyPlanModel` estimates plans.

    There are at most so many `plans`. What is not listed is as in
    `ConstellationCaps`.

    Args:
        orphan: Float. What a part must say for a class to be in its tree, `o`,
            in nats. Defaults to `0.1`.

    Input shape:
        Both outputs of `WindowParts`.

    Output shape:
        Poses `[b, num_capsules, 4]`: row, column and size in pixels, and 1 if
        the object faces as its plan, -1 if it is mirrored. Activations `[b,
        num_capsules]` and couplings `[b, i, num_capsules]`, float32.

    References:
        - Fergus, Perona, Zisserman, 2003, "Object class recognition by
          unsupervised scale-invariant learning"
    """

    def __init__(
        self,
        num_capsules: int,
        orphan: float = 0.1,
        plans: int = 1,
        levels: int | None = None,
        mode: str = "midtread",
        **kwargs: Any,
    ):
        check_positive(num_capsules=num_capsules, plans=plans)
        check_that(orphan > 0, "be above 0", orphan=orphan)
        super().__init__(num_capsules, levels, mode, **kwargs)
        self.orphan = float(orphan)
        self.plans = plans

    def build(self, input_shape: Any) -> None:
        shape = tuple(input_shape)
        components = _PLACE + self.num_capsules
        if len(shape) != 5 or None in shape[1:] or shape[-1] != components:
            raise ValueError(
                "BodyPlanCaps takes poses [batch, rows, columns, types, "
                f"{components}], all known but the batch: row, column, "
                "presence and a vote for each class. Received: "
                f"input_shape={shape}."
            )
        plans = (self.plans, shape[-2])
        add_float32(self, "bias", (self.num_capsules,), "zeros")
        add_float32(self, "plan", (*plans, 2), "zeros", trainable=False)
        add_float32(self, "spread", plans, "ones", trainable=False)

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        return_activations: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
    ) -> Any:
        if activations is None:
            raise ValueError(
                "BodyPlanCaps takes poses and activations, both outputs of "
                "`WindowParts`. Received: activations=None."
            )
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
            told / (told + self.orphan * self._rivals)
        )
        couplings = self.rounded(couplings)
        stands = ops.sum(ops.expand_dims(best, -1) * poses[..., :2], axis=1)
        frame = self.frame(stands, most[:, 0])
        pose = ops.concatenate(
            [frame.place, frame.size[:, None], frame.facing[:, None]], axis=-1
        )
        poses = ops.tile(ops.expand_dims(pose, 1), (1, parents, 1))
        wanted = (return_activations, return_couplings)
        return select_outputs((poses, odds, couplings), wanted)

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
        if self.levels is not None:
            most = 1.0 - 0.5 / (self.levels - 1)
        couplings = couplings.clip(0.0, most)
        return self.orphan * self._rivals * couplings / (1.0 - couplings)

    @property
    def _rivals(self) -> int:
        return max(1, self.num_capsules - 1)

    # --------------------------------------------- what `tfcaps.rem` asks for

    def tree_threshold(self, parents: int) -> float:
        """Returns the coupling of a part that says the orphan's evidence."""
        return 1.0 / parents

    def child_presence(self, inputs: Tensor) -> Tensor:
        """Returns how much of its type is at each child's place, `[b, i]`."""
        children = math.prod(inputs.shape[1:-1])
        return ops.reshape(inputs[..., 2], (-1, children))

    def voting_activations(
        self, inputs: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        """Returns activations `[b, i]`."""
        children = math.prod(inputs.shape[1:-1])
        return ops.reshape(as_float32(activations), (-1, children))

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the sum of votes, see `tfcaps.rem.multiply_adds`."""
        return math.prod(input_shape[1:-1]) * self.num_capsules


@keras.saving.register_keras_serializable(package="tfcaps")
class WindowParts(Configured, keras.layers.Layer):
    """Finds parts in features of windows: type, presence, and their votes.

    A hidden layer on the features of a place, and on those of a finer map
    within it, tells by a softmax which type of part, or nothing, is there: the
    presence. Where it is the most of the place and its neighbours, the place is
    a candidate for its type; that is its activation. A part of type `t` votes
    `f W_tj + b_tj` for class `j`, by the coarse features `f` of its place.

    The finer map has `fine` channels, which are last, `ratio` places along a
    side of a coarse one, a `margin` of places around these, which are seen with
    them, and a `stride` in pixels.

    Input shape:
        `[b, h, w, coarse + (ratio + 2 margin)^2 fine]`, as of
        `BackboneWindows`.

    Output shape:
        Poses `[b, h ratio, w ratio, num_types, 3 + num_classes]`: row and
        column in pixels, presence and votes; and activations, without the last
        axis. Both float32.
    """

    def __init__(
        self,
        num_types: int,
        num_classes: int,
        fine: int,
        ratio: int = 1,
        margin: int = 0,
        units: int = 512,
        stride: float = 1.0,
        **kwargs: Any,
    ):
        check_positive(num_types=num_types, units=units)
        super().__init__(**{"autocast": False, **kwargs})
        self.num_types = num_types
        self.num_classes = num_classes
        self.fine = fine
        self.ratio = ratio
        self.margin = margin
        self.units = units
        self.stride = float(stride)

    def build(self, input_shape: Any) -> None:
        size, types = input_shape[-1], self.num_types
        near = 2 * self.margin + 1
        self.coarse = size - (self.ratio + near - 1) ** 2 * self.fine
        for name, shape in (
            ("kernel", (self.coarse, self.units)),
            ("fine_kernel", (near, near, self.fine, self.units)),
            ("bias", (self.units,)),
            ("type_kernel", (self.units, types + 1)),  # nothing is last
            ("type_bias", (types + 1,)),
            ("transformation", (types, self.coarse, self.num_classes)),
            ("constants", (types, self.num_classes)),
        ):
            is_hidden = name.endswith("kernel")
            start = "glorot_uniform" if is_hidden else "zeros"
            add_float32(self, name, shape, start)

    def call(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        features = as_float32(inputs)
        _, rows, columns, _ = features.shape
        coarse = features[..., : self.coarse]
        r, types, classes = self.ratio, self.num_types, self.num_classes

        def enlarged(maps: Tensor) -> Tensor:
            return ops.repeat(ops.repeat(maps, r, axis=1), r, axis=2)

        side = r + 2 * self.margin
        fine = ops.reshape(
            features[..., self.coarse :], (-1, side, side, self.fine)
        )
        fine = ops.conv(
            fine, self.fine_kernel, padding="valid", data_format="channels_last"
        )
        fine = ops.reshape(fine, (-1, rows, columns, r, r, self.units))
        fine = ops.transpose(fine, (0, 1, 3, 2, 4, 5))
        fine = ops.reshape(fine, (-1, rows * r, columns * r, self.units))
        hidden = ops.relu(
            enlarged(ops.matmul(coarse, self.kernel)) + fine + self.bias
        )
        logits = ops.matmul(hidden, self.type_kernel) + self.type_bias
        presence = ops.softmax(logits, axis=-1)[..., :-1]
        most = ops.max_pool(
            presence, _NEAR, 1, padding="same", data_format="channels_last"
        )
        active = presence * ops.cast(presence >= most, "float32")
        kernel = ops.transpose(self.transformation, (1, 0, 2))
        votes = ops.matmul(coarse, ops.reshape(kernel, (self.coarse, -1)))
        votes = enlarged(votes + ops.reshape(self.constants, (-1,)))
        votes = ops.reshape(votes, (-1, rows * r, columns * r, types, classes))
        there = ops.expand_dims(presence, -1)
        # The middles of places in pixels, [1, h, w, 1, 2].
        grid = np.moveaxis(
            np.indices((rows * r, columns * r), np.float32), 0, -1
        )
        middles = ((grid + 0.5) * self.stride - 0.5)[None, :, :, None]
        places = ops.zeros_like(there) + middles
        return ops.concatenate([places, there, votes], axis=-1), active

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the products, see `tfcaps.rem.multiply_adds`."""
        places = math.prod(input_shape[1:3])
        near = math.prod(self.fine_kernel.shape) + self.units * (
            self.num_types + 1
        )
        votes = math.prod(self.transformation.shape)
        first = self.coarse * self.units
        return places * (first + self.ratio**2 * near + votes)

    @property
    def equivalent_layers(self) -> list[keras.layers.Layer]:
        """Layers of equal receptive fields, for `rem.receptive_fields`."""
        how: Any = {"data_format": "channels_last"}
        upsample = keras.layers.UpSampling2D(self.ratio, **how)
        pool = keras.layers.MaxPooling2D(_NEAR, 1, padding="same", **how)
        return [upsample, pool]
