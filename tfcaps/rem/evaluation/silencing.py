"""A network cut below its children, so that some of them can be silenced."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import (
    clone_with_call,
    cut,
    encoder,
    is_routed,
    last_routed_layer,
    routed_layers,
)
from tfcaps.layers import Length, PartCaps, PrimaryCaps, PrimaryMatrixCaps
from tfcaps.ops import Tensor, length
from tfcaps.rem.batches import predict
from tfcaps.rem.finite import check_weights
from tfcaps.rem.parse.trees import Trees, connected_calls
from tfcaps.rem.parse.with_couplings import taken_children

Array = NDArray[Any]

# Rows of a step have at most about so many votes (numbers), unless the batches
# of the user are larger: 64 MiB in float32.
_VOTES_PER_STEP = 2**24
_MOST_ROWS = 2048
# Layers that make capsules, besides those that route.
_CAPSULES = (PartCaps, PrimaryCaps, PrimaryMatrixCaps)


def tree_lengths(
    model: keras.Model,
    images: ArrayLike,
    trees: Trees,
    *,
    batch_size: int = 256,
) -> NDArray[np.float32]:
    """Returns the lengths of all classes when parts of a network are silenced.

    Children that are silenced have pose and activation 0, as in
    `tfcaps.rem.faithfulness`.

    Args:
        model: As in `tfcaps.rem.trees`.
        images: Its input `[n, ...]`.
        trees: What `tfcaps.rem.trees` returns for them.
        batch_size: Int. Images in a batch. Defaults to `256`.

    Returns:
        Array `[n, 3, j]`, float32: the lengths as they are, those with the tree
        silenced, and those with all but the tree silenced.

    Raises:
        ValueError: If there is not one tree for each image, or as in
            `tfcaps.rem.trees`.

    Example:

    >>> import numpy as np
    >>> from tfcaps.models import dr_capsnet
    >>> from tfcaps.rem import trees
    >>> network = dr_capsnet((20, 20, 1), 10, filters=4, primary_types=2)
    >>> images = np.zeros((3, 20, 20, 1), "float32")
    >>> tree_lengths(network, images, trees(network, images)).shape
    (3, 3, 10)
    """
    images = np.asarray(images)
    if len(images) != len(trees):
        raise ValueError(
            "There must be one tree for each image. Received: "
            f"{len(images)} images and {len(trees)} trees."
        )
    silencer = Silencer(model)
    found = []
    for start in range(0, len(images), batch_size):
        part = slice(start, start + batch_size)
        taken, _ = silencer.below(images[part])
        inside = trees.in_tree[part]
        each = [
            trees.lengths[part],
            silencer.silence(taken, inside, None),
            silencer.silence(taken, ~inside, None),
        ]
        found.append(np.stack(each, axis=1))
    classes = trees.lengths.shape[1]
    return np.concatenate([np.zeros((0, 3, classes), "float32"), *found])


class Silencer:
    """Runs a network once up to the children, and routes these repeatedly.

    It shares the layers, and so the weights, of the model. The children are
    those of one routed layer. The inputs of this layer are called `taken`, a
    list of arrays: poses, activations if they are an input, and other tensors
    that the layers above take from below.

    Args:
        model: As in `capsule_outputs`.
        layer: Name of the `ClassCaps` whose children are silenced. Defaults to
            the last routed layer.

    Attributes:
        layer: The layer whose children are silenced.
        depth: Int. How many fully connected layers are above it.
        model: The network from images to lengths.
        num_children: Int, `i`.
        most_rows: Int. Rows that may be routed in a step.

    Raises:
        ValueError: If the model has no routed layer, its last one makes no
            class capsules, or no chain of `ClassCaps` leads from `layer` to it.
    """

    def __init__(self, model: keras.Model, layer: str | None = None):
        routed_layers(model)  # their absence is the clearer error
        self.model = encoder(model)
        check_weights(self.model.weights)
        _, calls = connected_calls(self.model, last_routed_layer(self.model))
        names = [call.layer.name for call in calls]
        name = names[-1] if layer is None else layer
        if name not in names:
            raise ValueError(
                "`layer` must be the last routed layer, or a `tfcaps.layers."
                "ClassCaps` whose capsules are directly the children of the "
                f"next one, up to the last: one of {names}. Received: "
                f"layer={name!r}."
            )
        self.depth = len(names) - 1 - names.index(name)
        call = calls[names.index(name)]
        self.layer = call.layer
        below, above = cut(self.model, self.layer)
        below, active = _with_activations(below)
        self._below = keras.Model(
            below.input, {"taken": below.outputs, "active": active}
        )
        above, active = _with_activations(above)
        self._active = keras.Model(above.inputs, active)
        self._has_activations = call.activations is not None
        self._shape = tuple(above.inputs[0].shape)
        self.num_children, parents = map(int, call.couplings.shape[1:])
        # One more child, which is never silenced: see `taken_children`.
        self._taken_children = taken_children(
            self.layer, self._shape, self.num_children
        )
        lengths = above.outputs[0]
        if len(lengths.shape) != 2:
            lengths = Length(dtype="float32")(lengths)
        self._lengths = keras.Model(above.inputs, lengths)
        numbers = self.num_children * parents * int(call.poses.shape[-1])
        self.most_rows = max(1, min(_MOST_ROWS, _VOTES_PER_STEP // numbers))

    def below(self, images: Any) -> tuple[list[Array], dict[str, Array]]:
        """Runs the network below on a batch of images.

        Returns:
            `taken`, and how active the capsules of each layer are, by name.
        """
        outputs = predict(self._below, images)
        taken = [x.astype("float32") for x in outputs["taken"]]
        return taken, outputs["active"]

    def above(self, taken: list[Array]) -> dict[str, Array]:
        """Returns how active the capsules of each layer above are, by name."""
        active: dict[str, Array] = predict(self._active, taken)
        return active

    def silence(
        self, taken: list[Array], silenced: Array, values: list[Array] | None
    ) -> Array:
        """Returns the lengths `[b, j]` without some of the children.

        Args:
            taken: What the routed layers take of `b` images.
            silenced: Which children, bool `[b, i]`.
            values: What takes their place, `taken` without the axis of the
                batch: the mean over images. `None` for 0.
        """
        shape = (len(silenced), *self._shape[1:-1])
        silenced = np.pad(silenced, ((0, 0), (0, 1)))
        silenced = silenced[:, self._taken_children].reshape(shape)
        replaced = list(taken)
        for k in range(1 + self._has_activations):
            value = 0.0 if values is None else values[k]
            where = silenced[..., None] if k == 0 else silenced
            replaced[k] = np.where(where, value, taken[k]).astype("float32")
        lengths: Array = predict(self._lengths, replaced)
        return lengths.astype("float32")


def _with_activations(
    model: keras.Model,
) -> tuple[keras.Model, dict[str, Tensor]]:
    """Returns a copy, and how active the capsules of its layers are."""
    active: dict[str, Tensor] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = layer(*args, **kwargs)
        if is_routed(layer) or isinstance(layer, _CAPSULES):
            # Keras 3.15 builds no model from inside another one with a tensor
            # that is an output twice, here perhaps as the class lengths.
            active[layer.name] = (
                ops.stop_gradient(outputs[1])
                if isinstance(outputs, (tuple, list))
                else length(outputs)
            )
        return outputs

    return clone_with_call(model, call), active
