"""Classes of centred images, by maps of where each type tells for them."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers.routed import select_outputs
from tfcaps.ops import Tensor, check_that, longest
from tfcaps.parts.constellation_caps import ConstellationCaps
from tfcaps.parts.part_caps import PartCaps
from tfcaps.parts.placed import add_float32

# Of what is learnt, so that Adam is as fast as for other weights.
_SCALE = 10.0


@keras.saving.register_keras_serializable(package="tfcaps")
class StrongestParts(PartCaps):
    """Finds of each type the place in the image with the most of it.

    Types do not compete, in training as at inference, so that there is nothing
    to be hardened. All else, but the `window`, is as in `PartCaps`.

    Example:

    >>> import numpy as np
    >>> features = np.zeros((2, 8, 8, 16), "float32")
    >>> poses, activations = StrongestParts(5)(features)
    >>> tuple(poses.shape), tuple(activations.shape)
    ((2, 8, 8, 5, 2), (2, 8, 8, 5))

    References:
        - As of `PartCaps`.
    """

    def call(
        self,
        inputs: Tensor,
        return_presence: bool = False,
        training: bool | None = None,
    ) -> Any:
        places, _, presence = super().call(inputs, return_presence=True)
        types, _ = ops.split(presence, [self.num_types], axis=-1)
        most = ops.max(types, axis=(1, 2), keepdims=True)
        active = types * ops.cast(types >= most, types.dtype)
        outputs = (places, active)
        return (*outputs, presence) if return_presence else outputs


@keras.saving.register_keras_serializable(package="tfcaps")
class MapCaps(ConstellationCaps):
    """Finds classes by maps of where each type of part tells for them.

    For shapes that vary too much for one blueprint, such as handwriting, whose
    objects stand in the middle of the image. A child of type `t` at place `p`
    with activation `a_i` adds `a_i M_tj(p)` to the log-odds of class `j`
    against nothing, and that is all there is:

        L_j  = log ε + sum_i a_i M_ij
        P_j  = exp L_j / (1 + sum_k exp L_k)
        c_ij = D_j s_ij / (s_ij + o),  s_ij = max(0, a_i M_ij)

    `P` are the activations and `c` the couplings. `D` is `P` in training; at
    inference it is 1 for the likeliest class and 0 for the others, and all are
    0 if nothing is likelier. So in the tree of this class are the children that
    tell for it by more than `o`, however sure it is, and without them nothing
    but the rest of the sum remains. `M` is the weight `maps`, smoothed by a
    normal distribution whose deviation is `width`: parts may stand a little
    beside. Poses are the mean places of the children, weighted by couplings.

    The evidence is `log P`. Shapes, and what is not listed, are those of
    `ConstellationCaps`, whose `shared`, `max_of_type` and `max_parts` mean
    nothing here.

    Args:
        num_capsules: Int. Number of classes.
        orphan: Float above 0. The nats `o` from which on a child is a leaf.
            Defaults to `0.7`.
        **kwargs: Arguments of `ConstellationCaps`.

    Raises:
        ValueError: As of `ConstellationCaps`, or if `orphan` is not above 0.

    Example:

    >>> import numpy as np
    >>> parts = np.zeros((2, 8, 8, 5, 2), "float32")
    >>> present = np.zeros((2, 8, 8, 5), "float32")
    >>> tuple(MapCaps(10)(parts, present).shape)
    (2, 10, 2)

    References:
        - Nauta et al., 2023, "PIP-Net" (a sheet of scores of parts)
    """

    def __init__(self, num_capsules: int, orphan: float = 0.7, **kwargs: Any):
        super().__init__(num_capsules, **kwargs)
        check_that(orphan > 0, "be above 0 nats", orphan=orphan)
        self.orphan = float(orphan)

    def build(self, input_shape: Any) -> None:
        rows, columns, types = self.grid(input_shape)
        self.side = self.stride * max(rows, columns)
        shape = (rows, columns, types, self.num_capsules)
        add_float32(self, "maps", shape, "zeros")

    def evidence_maps(self) -> Tensor:
        """Returns how much a part tells for a class, `[h, w, t, j]` in nats."""
        near = []
        for count in self.maps.shape[:2]:
            cells = self.stride * np.arange(count, dtype="float32")
            apart = (cells[:, None] - cells) / self.width
            near.append(np.exp(-0.5 * apart**2))
        maps = ops.cast(self.maps, "float32")
        return _SCALE * ops.einsum("yh,xw,hwtj->yxtj", *near, maps)

    @property
    def slots(self) -> Tensor:
        """Whether a type tells for a class anywhere, `[t, j]`."""
        most = ops.max(self.evidence_maps(), axis=(0, 1))
        return ops.cast(most > self.orphan, "float32")

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        return_activations: bool = False,
        return_evidence: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
    ) -> Any:
        children, parents = math.prod(inputs.shape[1:-1]), self.num_capsules
        present = self._present(inputs, activations)
        present = ops.reshape(present, (-1, children))
        maps = ops.reshape(self.evidence_maps(), (children, parents))
        evidence = math.log(self.epsilon) + present @ maps
        # The log-odds of nothing are 0.
        odds = ops.pad(evidence, [[0, 0], [0, 1]])
        odds -= ops.logsumexp(odds, axis=-1, keepdims=True)
        evidence = odds[..., :-1]
        active = decided = ops.exp(evidence)
        if not training:
            best = ops.one_hot(longest(odds), parents + 1)
            decided = ops.cast(best[..., :-1], "float32")
        tells = ops.relu(ops.expand_dims(present, -1) * maps)
        share = tells / (tells + self.orphan)
        couplings = ops.expand_dims(decided, 1) * share
        couplings = self.rounded(couplings)
        places = ops.cast(ops.reshape(inputs, (-1, children, 2)), "float32")
        # As weighted by couplings, without the class's own factor.
        total = ops.expand_dims(ops.sum(share, axis=1), -1)
        poses = ops.einsum("bij,bid->bjd", share, places) / (total + 1e-6)
        wanted = (return_activations, return_evidence, return_couplings)
        return select_outputs((poses, active, evidence, couplings), wanted)

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the sums over children, of evidence and of places."""
        rows, columns, types = self.children_shape(input_shape)
        return int(3 * rows * columns * types * self.num_capsules)
