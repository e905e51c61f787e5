"""Routing by the place at which the votes of parts agree."""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from tfcaps.ops import Tensor, check_mode, check_positive, longest, softmax
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import Routed, Routing, Weight
from tfcaps.routing.votes import Votes

# A pose moves to the mean of its votes if these weigh at least so much.
_LEAST_MASS = 0.1
# Widths beyond are all or nothing, and their squares no numbers.
_LOG_WIDTHS = (-10.0, 10.0)
# Of which e to the power, times all parents, is still a number.
_MOST_EVIDENCE = 60.0
# Above one half, more of a child belongs to a parent than to nobody.
_IN_TREE = 0.5


class Mode(NamedTuple):
    """The place where the votes for each parent agree most.

    Attributes:
        evidence: Log-likelihood ratio `[b, j]` of each parent, over all places.
        poses: The place `[b, j, d]` of the largest evidence.
    """

    evidence: Tensor
    poses: Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class MeanShiftRouting(Routing):
    """Finds the mode of the votes for each parent, and couples those near it.

    Children are of `T` types, the last axis to vary: child `i` has type
    `t = i mod T`. A parent expects one child of each type `t` with a slot,
    `w_tj = 1`, to vote for its place. With the children's activations `a_i` and
    the width `s`

        m_tj(x) = min(1, sum_{i of t} a_i exp(-|û_ij - x|^2 / 2 s^2))
        L_j(x)  = sum_t w_tj (log(ε + (1 - ε) m_tj(x)) + log(1 / ε) / 2)

    is the evidence for parent `j` at place `x`. From the best place on, `x_j`
    is moved to the mean of the votes near it (mean shift), where of one type
    the nearest child counts most,

        r_ij = a_i exp(-|û_ij - x_j|^2 / 2 s^2) w_tj,  r_ij <- r_ij^2 / sum r,

    (the last step only if `exclusive`) and the couplings are, with `o` for
    nobody, the orphan,

        c_ij = softmax_j(log sum_x exp L_j(x)) (1 + o) r_ij / (r_ij + o).

    Poses are the means of votes weighted by couplings. Activations say how much
    of what a parent expects is coupled with it: with `N` the most slots of a
    parent

        a_j = 1/2 + sum_t w_tj (log(ε + (1 - ε) min(1, sum_{i of t} c_ij))
              + log(1 / ε) / 2) / (N log(1 / ε)).

    That is 1 if all is there, 0 if nothing is, of a parent of `N` slots. A
    child belongs to one parent or to none, so its couplings sum to 1 at most,
    and it is in a tree if its coupling exceeds one half.

    So one parent is there. If there may be several (`several=True`), each at
    its place, they compete for each child, and nobody does so with 1:

        c_ij = s_ij (1 + o) r_ij / (r_ij + o),
        s_ij = r_ij sum_x exp L_j(x) / (1 + sum_k r_ik sum_x exp L_k(x))

    and the activation is the geometric mean, over the slots of a parent, of the
    likelihoods `ε + (1 - ε) min(1, sum_{i of t} c_ij)`.

    At inference layers decide: the couplings that they return are `(1 + o) r_ij
    / (r_ij + o)` for the most active parent, however sure it is, and 0 for
    others; if there may be several, for the parent that claims the most of a
    child, or for none if nobody claims more. A child of two parents that are
    as likely is so in the tree of one, and not of none. Poses and activations
    are those of the shared couplings.

    Args:
        types: Int. Types of children, `T`. Defaults to `1`.
        steps: Int. Steps of the mean shift. Defaults to `3`.
        width: Float above 0. The width `s`, in the unit of the votes; a weight
            of the layer that training narrows. Defaults to `2.0`.
        epsilon: Float in (0, 1). Likelihood that a part is missed, `ε`.
            Defaults to `0.02`.
        orphan: Float above 0. How much of a child nobody wants, `o`. Defaults
            to `0.2`.
        several: Bool. Several parents may be there, and not one alone. Defaults
            to `False`.
        exclusive: Bool. Let children of one type compete, so that a parent has
            one of each type. Otherwise it has all that are near its place, and
            none that is left out can take the place of one. Defaults to `True`.
        levels: Int or `None`. Round the couplings to this many levels, see
            `tfcaps.rem.quantize`. Meant for inference. Defaults to `None`.
        mode: `"midtread"` or `"midrise"`. Defaults to `"midtread"`.

    Raises:
        ValueError: If an argument is out of range, or the children are not as
            many of each type.

    Example:

    >>> import numpy as np
    >>> votes = np.zeros((1, 3, 2, 2), "float32")  # [b, i, j, d]
    >>> votes[0, 2] = 40.0  # far from the others
    >>> couplings = MeanShiftRouting(types=3)(votes).couplings
    >>> for coupling in couplings[0, :, 0]:
    ...     print(round(float(coupling), 3))
    0.5
    0.5
    0.0

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

    explicit_activations = True
    ignores_inactive = True

    def __init__(
        self,
        types: int = 1,
        steps: int = 3,
        width: float = 2.0,
        epsilon: float = 0.02,
        orphan: float = 0.2,
        exclusive: bool = True,
        levels: int | None = None,
        mode: str = "midtread",
        several: bool = False,
    ):
        check_positive(types=types)
        self.types = types
        self.steps = _check_steps(steps)
        for name, value, most in (
            ("width", width, math.inf),
            ("epsilon", epsilon, 1.0),
            ("orphan", orphan, math.inf),
        ):
            if not 0 < value < most:
                raise ValueError(
                    f"`{name}` must be above 0 and below {most}. Received: "
                    f"{name}={value}."
                )
        self.width = float(width)
        self.epsilon = float(epsilon)
        self.orphan = float(orphan)
        self.exclusive = exclusive
        self.several = several
        self.levels = levels
        self.mode = check_mode(mode)

    def weights(
        self, children: int, parents: int, dim: int
    ) -> dict[str, Weight]:
        del children, dim
        # Neither is learnt by gradients: training sets them.
        return {
            "log_width": Weight(
                (),
                keras.initializers.Constant(math.log(self.width)),
                trainable=False,
            ),
            "slots": Weight((self.types, parents), "ones", trainable=False),
        }

    def tree_threshold(self, parents: int) -> float:
        del parents
        return _IN_TREE

    @property
    def vote_passes(self) -> int:
        """The number of times that all votes are read, see `Routing`."""
        return 2 * self.steps

    def route(
        self,
        votes: Votes,
        activations: Tensor | None,
        bias: Tensor | None,
        log_width: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Routed:
        del bias
        mode = self.best_place(votes, activations, log_width, slots)
        return self.trace(votes, mode, activations, log_width, slots)

    def best_place(
        self,
        votes: Votes,
        activations: Tensor | None = None,
        log_width: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Mode:
        """Returns the place where votes agree most, and its evidence."""
        evidence, anchors = self.evidence_map(
            votes, activations, log_width, slots
        )
        best = longest(ops.stop_gradient(evidence))  # [b, j]
        return Mode(ops.logsumexp(evidence, axis=-1), anchors(best))

    def evidence_map(
        self,
        votes: Votes,
        activations: Tensor | None = None,
        log_width: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Returns the evidence at each place.

        Returns:
            `L` `[b, j, x]`, and a function from indices `[b, j]` of `x` to
            places `[b, j, d]`.
        """
        mass = votes.mass(
            self._by_type(votes, activations), self._width(votes, log_width)
        )
        evidence = self._log_ratios(mass.of_types)
        if slots is not None:
            slots = votes.of_kept(ops.clip(slots, 0.0, 1.0))
            evidence = evidence * ops.expand_dims(slots, -1)
        return mass.by_image(ops.sum(evidence, axis=0)), mass.place

    def trace(
        self,
        votes: Votes,
        mode: Mode,
        activations: Tensor | None = None,
        log_width: Tensor | None = None,
        slots: Tensor | None = None,
        decided: bool = False,
    ) -> Routed:
        """Couples the children whose votes are near the modes.

        If decided, each child is coupled with one parent at most.
        """
        # Each component apart: sums over a last axis of two are slow.
        components = votes.components()  # [b, j, i] each
        amounts = votes.amounts(self._by_type(votes, activations))
        scale = -0.5 / ops.square(self._width(votes, log_width))
        if slots is not None:
            slots = votes.of_kept(ops.clip(slots, 0.0, 1.0))
            children = int(amounts.shape[-1])
            wanted = ops.tile(
                ops.transpose(slots), (1, children // int(slots.shape[0]))
            )
            amounts = amounts * ops.expand_dims(wanted, 0)  # [b, j, i]

        types = self.types if slots is None else int(slots.shape[0])

        def near(poses: Tensor) -> Tensor:
            apart = sum(
                ops.square(component - poses[..., d : d + 1])
                for d, component in enumerate(components)
            )
            found = amounts * ops.exp(scale * apart)
            return _nearest_of_type(found, types) if self.exclusive else found

        def shift(_: Tensor, poses: Tensor) -> Tensor:
            return _mean_of_votes(near(poses), components, poses)

        start = ops.stop_gradient(mode.poses)
        poses = repeat(shift, start, self.steps - 1)
        found = near(poses)
        belongs = (1.0 + self.orphan) * found / (found + self.orphan)
        if not self.several:
            shares = ops.expand_dims(softmax(mode.evidence), -1)
        else:
            evidence = ops.minimum(mode.evidence, _MOST_EVIDENCE)
            claims = found * ops.expand_dims(ops.exp(evidence), -1)
            shares = claims / (1.0 + votes.of_all_parents(claims))
        couplings = self.rounded(shares * belongs)
        poses = _mean_of_votes(couplings, components, poses)
        active = self._activations(couplings, slots)
        couplings = votes.of_children(couplings)
        if decided and self.several:
            claimed = votes.of_children(shares)
            nobody = 1.0 - ops.sum(claimed, axis=-1, keepdims=True)
            best = longest(ops.concatenate([claimed, nobody], -1))
            best = ops.one_hot(best, claimed.shape[-1] + 1)[..., :-1]
            best = ops.cast(best, belongs.dtype)
            couplings = self.rounded(best * votes.of_children(belongs))
        elif decided:
            best = ops.one_hot(longest(active), active.shape[-1])
            best = ops.cast(ops.expand_dims(best, -1), belongs.dtype)
            couplings = votes.of_children(self.rounded(best * belongs))
        return Routed(poses, active, couplings)

    def _activations(self, couplings: Tensor, slots: Tensor | None) -> Tensor:
        """Returns the share of expected parts that is coupled, `[b, j]`."""
        _, parents, children = couplings.shape
        types = self.types if slots is None else int(slots.shape[0])
        shape = (-1, parents, children // types, types)
        mass = ops.sum(ops.reshape(couplings, shape), axis=2)  # [b, j, t]
        ratios = self._log_ratios(mass)
        if self.several:
            wanted: Any = ops.ones_like(ratios)
            if slots is not None:
                wanted = wanted * ops.transpose(slots)
            logs = (ratios + 0.5 * math.log(self.epsilon)) * wanted
            count = ops.maximum(ops.sum(wanted, axis=-1), 1.0)
            return ops.exp(ops.sum(logs, axis=-1) / count)
        most: Any = float(self.types)
        if slots is not None:
            ratios = ratios * ops.transpose(slots)
            most = ops.maximum(ops.max(ops.sum(slots, axis=0)), 1.0)
        gain = -math.log(self.epsilon)
        return ops.clip(0.5 + ops.sum(ratios, axis=-1) / (most * gain), 0, 1)

    def _log_ratios(self, mass: Tensor) -> Tensor:
        """Returns the log-likelihood ratios of parts found so strongly."""
        share = ops.minimum(mass, 1.0)
        likelihood = self.epsilon + (1.0 - self.epsilon) * share
        return ops.log(likelihood) - 0.5 * math.log(self.epsilon)

    def _by_type(self, votes: Votes, activations: Tensor | None) -> Tensor:
        """Returns activations `[b, n, t]` of children of each type."""
        children = int(votes.num_children)
        if children % self.types:
            raise ValueError(
                f"Children must be as many of each of the {self.types} types. "
                f"Received: {children} children."
            )
        if activations is None:
            activations = ops.ones_like(votes.components()[0][:, 0])
        return ops.reshape(
            activations, (-1, children // self.types, self.types)
        )

    def _width(self, votes: Votes, log_width: Tensor | None) -> Tensor:
        if log_width is None:
            return ops.cast(self.width, votes.dtype)
        return ops.exp(ops.clip(log_width, *_LOG_WIDTHS))

    def get_config(self) -> dict[str, Any]:
        return {
            "types": self.types,
            "steps": self.steps,
            "width": self.width,
            "epsilon": self.epsilon,
            "orphan": self.orphan,
            "exclusive": self.exclusive,
            "several": self.several,
            "levels": self.levels,
            "mode": self.mode,
        }


def _nearest_of_type(found: Tensor, types: int) -> Tensor:
    """Lets children of a type compete, `[b, j, i]`."""
    _, parents, children = found.shape
    of_types = ops.reshape(found, (-1, parents, children // types, types))
    total = ops.sum(of_types, axis=2, keepdims=True)
    shares = of_types * of_types / (total + 1e-9)
    return ops.reshape(shares, (-1, parents, children))


def _check_steps(steps: Any) -> int:
    """Returns a number of steps.

    Raises:
        ValueError: Unless it is an integer of at least 1.
    """
    check_positive(steps=steps)
    return int(steps)


def _mean_of_votes(
    weights: Tensor, components: list[Tensor], poses: Tensor
) -> Tensor:
    """Returns the weighted means of votes, or the poses if there are none.

    Args:
        weights: Tensor `[b, j, i]`.
        components: Those of the votes, `[b, j, i]` each.
        poses: Tensor `[b, j, d]`.
    """
    total = ops.sum(weights, axis=-1, keepdims=True)
    sums = ops.stack(
        [ops.sum(weights * each, axis=-1) for each in components], axis=-1
    )
    enough = total > _LEAST_MASS
    return ops.where(enough, sums / ops.maximum(total, _LEAST_MASS), poses)
