"""Class capsules that know how much each part tells, wherever it stands."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import routing as routings
from tfcaps.layers.constellation_caps import ConstellationCaps, select
from tfcaps.layers.part_caps import centres
from tfcaps.ops import Tensor, longest

# Of what is learnt, so that Adam is as fast as for other weights.
_SCALE = 10.0


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
    but the rest of the sum remains. `M` is the weight `maps`,
    smoothed by a normal distribution whose deviation is the width of the
    routing: parts may stand a little beside. Poses are the mean places of
    the children, weighted by couplings.

    Arguments that are not listed are those of `ConstellationCaps`.

    Args:
        num_capsules: Int. Number of classes.
        routing: A `tfcaps.routing.MeanShiftRouting`, whose width, epsilon,
            orphan and levels count. Defaults to `None`, one with its defaults.
        stride: Float. As in `PartCaps`. Defaults to `1`.
        offset: As in `PartCaps`. Defaults to `(0, 0)`.

    Call arguments, input and output shapes:
        As of `ConstellationCaps`. The evidence is `log P`.

    Example:

    >>> import numpy as np
    >>> parts = np.zeros((2, 8, 8, 5, 2), "float32")
    >>> present = np.zeros((2, 8, 8, 5), "float32")
    >>> _, classes = MapCaps(10)(parts, present, return_activations=True)
    >>> round(float(classes[0, 0]), 3)  # nothing is there
    0.017

    References:
        - Nauta et al., 2023, "PIP-Net" (a sheet of scores of parts)
    """

    def __init__(
        self,
        num_capsules: int,
        routing: Any = None,
        stride: float = 1.0,
        offset: tuple[float, float] = (0.0, 0.0),
        **kwargs: Any,
    ):
        # No class's places are estimated, see `BlueprintEstimation`.
        super().__init__(
            num_capsules, routing, stride, offset, shared=False, **kwargs
        )

    def build(self, input_shape: Any) -> None:
        rows, columns, types = self._checked(input_shape)
        self.side = self.stride * max(rows, columns)
        self._routing_weights = []
        self.maps = self.add_weight(
            shape=(rows, columns, types, self.num_capsules),
            initializer="zeros",
            autocast=False,
            name="maps",
        )

    def evidence_maps(self) -> Tensor:
        """Returns how much a part tells for a class, `[h, w, t, j]` in nats."""
        near = []
        for count in self.maps.shape[:2]:
            cells = centres(count, self.stride, 0.0)
            apart = (cells[:, None] - cells) / self.routing.width
            near.append(np.exp(-0.5 * apart**2))
        maps = ops.cast(self.maps, "float32")
        return _SCALE * ops.einsum("yh,xw,hwtj->yxtj", *near, maps)

    @property
    def shifts(self) -> Tensor:
        """Where a type tells most for a class, `[t, j, 2]` in pixels.

        It is counted from the middle of the map.
        """
        rows, columns, types, parents = self.maps.shape
        flat = ops.reshape(self.evidence_maps(), (-1, types, parents))
        best = ops.argmax(flat, axis=0)
        down, right = best // columns, best % columns
        cells = ops.cast(ops.stack([down, right], axis=-1), "float32")
        return self.stride * (cells - np.array([rows // 2, columns // 2], "f"))

    @property
    def slots(self) -> Tensor:
        """Whether a type tells for a class anywhere, `[t, j]`."""
        most = ops.max(self.evidence_maps(), axis=(0, 1))
        return ops.cast(most > self.routing.orphan, "float32")

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
        children, parents = math.prod(inputs.shape[1:-1]), self.num_capsules
        present = self._present(inputs, activations)
        present = ops.cast(ops.reshape(present, (-1, children)), "float32")
        maps = ops.reshape(self.evidence_maps(), (children, parents))
        evidence = math.log(self.routing.epsilon) + present @ maps
        # The log-odds of nothing are 0.
        odds = ops.pad(evidence, [[0, 0], [0, 1]])
        odds -= ops.logsumexp(odds, axis=-1, keepdims=True)
        evidence = odds[..., :-1]
        active = decided = ops.exp(evidence)
        if not training:
            best = ops.one_hot(longest(odds), parents + 1)
            decided = ops.cast(best[..., :-1], "float32")
        told = ops.relu(ops.expand_dims(present, -1) * maps)
        share = told / (told + self.routing.orphan)
        couplings = ops.expand_dims(decided, 1) * share
        couplings = self.routing.rounded(couplings)
        places = ops.reshape(inputs, (-1, children, 2))
        # As weighted by couplings, without the class's own factor.
        total = ops.expand_dims(ops.sum(share, axis=1), -1)
        poses = ops.einsum("bij,bid->bjd", share, ops.cast(places, "float32"))
        poses = poses / (total + 1e-6)
        wanted = (return_activations, return_couplings, return_evidence)
        return select((poses, active, couplings, evidence), wanted)

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts the sum over the maps, see `tfcaps.rem.multiply_adds`."""
        del input_shape
        return math.prod(self.maps.shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **keras.layers.Layer.get_config(self),
            "num_capsules": self.num_capsules,
            "routing": routings.serialize(self.routing),
            "stride": self.stride,
            "offset": self.offset,
        }
