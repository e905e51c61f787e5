"""Class capsules that know which parts they have, and where."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from tfcaps.layers.routed import child_activations, select_outputs
from tfcaps.ops import Tensor, check_positive, longest, softmax
from tfcaps.parts.part_caps import centres
from tfcaps.parts.placed import OfPlacedParts, add_float32
from tfcaps.routing.loop import is_unrolled

# The search leaves out a border of an eighth of the places on each side.
_BORDER = 8
# After training something is at fewer places than one in so many, as a rule.
_FEW = 8
# Steps of the mean shift, and how much votes must weigh to move a pose.
_STEPS, _LEAST_MASS = 3, 0.1
# How much of a child nobody wants.
_ORPHAN = 0.2
# Log-widths outside this range under- or overflow when squared.
_LOG_WIDTHS = (-10.0, 10.0)
# Pixels, and where types are not shared the share of an image, by which types
# deviate from the middle of their class before training.
_SPREAD, _WIDE_SPREAD = 2.0, 0.15
# Pixels that types of a class are to be apart, and the weight of that.
_APART, _REPULSION = 6.0, 0.1


class _Slots(NamedTuple):
    """The parts that classes expect."""

    there: Tensor  # whether a class expects it, `[s, j]`
    shifts: Tensor  # where it stands in the class, `[s, j, 2]` in pixels
    types: Tensor | None  # ints `[s, j]`; `None`: `s mod t` in all classes


@keras.saving.register_keras_serializable(package="tfcaps")
class ConstellationCaps(OfPlacedParts):
    """Finds classes as constellations of parts: which types stand where.

    A child of type `t` at place `p_i` votes `p_i - o_tj` for the place of class
    `j`: the transformation of capsules, reduced to a translation. `o` is the
    weight `blueprint`, from which can be read where each part of a class is;
    the weight `slots`, `w`, tells which types a class has at all. With the
    children's activations `a_i` and the width `s`

        m_tj(x) = min(1, sum_{i of t} a_i exp(-|p_i - o_tj - x|^2 / 2 s^2))
        L_j(x)  = sum_t w_tj (log(ε + (1 - ε) m_tj(x)) + log(1 / ε) / 2)

    is the evidence for class `j` at place `x`. From the best place on, `x_j`
    moves to the mean of the votes near it (mean shift), where of one type the
    nearest child counts most,

        r_ij = a_i exp(-|p_i - o_tj - x_j|^2 / 2 s^2) w_tj
        r_ij <- r_ij^2 / sum_{i of t} r_ij

    and couplings are, with `o = 0.2` for nobody, the orphan,

        c_ij = softmax_j(log sum_x exp L_j(x)) (1 + o) r_ij / (r_ij + o).

    Poses are the means of votes weighted by couplings. Activations say how much
    of what a class expects is coupled with it: with `N` the most slots of a
    class

        a_j = 1/2 + sum_t w_tj (log(ε + (1 - ε) min(1, sum_{i of t} c_ij))
              + log(1 / ε) / 2) / (N log(1 / ε)).

    That is 1 if all is there, and 0 if nothing is, of a class of `N` slots. At
    inference the couplings of the most active class are those without softmax,
    however sure it is, and those of others are 0. A child is in the tree of the
    class if its coupling exceeds one half, so that more of it belongs to the
    class than to nobody.

    Neither slots nor the width are learnt by gradients: training sets them, see
    `tfcaps.callbacks.BlueprintEstimation`.

    Args:
        num_capsules: Int. Number of classes.
        width: Float above 0. The width `s` in pixels before training. Defaults
            to `2`.
        epsilon: Float in (0, 1). Likelihood that a part is missed, `ε`.
            Defaults to `0.02`.
        stride: Float. As in `PartCaps`. Defaults to `1`.
        offset: As in `PartCaps`. Defaults to `(0, 0)`.
        shared: Bool. Classes share the types, and have one child of each; a
            small penalty keeps the types of a class six pixels apart. If not,
            type `t` is of class `t mod num_capsules` alone, which has all its
            children near by: none that is left out can take the place of one.
            Defaults to `True`.
        max_of_type: Int. How many parts of one type a class may have. Row `k *
            t + type` of `blueprint` and `slots` is of the `k`-th of them, from
            0 on. Defaults to `1`.
        max_parts: Int or `None`. How many slots of a class count, those that
            are largest: faster, where a class has few of many types. Defaults
            to `None`, all.
        levels: Int or `None`. Round the couplings to this many levels, see
            `tfcaps.rem.quantize_couplings`. Defaults to `None`.
        mode: `"midtread"` or `"midrise"`. Defaults to `"midtread"`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Places of the children.
        activations: Activations of the children.
        return_activations: Bool. Return `(poses, activations)`. Defaults to
            `False`.
        return_evidence: Bool. Return the evidence after them, the logits on
            which classes are trained. Defaults to `False`.
        return_couplings: Bool. Return the couplings last. Defaults to `False`.

    Input shape:
        `[b, h, w, t, 2]`, rows and columns in pixels, as `PartCaps` makes them.

    Output shape:
        Poses `[b, num_capsules, 2]`, the places of the classes in pixels.
        Activations `[b, num_capsules]` in [0, 1], evidence `[b, num_capsules]`
        and couplings `[b, i, num_capsules]`. All float32.

    Raises:
        ValueError: If an argument is out of range, or the input's shape does
            not fit.

    Example:

    >>> import numpy as np
    >>> parts = np.zeros((2, 8, 8, 5, 2), "float32")
    >>> present = np.zeros((2, 8, 8, 5), "float32")
    >>> tuple(ConstellationCaps(10)(parts, present).shape)
    (2, 10, 2)

    References:
        - Comaniciu, Meer, 2002, "Mean shift: a robust approach toward feature
          space analysis"
        - Ballard, 1981, "Generalizing the Hough transform to detect arbitrary
          shapes"
        - Fergus, Perona, Zisserman, 2003, "Object class recognition by
          unsupervised scale-invariant learning" (constellation model)
        - Kosiorek et al., 2019, https://arxiv.org/abs/1906.06818
          (constellations of capsules)
    """

    def __init__(
        self,
        num_capsules: int,
        width: float = 2.0,
        epsilon: float = 0.02,
        stride: float = 1.0,
        offset: tuple[float, float] = (0.0, 0.0),
        shared: bool = True,
        max_of_type: int = 1,
        max_parts: int | None = None,
        levels: int | None = None,
        mode: str = "midtread",
        **kwargs: Any,
    ):
        check_positive(num_capsules=num_capsules, max_of_type=max_of_type)
        if max_parts is not None:
            check_positive(max_parts=max_parts)
        if not (width > 0 and stride > 0 and 0 < epsilon < 1):
            raise ValueError(
                "`width` and `stride` must be above 0, and `epsilon` between 0 "
                f"and 1. Received: width={width}, stride={stride}, "
                f"epsilon={epsilon}."
            )
        super().__init__(num_capsules, levels, mode, **kwargs)
        self.width = float(width)
        self.epsilon = float(epsilon)
        self.stride = float(stride)
        self.offset = tuple(float(pixel) for pixel in offset)
        self.shared = shared
        self.max_of_type = max_of_type
        self.max_parts = max_parts

    def build(self, input_shape: Any) -> None:
        rows, columns, types = self.grid(input_shape)
        # In sides of the image, so that a step of Adam is a share of it.
        self.side = self.stride * max(rows, columns)
        spread = _SPREAD / self.side if self.shared else _WIDE_SPREAD
        slots = types * self.max_of_type
        add_float32(
            self,
            "blueprint",
            (slots, self.num_capsules, 2),
            keras.initializers.RandomNormal(stddev=spread),
            regularizer=self._repulsion if self.shared else None,
        )
        width = keras.initializers.Constant(math.log(self.width))
        add_float32(self, "log_width", (), width, trainable=False)
        first = np.arange(slots)[:, None] < types
        if not self.shared:
            classes = np.arange(self.num_capsules)
            first = first & (
                np.arange(slots)[:, None] % len(classes) == classes
            )
        there = np.broadcast_to(first, (slots, self.num_capsules))
        add_float32(
            self,
            "slots",
            there.shape,
            lambda shape, dtype=None: ops.cast(there, dtype),
            trainable=False,
        )

    def grid(self, input_shape: Any) -> tuple[int, int, int]:
        """Returns rows, columns and types of an input's shape, or an error."""
        shape = tuple(input_shape)
        if len(shape) != 5 or None in shape[1:] or shape[-1] != 2:
            raise ValueError(
                f"{type(self).__name__} takes places [batch, rows, columns, "
                "types, 2], all known but the batch, and their activations, as "
                f"`PartCaps` returns them. Received: input_shape={shape}."
            )
        return shape[1:4]

    @property
    def shifts(self) -> Tensor:
        """Places of types in classes, `[max_of_type * t, j, 2]` in pixels."""
        return self.blueprint * self.side

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        return_activations: bool = False,
        return_evidence: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
    ) -> Any:
        evidence, place = self.evidence_map(inputs, activations)
        start = place(longest(ops.stop_gradient(evidence)))
        evidence = ops.logsumexp(evidence, axis=-1)
        _, rows, columns, types, _ = inputs.shape
        count = rows * columns
        places = ops.reshape(inputs, (-1, count, types * 2))
        places = ops.cast(places, "float32")
        present = self._present(inputs, activations)
        present = ops.reshape(present, (-1, count, types))

        def trace(places: Tensor, present: Tensor) -> tuple[Tensor, ...]:
            places = ops.reshape(places, (-1, places.shape[1], types, 2))
            return self._trace(places, present, evidence, start, not training)

        # In training something is at most places; other runtimes are to have
        # no conditions.
        if training or is_unrolled() or count <= 1:
            traced = trace(places, present)
        else:
            traced = _of_few(trace, places, present)
        poses, active, couplings = traced
        wanted = (return_activations, return_evidence, return_couplings)
        return select_outputs((poses, active, evidence, couplings), wanted)

    def evidence_map(
        self, inputs: Tensor, activations: Tensor | None = None
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Returns the evidence `L` of each class at each place.

        Each child counts at the centre of its cell, so that the nearness of
        children is that of rows times that of columns.

        Args:
            inputs: As in the call.
            activations: As in the call.

        Returns:
            Tensor `[b, j, x]`, and a function from indices `[b, j]` of `x` to
            places `[b, j, 2]` in pixels.
        """
        _, rows, columns, *_ = inputs.shape
        slots = self._slots()
        maps = ops.transpose(self._present(inputs, activations), (3, 2, 0, 1))
        if slots.types is None:
            maps = ops.tile(maps, (self.max_of_type, 1, 1, 1))
        else:
            maps = ops.take(maps, ops.reshape(slots.types, (-1,)), axis=0)
        count, parents, _ = slots.shifts.shape
        # First over columns, then over rows, such that no large tensor is
        # turned: [s, jx, w] by [s, w, bh] is [s, jxb, h], and so on.
        anchors, (on_rows, on_columns) = self._kernels((rows, columns), slots)
        down, across = (len(a) for a in anchors)
        groups = maps.shape[0]
        maps = ops.reshape(maps, (groups, columns, -1))
        on_columns = ops.swapaxes(on_columns, 2, 3)
        on_columns = ops.reshape(on_columns, (groups, -1, columns))
        mass = ops.matmul(on_columns, maps)
        mass = ops.reshape(mass, (count * parents, -1, rows))
        on_rows = ops.reshape(on_rows, (count * parents, rows, down))
        mass = ops.reshape(ops.matmul(mass, on_rows), (count, parents, -1))
        ratios = self._log_ratios(mass) * ops.expand_dims(slots.there, -1)
        evidence = ops.reshape(
            ops.sum(ratios, axis=0), (parents, across, -1, down)
        )
        evidence = ops.transpose(evidence, (2, 0, 3, 1))
        grid = np.stack(np.meshgrid(*anchors, indexing="ij"), axis=-1)
        grid = grid.reshape(-1, 2).astype("float32")

        def place(index: Tensor) -> Tensor:
            return ops.take(ops.convert_to_tensor(grid), index, axis=0)

        return ops.reshape(evidence, (-1, parents, down * across)), place

    def _kernels(
        self, sides: tuple[int, int], slots: _Slots
    ) -> tuple[list[Any], list[Tensor]]:
        """Returns rows and columns to try, and nearness `[s, j, cells, x]`."""
        anchors, kernels = [], []
        for axis, count in enumerate(sides):
            cells = centres(count, self.stride, self.offset[axis])
            edge = count // _BORDER
            anchors.append(cells[edge : count - edge])
            wanted = ops.reshape(
                slots.shifts[..., axis], (*slots.shifts.shape[:2], 1, 1)
            )
            apart = cells[:, None] - anchors[-1] - wanted
            kernels.append(ops.exp(-0.5 * ops.square(apart / self._width())))
        return anchors, kernels

    def _trace(
        self,
        places: Tensor,
        present: Tensor,
        evidence: Tensor,
        start: Tensor,
        decided: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns poses `[b, j, 2]`, activations `[b, j]`, and couplings.

        Of children at `[b, n, t, 2]`, from the best places `[b, j, 2]` on.
        """
        slots = self._slots()
        # Each component apart: sums over a last axis of two are slow.
        votes = [
            self._of_slots(places[..., d], slots)
            - _by_class(slots.shifts[..., d])
            for d in (0, 1)
        ]
        amounts = self._of_slots(present, slots) * _by_class(slots.there)
        scale = -0.5 / ops.square(self._width())
        shape = (-1, self.num_capsules, 1, 1)

        def near(poses: Tensor) -> Tensor:
            apart = sum(
                ops.square(vote - ops.reshape(poses[..., d], shape))
                for d, vote in enumerate(votes)
            )
            nearness = amounts * ops.exp(scale * apart)
            if not self.shared:
                return nearness
            total = ops.sum(nearness, axis=2, keepdims=True)
            return nearness * nearness / (total + 1e-9)

        poses = ops.stop_gradient(start)
        for _ in range(_STEPS - 1):
            poses = _mean_of_votes(near(poses), votes, poses)
        nearness = near(poses)
        belongs = (1.0 + _ORPHAN) * nearness / (nearness + _ORPHAN)
        shares = ops.reshape(softmax(evidence), shape)
        couplings = self.rounded(shares * belongs)
        poses = _mean_of_votes(couplings, votes, poses)
        active = self._completeness(couplings, slots)
        if decided:
            best = ops.one_hot(longest(active), self.num_capsules)
            best = ops.cast(ops.reshape(best, shape), belongs.dtype)
            couplings = self.rounded(best * belongs)
        return poses, active, self._of_children(couplings, slots)

    def _completeness(self, couplings: Tensor, slots: _Slots) -> Tensor:
        """Returns the share of expected parts that is coupled, `[b, j]`."""
        ratios = self._log_ratios(ops.sum(couplings, axis=2))
        there = ops.transpose(slots.there)  # [j, s]
        most = ops.maximum(ops.max(ops.sum(there, axis=-1)), 1.0)
        sums = ops.sum(ratios * there, axis=-1)
        gain = -math.log(self.epsilon)
        return ops.clip(0.5 + sums / (most * gain), 0.0, 1.0)

    def _of_slots(self, values: Tensor, slots: _Slots) -> Tensor:
        """Returns values `[b, n, t]` of types as `[b, j or 1, n, s]`."""
        if slots.types is None:
            tiled = ops.tile(values, (1, 1, self.max_of_type))
            return ops.expand_dims(tiled, 1)
        count, (most, parents) = values.shape[1], slots.types.shape
        taken = ops.take(values, ops.reshape(slots.types, (-1,)), axis=-1)
        taken = ops.reshape(taken, (-1, count, most, parents))
        return ops.transpose(taken, (0, 3, 1, 2))

    def _of_children(self, couplings: Tensor, slots: _Slots) -> Tensor:
        """Returns couplings `[b, j, n, s]` of each child, `[b, i, j]`."""
        _, parents, count, number = couplings.shape
        types = self.slots.shape[0] // self.max_of_type
        if slots.types is None:
            shape = (-1, parents, count, self.max_of_type, types)
            spread = ops.sum(ops.reshape(couplings, shape), axis=3)
            spread = ops.transpose(spread, (0, 2, 3, 1))
        else:
            which = ops.one_hot(slots.types, types, dtype=couplings.dtype)
            spread = ops.einsum("bjns,sjt->bntj", couplings, which)
        spread = ops.reshape(spread, (-1, count * types, parents))
        # A child may be each of the parts of its type.
        return ops.minimum(spread, 1.0) if self.max_of_type > 1 else spread

    def _slots(self) -> _Slots:
        there = ops.clip(ops.cast(self.slots, "float32"), 0.0, 1.0)
        shifts = ops.cast(self.shifts, "float32")
        count = there.shape[0]
        if self.max_parts is None:
            return _Slots(there, shifts, None)
        most = min(self.max_parts, count)
        _, index = ops.top_k(ops.transpose(there), most)
        index = ops.transpose(index)
        return _Slots(
            ops.take_along_axis(there, index, axis=0),
            ops.take_along_axis(shifts, ops.expand_dims(index, -1), axis=0),
            index % (count // self.max_of_type),
        )

    def _width(self) -> Tensor:
        log_width = ops.cast(self.log_width, "float32")
        return ops.exp(ops.clip(log_width, *_LOG_WIDTHS))

    def _log_ratios(self, mass: Tensor) -> Tensor:
        """Returns the log-likelihood ratios of parts of so much mass."""
        share = ops.minimum(mass, 1.0)
        likelihood = self.epsilon + (1.0 - self.epsilon) * share
        return ops.log(likelihood) - 0.5 * math.log(self.epsilon)

    def _present(self, inputs: Tensor, activations: Tensor | None) -> Tensor:
        """Returns the activations of the children, `[b, h, w, t]`."""
        if activations is None:
            raise ValueError(
                f"{type(self).__name__} need the `activations` of the parts, "
                "as a place does not tell whether something is there. "
                "Received: activations=None. Call it on both outputs of "
                "`PartCaps`."
            )
        return ops.cast(child_activations(inputs, activations), "float32")

    def _repulsion(self, blueprint: Tensor) -> Tensor:
        """Returns the penalty of types of a class that stand at one place."""
        places = blueprint * self.side
        slots, parents, _ = places.shape
        apart = ops.expand_dims(places, 1) - ops.expand_dims(places, 0)
        square = ops.sum(ops.square(apart), axis=-1)  # [s, s, j]
        near = ops.square(ops.relu(1.0 - square / _APART**2))
        both = ops.expand_dims(self.slots, 1) * ops.expand_dims(self.slots, 0)
        others = ops.expand_dims(1.0 - np.eye(slots, dtype="float32"), -1)
        total = ops.sum(near * both * others)
        return _REPULSION * total / (slots * parents)

    # ------------------------------------------- what `tfcaps.rem` asks for

    def tree_threshold(self, parents: int) -> float:
        """Returns one half: more of a child belongs to a class than not."""
        return 0.5

    def voting_activations(
        self, inputs: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        """Returns activations `[b, i]`, 0 of types that no class has."""
        present = self._present(inputs, activations)
        types = int(present.shape[-1])
        slots = ops.reshape(self.slots, (-1, types, self.num_capsules))
        votes = ops.any(slots != 0, axis=(0, 2))
        present = ops.where(votes, present, 0.0)
        return ops.reshape(present, (-1, math.prod(inputs.shape[1:-1])))

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the search for the best places, and the passes over votes."""
        rows, columns, types = self.children_shape(input_shape)
        slots = types * self.max_of_type
        slots = min(self.max_parts or slots, slots) * self.num_capsules
        down, right = (n - 2 * (n // _BORDER) for n in (rows, columns))
        searched = columns * rows * right + right * rows * down
        return int(slots * (searched + rows * columns * 2 * 2 * _STEPS))


def _of_few(
    trace: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    places: Tensor,
    present: Tensor,
) -> tuple[Tensor, ...]:
    """Returns what `trace` does, from the places where something is.

    Inactive children change nothing, and what makes them so, such as the
    competition of `PartCaps`, passes no gradient on. If something is at more
    than an eighth of the places `[b, n, t * 2]`, in some image, all are taken.
    """
    _, count, types = present.shape
    few = math.ceil(count / _FEW)
    there = ops.cast(ops.any(present != 0, axis=-1), "int32")  # [b, n]
    first = np.arange(count, 0, -1, dtype="int32")
    _, chosen = ops.top_k(there * first, few)  # in their order
    rank = ops.where(there != 0, ops.cumsum(there, axis=-1) - 1, few)

    def of_few() -> tuple[Tensor, ...]:
        poses, active, couplings = trace(
            _rows(places, chosen), _rows(present, chosen)
        )
        parents = couplings.shape[-1]
        couplings = ops.reshape(couplings, (-1, few, types * parents))
        none = [[0, 0], [0, 1], [0, 0]]  # of places where nothing is
        couplings = _rows(ops.pad(couplings, none), rank)
        couplings = ops.reshape(couplings, (-1, count * types, parents))
        return poses, active, couplings

    enough = ops.all(ops.sum(there, axis=-1) <= few)
    return ops.cond(enough, of_few, lambda: trace(places, present))


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """Returns whole rows `[b, m, k]` of values `[b, n, k]`, by `[b, m]`."""
    _, count, size = values.shape
    first = count * ops.arange(ops.shape(values)[0], dtype="int32")
    flat = ops.reshape(index + first[:, None], (-1,))
    rows = ops.take(ops.reshape(values, (-1, size)), flat, axis=0)
    return ops.reshape(rows, (-1, index.shape[1], size))


def _by_class(values: Tensor) -> Tensor:
    """Returns values `[s, j]` as `[1, j, 1, s]`."""
    slots, parents = values.shape
    return ops.reshape(ops.transpose(values), (1, parents, 1, slots))


def _mean_of_votes(
    weights: Tensor, votes: list[Tensor], poses: Tensor
) -> Tensor:
    """Returns the weighted means of votes `[b, j, n, s]`, poses if of none."""
    total = ops.expand_dims(ops.sum(weights, axis=(2, 3)), -1)
    sums = ops.stack(
        [ops.sum(weights * vote, axis=(2, 3)) for vote in votes], axis=-1
    )
    enough = total > _LEAST_MASS
    return ops.where(enough, sums / ops.maximum(total, _LEAST_MASS), poses)
