"""What every routing is: votes in, poses, activations and couplings out."""

import abc
from typing import Any, NamedTuple

from tfcaps.ops import Tensor
from tfcaps.routing.votes import Votes


class Routed(NamedTuple):
    """What a routing returns, in float32, or float64 for such votes.

    Attributes:
        poses: Parent poses `[b, j, d]`.
        activations: Parent activations `[b, j]`, in [0, 1).
        couplings: The couplings `[b, i, j]` that made the poses.
    """

    poses: Tensor
    activations: Tensor
    couplings: Tensor


class Routing(abc.ABC):
    """Decides how much of each child's vote reaches each parent.

    A routing has settings but no weights: the layer owns the transformation and
    the bias. Subclasses implement `route` and `get_config`, take `levels` among
    their arguments, and register themselves under the package `tfcaps`.

    Call arguments:
        votes: Tensor `[b, i, j, d]`, or `Votes`.
        activations: Child activations `[b, i]`, where a routing uses them.
        bias: Tensor `[j, d]` added to the weighted sum of votes, or `None`.
    """

    # Levels of the couplings in the last iteration; None leaves them as is.
    levels: int | None = None

    def __call__(
        self,
        votes: Tensor | Votes,
        activations: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Routed:
        if not isinstance(votes, Votes):
            votes = Votes(votes)
        return self.route(votes, activations, bias)

    @abc.abstractmethod
    def route(
        self, votes: Votes, activations: Tensor | None, bias: Tensor | None
    ) -> Routed:
        """Routes votes to parents."""

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Routing":
        return cls(**config)
