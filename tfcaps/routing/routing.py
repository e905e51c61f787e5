"""Base of every routing: votes in, poses, activations and couplings out."""

import abc
import math
from typing import Any, NamedTuple

import keras
from keras import ops

from tfcaps.ops import Tensor, check_levels, dequantize, is_integer, quantize
from tfcaps.routing.votes import Votes

# Arguments of version 0.2, which saved models have.
_OF_0_2 = ("orphan_mode", "beta_u_initializer", "beta_a_initializer")


class Routed(NamedTuple):
    """The result of a routing, in float32, or float64 for such votes.

    Attributes:
        poses: Parent poses `[b, j, d]`.
        activations: Parent activations `[b, j]`, in [0, 1].
        couplings: The couplings `[b, i, j]` from which the poses were made.
    """

    poses: Tensor
    activations: Tensor
    couplings: Tensor


class Weight(NamedTuple):
    """A weight that a layer keeps for its routing.

    Attributes:
        shape: Its shape.
        initializer: A `keras.initializers.Initializer` or its name.
        trainable: Whether the optimiser moves it.
        per_child: Whether its first axis is that of the children.
    """

    shape: tuple[int, ...]
    initializer: Any
    trainable: bool = True
    per_child: bool = False


class Routing(abc.ABC):
    """Decides how much of each child's vote reaches each parent.

    A routing has settings but no weights: the layer owns the transformation and
    the weights that `weights` lists. Subclasses implement `route` and
    `get_config`, take `levels` and `levels_mode` among their arguments, and
    register themselves under the package `tfcaps`.

    Call arguments:
        votes: Tensor `[b, i, j, d]`, or `Votes`.
        activations: Child activations `[b, i]`, where a routing uses them.
        bias: Tensor `[j, d]` added to the weighted sum of votes, unless the
            routing says otherwise, or `None`.
        **weights: Other weights of the routing, by the names in `weights`.
    """

    # Levels of the couplings in the last iteration; None leaves them as is.
    levels: int | None = None

    # What kind of levels these are, see `tfcaps.ops.quantize`.
    levels_mode = "midtread"

    # Whether parents have activations of their own, not their poses' lengths.
    explicit_activations = False

    # Whether votes are only summed, compared and measured: layers may then
    # give `FactoredVotes`, which are never held in memory.
    vote_free = False

    # Whether a layer that is called in training with labels moves the weight
    # `coefficients` by `step`.
    learns_from_labels = False

    # Whether a child that votes zero for every parent moves none of them, and
    # gets the same couplings as every other such child, so that
    # `tfcaps.rem.compact` can leave it out.
    ignores_silent = False

    # Whether a child whose activation is 0 moves no parent.
    ignores_inactive = False

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
        self,
        votes: Votes,
        activations: Tensor | None,
        bias: Tensor | None,
    ) -> Routed:
        """Routes votes to parents."""

    def step(
        self, votes: Tensor | Votes, coefficients: Tensor, targets: Tensor
    ) -> Tensor:
        """Returns the weight `coefficients` after one step on a batch.

        Only a routing that `learns_from_labels` implements it.

        Args:
            votes: Votes `[b, i, j, d]`.
            coefficients: The weight, as `weights` declares it.
            targets: Tensor `[b, j]`, 1 for the classes of a sample, else 0.
        """
        raise NotImplementedError

    @property
    def differentiates_loop(self) -> bool:
        """True if gradients go through a loop of iterations.

        XLA can only compute them by computing the iterations twice, which is
        done where votes are held (`vote_free` is not set).
        """
        through = getattr(self, "gradient", "last") == "full"
        return through and getattr(self, "iterations", 1) > 1

    @property
    def vote_passes(self) -> int:
        """The number of times that all votes are summed, compared or measured.

        `tfcaps.rem.multiply_adds` counts a multiply-add for each component of
        each vote in each pass. By default a sum in each iteration, and an
        agreement between two.
        """
        return 2 * int(getattr(self, "iterations", 1)) - 1

    def tree_threshold(self, parents: int) -> float:
        """Returns the coupling that a child must exceed to be in a tree.

        Children that chose nothing are coupled with each parent by `1 / J`. A
        routing whose couplings do not compete says what else they must exceed.

        Args:
            parents: Int, `J`. How many parents the children choose from.
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

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Routing":
        return cls(**{k: v for k, v in config.items() if k not in _OF_0_2})

    def rounded(self, couplings: Tensor) -> Tensor:
        """Returns couplings at their levels, if there are any."""
        if self.levels is None:
            return couplings
        codes = quantize(couplings, self.levels, mode=self.levels_mode)
        rounded = dequantize(codes, self.levels, mode=self.levels_mode)
        return ops.cast(rounded, couplings.dtype)


def check_iterations(iterations: Any) -> int:
    """Returns an iteration count.

    Raises:
        ValueError: Unless it is an integer of at least 1.
    """
    if not is_integer(iterations):
        raise ValueError(
            "`iterations` must be an integer. Received: "
            f"iterations={iterations!r}."
        )
    if iterations < 1:
        raise ValueError(
            "`iterations` must be at least 1. Received: "
            f"iterations={iterations}. Use 1 for equal couplings."
        )
    return int(iterations)


def check_gradient(gradient: Any) -> str:
    """Returns a gradient mode.

    Raises:
        ValueError: Unless it is `"last"` or `"full"`.
    """
    if gradient not in ("last", "full"):
        raise ValueError(
            '`gradient` must be "last" or "full". Received: '
            f"gradient={gradient!r}."
        )
    return str(gradient)


def check_silent_parents(silent_parents: Any) -> int:
    """Returns the number of silent parents.

    Raises:
        ValueError: Unless it is an integer of at least 0.
    """
    if not is_integer(silent_parents) or silent_parents < 0:
        raise ValueError(
            "`silent_parents` must be an integer of at least 0. Received: "
            f"silent_parents={silent_parents!r}."
        )
    return int(silent_parents)


def check_sharpness(sharpness: Any) -> float:
    """Returns the factor of the agreements.

    Raises:
        ValueError: Unless it is a finite number above 0.
    """
    if not 0 < float(sharpness) < math.inf:
        raise ValueError(
            "`sharpness` must be a finite number above 0. Received: "
            f"sharpness={float(sharpness)}."
        )
    return float(sharpness)


def check_routing_levels(levels: Any) -> int | None:
    """Returns levels of couplings, or `None` for none.

    Raises:
        ValueError: Unless it is `None` or an integer of at least 2.
    """
    if levels is None:
        return None
    check_levels(levels)
    return int(levels)
