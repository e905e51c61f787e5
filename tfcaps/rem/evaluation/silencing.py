"""A network cut below its children, so that some of them can be silenced."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import (
    cut,
    encoder,
    is_routed,
    last_routed_layer,
    routed_layers,
    same_layers,
)
from tfcaps.layers import (
    Length,
    PartCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
)
from tfcaps.ops import Tensor, length
from tfcaps.rem.finite import check_weights
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold
from tfcaps.rem.parse.trees import Trees
from tfcaps.rem.parse.with_couplings import (
    WithCouplings,
    taken_children,
    voting_children,
    with_couplings,
)

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
    silencer = Silencer(model, batch_size=batch_size)
    silencer.rows = min(silencer.rows, max(len(images), 1))
    found = [np.zeros((0, 3, silencer.num_classes), "float32")]
    for start in range(0, len(images), batch_size):
        part = slice(start, start + batch_size)
        taken, _ = silencer.below(images[part])
        inside = trees.in_tree[part]
        each = [
            trees.lengths[part],
            silencer.silence(taken, inside, None),
            silencer.silence(taken, ~inside, None),
        ]
        found.append(np.stack(each, axis=1).astype("float32"))
    return np.concatenate(found)


class Above(NamedTuple):
    """The outputs of the routed layers for some children.

    Attributes:
        lengths: Class lengths `[b, j]`.
        towards: The couplings that count, `[b, i]`: those of the children
            towards the predicted class, or, with routed layers in between, the
            largest towards a capsule that is in the tree.
        trees: Which children are in the tree, bool `[b, i]`.
        active: How active the capsules of each layer are, `[b, n]`, by the name
            of the layer.
    """

    lengths: Array
    towards: Array
    trees: Array
    active: dict[str, Array]


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
        batch_size: Int. Rows of a step, more where they are small. Defaults to
            `256`.

    Attributes:
        layer: The layer whose children are silenced.
        model: The network from images to lengths.
        num_children: Int, `i`.
        num_classes: Int.
        rows: Int. Rows of a step.
        votes: Int. Rows that were routed so far.

    Raises:
        ValueError: If the model has no routed layer, its last one makes no
            class capsules, or no chain of `ClassCaps` leads from `layer` to it.
    """

    def __init__(
        self,
        model: keras.Model,
        layer: str | None = None,
        *,
        batch_size: int = 256,
    ):
        routed_layers(model)  # their absence is the clearer error
        self.model = encoder(model)
        check_weights(self.model.weights)
        self._last = last_routed_layer(self.model)
        self.layer = self._named(layer)
        below, above = cut(self.model, self.layer)
        calls: list[_Routed] = []
        active: dict[str, Tensor] = {}
        copy = same_layers(above, _noting(active, calls))
        lengths = copy.outputs[0]
        if len(lengths.shape) != 2:
            lengths = Length(dtype="float32")(lengths)
        chain = self._chain(calls)
        self._thresholds = [
            tree_threshold(routed.layer.routing, routed.couplings.shape[-1])
            for routed in chain
        ]
        children = copy.inputs[0]
        self._has_activations = chain[0].has_activations
        self._children_shape = tuple(children.shape[1:-1])
        self.num_children = int(chain[0].couplings.shape[1])
        self._taken_children = taken_children(
            self.layer, children.shape, self.num_children
        )
        self.num_classes = int(lengths.shape[-1])
        shown = {
            "lengths": lengths,
            "couplings": [routed.couplings for routed in chain],
            "active": active,
        }
        self._above = keras.Model(copy.inputs, shown)
        self._lengths = keras.Model(copy.inputs, lengths)
        active = {}
        copy = same_layers(below, _noting(active))
        self._below = keras.Model(
            copy.input, {"taken": copy.outputs, "active": active}
        )
        parents = chain[0].poses.shape[1:]
        numbers = self.num_children * int(np.prod(parents))
        most = max(1, min(_MOST_ROWS, _VOTES_PER_STEP // numbers))
        self.rows = max(batch_size, most)
        self.votes = 0

    def below(self, images: Any) -> tuple[list[Array], dict[str, Array]]:
        """Runs the network below on a batch of images.

        Returns:
            `taken`, and how active the capsules of each layer are, `[b, n]`.
        """
        outputs = _run(self._below, images)
        return outputs["taken"], _flat(outputs["active"])

    def left(self, taken: list[Array]) -> Array:
        """Returns a mask of the children that still have an influence, `[i]`.

        Args:
            taken: What the routed layers take of all images.
        """
        layer, shape = self.layer, taken[0].shape
        left: Array = voting_children(layer, shape, self.num_children)
        if self._has_activations and layer.routing.ignores_inactive:
            active = np.any(taken[1] != 0, axis=0).ravel()
            among = np.zeros(self.num_children + 1, bool)
            among[self._taken_children[active]] = True
            left = left & among[:-1]
        return left

    def activations(self, taken: list[Array]) -> Array:
        """Returns the activations of the children, `[b, i]`.

        It is 0 for those that pruning has left no influence.

        Args:
            taken: What the routed layers take of all images.
        """
        if self._has_activations:
            active = taken[1]
        else:
            active = np.linalg.norm(taken[0], axis=-1)
        # One more child, see `taken_children`.
        found = np.zeros((len(active), self.num_children + 1), "float32")
        found[:, self._taken_children] = active.reshape(len(active), -1)
        activations: Array = found[:, :-1] * self.left(taken)
        return activations

    def above(self, taken: list[Array]) -> Above:
        """Routes children as they are."""
        return self._shown(self._above, taken)

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
        shape = (len(silenced), *self._children_shape)
        # One more child, which is never silenced: see `taken_children`.
        silenced = np.pad(silenced, ((0, 0), (0, 1)))
        silenced = silenced[:, self._taken_children].reshape(shape)
        replaced = list(taken)
        for k in range(1 + self._has_activations):
            value = 0.0 if values is None else values[k]
            where = silenced[..., None] if k == 0 else silenced
            replaced[k] = np.where(where, value, taken[k]).astype("float32")
        self.votes += len(silenced)
        lengths: Array = self._padded(self._lengths, replaced)
        return lengths

    def redrawn(self) -> Callable[..., Above]:
        """Returns `above` with class capsules of other weights.

        They are drawn from the initialisers of the last routed layer, with the
        argument `seed`. The model keeps its own.
        """
        last = self._last
        config = {**last.get_config(), "name": f"{last.name}_redrawn"}
        copy = type(last).from_config(config)
        copy.build_from_config(last.get_build_config())

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(layer, WithCouplings) and layer.layer is last:
                layer = WithCouplings(copy)
            return layer(*args, **kwargs)

        network = same_layers(self._above, call)

        def above(taken: list[Array], seed: int) -> Above:
            draw_weights(copy, self.num_children, seed)
            return self._shown(network, taken)

        return above

    def _shown(self, network: keras.Model, taken: list[Array]) -> Above:
        self.votes += len(taken[0])
        outputs = self._padded(network, taken)
        lengths = outputs["lengths"]
        towards, trees = self._traced(lengths, outputs["couplings"])
        return Above(lengths, towards, trees, _flat(outputs["active"]))

    def _traced(
        self, lengths: Array, couplings: list[Array]
    ) -> tuple[Array, Array]:
        """Follows couplings above the uniform one down from the class."""
        classes = lengths.argmax(axis=-1)
        inside = np.arange(self.num_classes) == classes[:, None]
        towards = np.zeros_like(couplings[0][..., 0])
        for links, least in zip(
            reversed(couplings), reversed(self._thresholds), strict=True
        ):
            # Couplings may be negative; those to other capsules do not count.
            to_tree = np.where(inside[:, None], links, -np.inf).max(axis=-1)
            inside = in_tree(to_tree, least)
            towards = np.where(np.isfinite(to_tree), to_tree, 0.0)
        return towards, inside

    def _padded(self, network: keras.Model, taken: list[Array]) -> Any:
        """Runs a network on rows; compilers see one number of rows only."""
        count = len(taken[0])
        missing = self.rows - count
        if missing > 0 and keras.backend.backend() != "tensorflow":
            taken = [
                np.concatenate([x, np.repeat(x[-1:], missing, axis=0)])
                for x in taken
            ]
        outputs = _run(network, taken)
        return keras.tree.map_structure(lambda x: x[:count], outputs)

    def _named(self, name: str | None) -> Any:
        layers = routed_layers(self.model)
        if name is None:
            return self._last
        found = [layer for layer in layers if layer.name == name]
        if not found:
            raise ValueError(
                "`layer` must be the name of a routed layer, one of "
                f"{[layer.name for layer in layers]}. Received: layer={name!r}."
            )
        return found[0]

    def _chain(self, calls: Sequence["_Routed"]) -> list["_Routed"]:
        """Returns the calls from the layer to the last one."""
        found = [calls[-1]]
        if len(found[0].couplings.shape) != 3:
            raise ValueError(
                f"The last routed layer of {self.model.name!r} is a "
                f"{type(self._last).__name__}, whose children differ from "
                "window to window. Faithfulness needs class capsules, such as "
                "`tfcaps.layers.ClassCaps`, at the end."
            )
        by_poses = {id(routed.poses): routed for routed in calls}
        while found[0].layer is not self.layer:
            before = by_poses.get(id(found[0].children))
            if before is None or before.couplings.shape[2:] != (
                found[0].couplings.shape[1],
            ):
                raise ValueError(
                    "`layer` must be a `tfcaps.layers.ClassCaps` whose "
                    "capsules are directly the children of the next one, up "
                    "to the last routed layer. Received: "
                    f"layer={self.layer.name!r}, whose capsules no "
                    f"{found[0].layer.name!r} takes as they are."
                )
            found.insert(0, before)
        return found


class _Routed(NamedTuple):
    """A call of a routed layer: its children, its poses and its couplings."""

    layer: Any
    has_activations: bool
    children: Tensor
    poses: Tensor
    couplings: Tensor


def _noting(
    active: dict[str, Tensor], calls: list[_Routed] | None = None
) -> Callable[..., Any]:
    """Returns a caller of layers that notes how active their capsules are.

    And calls of routed layers, with their couplings, if they are wanted.
    """

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if calls is None or not is_routed(layer):
            outputs = layer(*args, **kwargs)
        else:
            outputs, couplings = with_couplings(layer, args, kwargs)
            poses = keras.tree.flatten(outputs)[0]
            given = args[1] if args[1:] else kwargs.get("activations")
            calls.append(
                _Routed(layer, given is not None, args[0], poses, couplings)
            )
        if is_routed(layer) or isinstance(layer, _CAPSULES):
            # Keras 3.15 builds no model from inside another one with a tensor
            # that is an output twice, here perhaps as the class lengths.
            active[layer.name] = (
                ops.stop_gradient(outputs[1])
                if isinstance(outputs, (tuple, list))
                else length(outputs)
            )
        return outputs

    return call


def in_steps(
    count: int, rows: int, bar: keras.utils.Progbar
) -> Iterable[slice]:
    """Yields parts of `count` rows, and moves a progress bar on."""
    for start in range(0, count, rows):
        part = slice(start, min(start + rows, count))
        yield part
        bar.add(part.stop - part.start)


def _run(network: keras.Model, inputs: Any) -> Any:
    """Returns the outputs for one batch as float32 arrays."""
    # As in `predict_batches`: tracing takes longer than it saves.
    eager = keras.backend.backend() == "tensorflow"
    outputs = network(inputs) if eager else network.predict_on_batch(inputs)
    return keras.tree.map_structure(
        lambda x: ops.convert_to_numpy(x).astype("float32"), outputs
    )


def _flat(active: dict[str, Array]) -> dict[str, Array]:
    return {name: x.reshape(len(x), -1) for name, x in active.items()}


def draw_weights(layer: Any, children: int, seed: int) -> None:
    """Draws all weights of a routed layer anew, the same for each seed."""
    bias = layer.bias_initializer
    parents = layer.num_capsules
    weights = layer.routing.weights(children, parents, layer.dim)
    initializers = {name: w.initializer for name, w in weights.items()}
    if bias is not None:
        initializers["bias"] = bias
    for name in ("blueprint", "transformation"):
        initializers[name] = layer.transformation_initializer
    for number, weight in enumerate(layer.weights):
        initializer = keras.initializers.get(initializers[weight.name])
        config = initializer.get_config()
        if "seed" in config:
            config["seed"] = seed + number
            initializer = type(initializer).from_config(config)
        weight.assign(initializer(weight.shape, dtype=weight.dtype))
