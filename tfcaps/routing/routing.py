"""Base of every routing: votes in, poses, activations and couplings out."""

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import keras
from keras import ops

from tfcaps.ops import Tensor, check_that, is_integer, rounded
from tfcaps.routing.votes import Votes

# Arguments of earlier versions, which saved models have: without effect, and
# under another name.
_GONE = ("orphan_mode", "beta_u_initializer", "beta_a_initializer")
_RENAMED = {"levels_mode": "mode"}


class Routed(NamedTuple):
    """The result of a routing, in float32, or float64 for such votes."""

    poses: Tensor  # of parents, [b, j, d]
    activations: Tensor  # of parents, [b, j], in [0, 1]
    couplings: Tensor  # from which the poses were made, [b, i, j]


class Weight(NamedTuple):
    """A weight that a layer keeps for its routing."""

    shape: tuple[int, ...]
    initializer: Any  # or its name
    trainable: bool = True
    per_child: bool = False  # whether its first axis is that of the children


class Kind(NamedTuple):
    """What a setting must be, how that is tested, and its type."""

    must: str
    holds: Callable[[Any], bool]
    type: Callable[[Any], Any] = lambda value: value


def whole(least: int) -> Kind:
    """Returns the kind of integers of at least `least`."""
    must = f"be an integer of at least {least}"
    return Kind(must, lambda value: is_integer(value) and value >= least, int)


def one_of(*names: Any) -> Kind:
    """Returns the kind of names."""
    return Kind(f"be one of {names}", lambda value: value in names)


ABOVE_0 = Kind(
    "be a finite number above 0", lambda value: 0 < value < math.inf, float
)
NOT_NEGATIVE = Kind(
    "not be negative", lambda value: 0 <= value < math.inf, float
)
FINITE = Kind("be a finite number", math.isfinite, float)
_KINDS = {
    "iterations": whole(1),
    "levels": whole(2),
    "silent_parents": whole(0),
    "gradient": one_of("last", "full"),
    "mode": one_of("midtread", "midrise"),
    "sharpness": ABOVE_0,
}


@dataclass(eq=False, kw_only=True)
class Routing(abc.ABC):
    """Decides how much of each child's vote reaches each parent.

    A routing has settings but no weights: the layer owns the transformation and
    the weights that `weights` lists. Subclasses are data classes
    (`dataclass(eq=False)`) of their settings, implement `route`, and register
    themselves under the package `tfcaps`.

    Settings that several have mean the same everywhere:

    - `iterations`: Int, at least 1.
    - `gradient`: `"full"` to differentiate through all iterations, or `"last"`
      to take the couplings for constants of the backward pass, with the same
      outputs.
    - `levels`: `None`, or to how many levels the couplings of the last
      iteration are rounded, without renormalisation or gradient.
    - `mode`: What kind of levels, see `tfcaps.rem.quantize`.
    - `sharpness`: The factor of the agreements, above 0.
    - `silent_parents`: How many further parents, for which every child votes
      zero, compete for children and are left out of all outputs.
      (`tfcaps.rem.compact` counts those that it removes.)

    Call arguments:
        votes: Tensor `[b, i, j, d]`, or `Votes`.
        activations: Child activations `[b, i]`, where a routing uses them.
        bias: Tensor `[j, d]` added to the weighted sum of votes, unless the
            routing says otherwise, or `None`.
        **weights: Other weights of the routing, by the names in `weights`.

    Raises:
        ValueError: If a setting is out of range.
    """

    levels: int | None = None
    mode: str = "midtread"

    # What settings of a subclass alone must be.
    own_kinds: ClassVar[Mapping[str, Kind]] = {}

    # Whether parents have activations of their own, not their poses' lengths.
    explicit_activations = False

    # Whether votes are only summed, compared and measured: layers may then
    # give `FactoredVotes`, which are never held in memory.
    vote_free = False

    # Whether votes are contracted in no loops but those of `repeat`: what they
    # were contracted to can then be kept for the backward pass.
    replays = False

    # Whether a layer that is called in training with labels moves the weight
    # `coefficients` by a method `step`, see `RegularizedRouting.step`.
    learns_from_labels = False

    # Whether a child that votes zero for every parent moves none of them, and
    # gets the same couplings as every other such child, so that
    # `tfcaps.rem.compact` can leave it out.
    ignores_silent = False

    def __post_init__(self) -> None:
        kinds = {**_KINDS, **self.own_kinds}
        for name, value in self.get_config().items():
            if name in kinds and not (name == "levels" and value is None):
                kind = kinds[name]
                check_that(kind.holds(value), kind.must, **{name: value})
                setattr(self, name, kinds[name].type(value))

    def __call__(
        self,
        votes: Tensor | Votes,
        activations: Tensor | None = None,
        bias: Tensor | None = None,
        **weights: Tensor,
    ) -> Routed:
        if not isinstance(votes, Votes):
            votes = Votes(votes)
        tensors = {"activations": activations, "bias": bias, **weights}
        return self.route(
            votes,
            **{
                name: None if value is None else ops.cast(value, votes.dtype)
                for name, value in tensors.items()
            },
        )

    @abc.abstractmethod
    def route(
        self, votes: Votes, activations: Tensor | None, bias: Tensor | None
    ) -> Routed:
        """Routes votes `[b, i, j, d]` to parents."""

    @property
    def differentiates_loop(self) -> bool:
        """True if gradients go through a loop of iterations."""
        through = getattr(self, "gradient", "last") == "full"
        return through and getattr(self, "iterations", 1) > 1

    @property
    def vote_passes(self) -> int:
        """The number of times that all votes are summed, compared or measured.

        By default a sum in each iteration, and an agreement between two.
        """
        return 2 * int(getattr(self, "iterations", 1)) - 1

    def tree_threshold(self, parents: int) -> float:
        """Returns the coupling that a child must exceed to be in a tree.

        Children that chose nothing are coupled with each of `parents` parents
        by `1 / J`. A routing whose couplings do not compete says what else they
        must exceed.
        """
        return 1.0 / parents

    def weights(
        self, children: int, parents: int, dim: int
    ) -> dict[str, Weight]:
        """Returns the weights that a layer makes for this routing, by name."""
        del children
        return {
            "bias": Weight((parents, dim), keras.initializers.Constant(0.1))
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the settings."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Routing":
        known = (item for item in config.items() if item[0] not in _GONE)
        return cls(**{_RENAMED.get(name, name): value for name, value in known})

    def constant(self, tensor: Tensor) -> Tensor:
        """Returns a constant of the backward pass for `gradient="last"`."""
        is_last = getattr(self, "gradient", "full") == "last"
        return ops.stop_gradient(tensor) if is_last else tensor

    def rounded(self, couplings: Tensor) -> Tensor:
        """Returns couplings `[b, i, j]` at their levels, if there are any."""
        return rounded(couplings, self.levels, self.mode)
