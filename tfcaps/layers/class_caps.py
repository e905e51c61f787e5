"""The fully connected capsule layer, routed by agreement."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps import routing as routings
from tfcaps.ops import Tensor

_SHARE = (None, "type", "all")


@keras.saving.register_keras_serializable(package="tfcaps")
class ClassCaps(keras.layers.Layer):
    """Connects every child capsule with every parent and routes the votes.

    Child `i` votes `û_ij = u_i W_ij` for parent `j`; the routing turns votes
    into parent poses. `W` is the weight `transformation`, `B_j` of the paper's
    code is the weight `bias`, which is added before the squash in every
    iteration.

    Args:
        num_capsules: Int. Number of parents; for the last layer the classes.
        dim: Int. Components of a parent.
        routing: Int, name, config or `tfcaps.routing.Routing`. An int is
            dynamic routing with that many iterations. Defaults to `3`.
        use_bias: Bool. Add a bias to each parent. Defaults to `True`.
        share: `None` for one matrix per child and parent, `"type"` for one per
            child type and parent (the same at all positions; needs spatial
            input), `"all"` for one per parent. Defaults to `None`.
        transformation_initializer: Initializer of the matrices. Defaults to a
            normal distribution with standard deviation 0.1.
        bias_initializer: Initializer of the bias. Defaults to the constant 0.1.
        transformation_regularizer: Regularizer of the matrices. Defaults to
            `None`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Child poses.
        return_couplings: Bool. Return `(poses, couplings)`. Defaults to
            `False`.

    Input shape:
        `[b, i, k]`, or `[b, h, w, t, k]`, flattened in the order row, column,
        type.

    Output shape:
        Poses `[b, num_capsules, dim]`, of a length in [0, 1). Couplings
        `[b, i, num_capsules]`, float32, in [0, 1], summing to 1 over parents.

    Raises:
        ValueError: If an argument is out of range, or the input's shape does
            not fit.

    Example:

    >>> import numpy as np
    >>> children = np.zeros((2, 6, 6, 4, 8), "float32")
    >>> tuple(ClassCaps(10, 16, routing=3)(children).shape)
    (2, 10, 16)

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          eq. 2 and section 4
        - Gu, Tresp, 2020, https://arxiv.org/abs/2003.06854 (`share="all"`)
    """

    def __init__(
        self,
        num_capsules: int,
        dim: int,
        routing: Any = 3,
        use_bias: bool = True,
        share: str | None = None,
        *,
        transformation_initializer: Any = None,
        bias_initializer: Any = None,
        transformation_regularizer: Any = None,
        **kwargs: Any,
    ):
        if num_capsules < 1 or dim < 1:
            raise ValueError(
                "`num_capsules` and `dim` must be at least 1. Received: "
                f"num_capsules={num_capsules}, dim={dim}."
            )
        if share not in _SHARE:
            raise ValueError(
                f"`share` must be one of {_SHARE}. Received: share={share!r}."
            )
        super().__init__(**kwargs)
        self.num_capsules = num_capsules
        self.dim = dim
        self.routing = routings.get(routing)
        self.use_bias = use_bias
        self.share = share
        self.transformation_initializer = keras.initializers.get(
            transformation_initializer
        ) or keras.initializers.RandomNormal(stddev=0.1)
        self.bias_initializer = keras.initializers.get(
            bias_initializer
        ) or keras.initializers.Constant(0.1)
        self.transformation_regularizer = keras.regularizers.get(
            transformation_regularizer
        )

    def build(self, input_shape: Any) -> None:
        self._check_input_shape(input_shape)
        matrices = {
            None: (math.prod(input_shape[1:-1]),),
            "type": (input_shape[-2],),
            "all": (),
        }[self.share]
        self.transformation = self.add_weight(
            shape=(*matrices, self.num_capsules, input_shape[-1], self.dim),
            initializer=self.transformation_initializer,
            regularizer=self.transformation_regularizer,
            name="transformation",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.num_capsules, self.dim),
                initializer=self.bias_initializer,
                name="bias",
            )

    def call(self, inputs: Tensor, return_couplings: bool = False) -> Any:
        routed = self.routing(self._votes(inputs), bias=self.bias)
        poses = ops.cast(routed.poses, self.compute_dtype)
        couplings = ops.cast(routed.couplings, "float32")
        return (poses, couplings) if return_couplings else poses

    def _check_input_shape(self, input_shape: Any) -> None:
        shape = tuple(input_shape)
        if len(shape) not in (3, 5) or None in shape[1:]:
            raise ValueError(
                f"{type(self).__name__} takes capsules [batch, children, "
                "components] or [batch, rows, columns, types, components], all "
                "known but the batch. Received: "
                f"input_shape={shape}."
            )
        if self.share == "type" and len(shape) != 5:
            raise ValueError(
                '`share="type"` needs spatial capsules [batch, rows, columns, '
                "types, components], which say what a child's type is. "
                f"Received: input_shape={shape}."
            )

    def _votes(self, inputs: Tensor) -> Tensor:
        *_, types, components = inputs.shape
        children = math.prod(inputs.shape[1:-1])
        if self.share == "type":
            positions = children // types
            poses = ops.reshape(inputs, (-1, positions, types, components))
            votes = ops.einsum("bptk,tjkd->bptjd", poses, self.transformation)
            return ops.reshape(
                votes, (-1, children, self.num_capsules, self.dim)
            )
        poses = ops.reshape(inputs, (-1, children, components))
        matrices = "jkd" if self.share == "all" else "ijkd"
        return ops.einsum(f"bik,{matrices}->bijd", poses, self.transformation)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], self.num_capsules, self.dim)

    def compute_output_spec(
        self, inputs: Any, return_couplings: bool = False
    ) -> Any:
        batch, *_ = inputs.shape
        poses = keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )
        if not return_couplings:
            return poses
        children = math.prod(inputs.shape[1:-1])
        couplings = keras.KerasTensor(
            (batch, children, self.num_capsules), dtype="float32"
        )
        return poses, couplings

    def get_config(self) -> dict[str, Any]:
        config = {
            "num_capsules": self.num_capsules,
            "dim": self.dim,
            "routing": routings.serialize(self.routing),
            "use_bias": self.use_bias,
            "share": self.share,
            "transformation_initializer": keras.initializers.serialize(
                self.transformation_initializer
            ),
            "bias_initializer": keras.initializers.serialize(
                self.bias_initializer
            ),
            "transformation_regularizer": keras.regularizers.serialize(
                self.transformation_regularizer
            ),
        }
        return {**super().get_config(), **config}


# The same layer under the name that is usual where parents are not classes.
FcCaps = ClassCaps
