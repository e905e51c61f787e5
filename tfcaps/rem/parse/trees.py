"""The trees of images as arrays: which children, of what type, and where."""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from tfcaps import graphs
from tfcaps.finite import check_weights
from tfcaps.labels import check_one_each
from tfcaps.layers.routed import child_activations
from tfcaps.ops import Array, Tensor, check_mode, quantize
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches, predict
from tfcaps.rem.parse.couplings import (
    Levels,
    quantize_couplings,
    shown_outputs,
    with_couplings,
)
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold
from tfcaps.rem.parse.parse_tree import ParseTree, traced_back
from tfcaps.rem.parse.receptive_fields import ReceptiveFields, receptive_fields

# Children are active if they exceed this share of the image's most active one,
# which is at least so active.
_ACTIVE, _LEAST = 0.1, 1e-6

_LEVELS = 11  # of codes of couplings that nobody rounds
# Those that all images share.
_SHARED = ("types", "thresholds", "grid")


@dataclasses.dataclass(frozen=True, eq=False)
class Trees:
    """The trees of `n` images, of `i` children and `j` classes.

    The tree of an image has the children that are coupled with its predicted
    class by more than `Routing.tree_threshold` says, as a rule 1/J.
    `trees[rows]` are those of some images.

    Attributes:
        predicted: The predicted class, `[n]`, int32.
        lengths: Lengths of the classes, `[n, j]`, float32.
        couplings: Couplings of all children with all classes, `[n, i, j]`,
            float32; `[n, i, 0]` if they were not wanted.
        towards: Those with the predicted class, `[n, i]`, float32.
        codes: Their codes, `[n, i]`, uint8: the key of each image, see
            `CouplingDictionary`.
        in_tree: Which children are in the tree, `[n, i]`, bool.
        activations: How active the children are, `[n, i]`, float32; 0 for those
            that pruning has left no vote.
        types: The type of each child, `[i]`, int64. Children are counted in the
            order row, column, type; each has a type of its own where they have
            no positions.
        places: Row and column of each child in pixels, `[n, i, 2]`, float64,
            the centre of the first pixel at 0: what the layer's `child_places`
            says, or the centre of the child's receptive field; NaN if that is
            not known. It may be a view that cannot be written to.
        hidden: Activations `[n, m]` and couplings `[n, m, i]` of each layer of
            fully connected capsules below, the first layer first.
        thresholds: The coupling above which a child is in the tree, for each
            of these layers, and last for the children of the classes.
        grid: Rows, columns and types of the children, `(h, w, t)`; `(i,)` where
            they have no positions.
        presence: How much of its type is at each child's place, `[n, i]`,
            whatever wins there, if the layer says so (`child_presence`).
    """

    predicted: Array
    lengths: Array
    couplings: Array
    towards: Array
    codes: Array
    in_tree: Array
    activations: Array
    types: Array
    places: Array
    hidden: tuple[tuple[Array, Array], ...] = ()
    thresholds: tuple[float, ...] = ()
    grid: tuple[int, ...] = ()
    presence: Array | None = None

    def __len__(self) -> int:
        return len(self.predicted)

    def __getitem__(self, rows: Any) -> "Trees":
        """Returns the trees of some images, by a slice or an array."""
        of_each = {
            name: keras.tree.map_structure(lambda x: x[rows], value)
            for name, value in self._of_each().items()
        }
        return dataclasses.replace(self, **of_each)

    def _of_each(self) -> dict[str, Any]:
        """Returns the attributes that have a row for each image, by name."""
        names = [field.name for field in dataclasses.fields(self)]
        each = {n: getattr(self, n) for n in names if n not in _SHARED}
        return {n: value for n, value in each.items() if value is not None}

    def match(self, images: ArrayLike) -> Array:
        """Returns images as an array, if there is one for each tree."""
        images = np.asarray(images)
        check_one_each(len(images), len(self), "tree")
        return images

    @functools.cached_property
    def leaves(self) -> Array:
        """Number of children in the tree of each image, `[n]`, int64."""
        return np.count_nonzero(self.in_tree, axis=1)

    def strongest(self, image: int) -> Array:
        """Returns the children in a tree, by coupling times activation."""
        towards = self.towards[image].astype(np.float64)
        order = np.argsort(-towards * self.activations[image], kind="stable")
        return np.asarray(order[self.in_tree[image][order]])

    @functools.cached_property
    def active(self) -> Array:
        """Which children exceed a tenth of the most active one, `[n, i]`."""
        most = self.activations.max(axis=1, keepdims=True, initial=0.0)
        return np.asarray(self.activations > _ACTIVE * np.maximum(most, _LEAST))

    @functools.cached_property
    def outside(self) -> Array:
        """Which children are `active` and in no tree, `[n, i]`, bool."""
        return np.asarray(self.active & ~self.in_tree)

    @functools.cached_property
    def runners_up(self) -> Array:
        """The second longest class, `[n]`, int64; -1 if there is but one."""
        others = self.lengths.astype(np.float64)
        if others.shape[1] == 1:
            return np.full(len(self), -1)
        others[np.arange(len(self)), self.predicted] = -np.inf
        return others.argmax(axis=1)

    @functools.cached_property
    def margins(self) -> Array:
        """Length of the predicted class less the runner-up's, `[n]`."""
        rows, second = np.arange(len(self)), self.runners_up
        others = np.where(second < 0, 0.0, self.lengths[rows, second])
        margins = self.lengths[rows, self.predicted] - others
        return np.asarray(margins, np.float32)

    @property
    def num_types(self) -> int:
        """Number of types of children, `t`."""
        return int(self.types.max()) + 1

    @functools.cached_property
    def type_map(self) -> NDArray[np.int64]:
        """The type at each place, `[n, rows, columns]`, int64.

        That is the type with the largest `presence` there, or activation where
        no presence is known; -1 where it is less than a tenth of the image's.

        Raises:
            ValueError: If the children have no positions.
        """
        if len(self.grid) != 3 or math.prod(self.grid[:2]) == 1:
            raise ValueError(
                "A map of types needs children that have positions, of a layer "
                "that takes [b, h, w, t, k]. Received: children of the grid "
                f"{self.grid}."
            )
        there = self.activations if self.presence is None else self.presence
        there = there.reshape((len(self), *self.grid))
        most = there.max(axis=(1, 2, 3), keepdims=True)[..., 0]
        some = there.max(axis=-1) > _ACTIVE * np.maximum(most, _LEAST)
        return np.where(some, there.argmax(axis=-1), -1)

    @functools.cached_property
    def slots(self) -> Array:
        """Whether each tree has a child of each type, `[n, t]`, bool."""
        types = range(self.num_types)
        each = [self.in_tree[:, self.types == t].any(axis=1) for t in types]
        return np.stack(each, axis=1)

    @functools.cached_property
    def type_codes(self) -> Array:
        """The largest code of each type, `[n, t]`, uint8, wherever it is.

        This key does not change when an object moves, as that of places does.
        """
        by_place = self.codes.reshape(len(self), -1, self.num_types)
        return np.asarray(by_place.max(axis=1))

    @functools.cached_property
    def offset_keys(self) -> list[bytes]:
        """The leaves of each tree by their offset: its key without its place.

        Offsets are from the mean cell of the leaves, weighted by their codes
        and rounded. An object that moves by whole places keeps its key, and
        one whose parts stand otherwise gets another, unlike with `type_codes`.
        """
        shape = (len(self), *self.grid)
        codes = np.where(self.in_tree, self.codes, 0).reshape(shape)
        keys = []
        for image in codes.astype(np.int32):
            leaves = np.argwhere(image)
            leaves = np.column_stack([leaves, image[tuple(leaves.T)]])
            if len(leaves):
                mean = np.average(leaves[:, :2], axis=0, weights=leaves[:, 3])
                leaves[:, :2] -= np.floor(mean + 0.5).astype(int)
            keys.append(leaves.astype(np.int32).tobytes())
        return keys

    @property
    def has_places(self) -> bool:
        """Whether it is known where children are."""
        return bool(np.isfinite(self.places[:1]).all())

    def parse_tree(self, roots: Iterable[int] | None = None) -> ParseTree:
        """Traces classes back to the capsules that they are made of.

        From the classes in `roots` down, a link is followed to each child
        whose coupling exceeds the threshold, and which is itself a parent of
        at least one such link, or in the first layer. Where there are several
        images, activations and couplings are their means. Of one image:
        `trees[k : k + 1].parse_tree()`.

        Args:
            roots: Classes to trace back. Defaults to those that are predicted.

        Raises:
            ValueError: If there is no image, there are no couplings with all
                classes, or a root is no class.

        References:
            - "Capsule Networks Do Not Need to Model Everything", section 3.2
            - Mitterreiter, Koch, Giesen, Laue, 2023, "Why capsule neural
              networks do not scale"
        """
        if not len(self) or not self.couplings.shape[2]:
            raise ValueError(
                "A parse tree needs at least one image, and the couplings with "
                f"all classes. Received: {len(self)} images, couplings of the "
                f"shape {self.couplings.shape}."
            )
        if roots is None:
            roots = np.unique(self.predicted).tolist()
        layers = *self.hidden, (self.activations, self.couplings)
        activations, couplings = zip(*layers, strict=True)
        of_layers, between = keras.tree.map_structure(
            lambda array: array.mean(axis=0, dtype="float64"),
            ([*activations, self.lengths], [*couplings]),
        )
        least = self.thresholds or [1 / c.shape[-1] for c in between]
        return traced_back(of_layers, between, roots, least)


def trees(
    model: keras.Model,
    images: Any,
    levels: Levels | None = None,
    *,
    mode: str = "midtread",
    couplings: bool = True,
    batch_size: int = 256,
) -> Trees:
    """Returns the trees of images, from one pass of the model.

    Args:
        model: A functional or sequential model whose last routed layer makes
            the classes, from images to lengths or poses, see `classifier`.
        images: Its input `[n, ...]`; or what `evaluate` takes, `(images,
            labels)` or an iterable of such batches, whose labels are not looked
            at.
        levels: Levels to which couplings are rounded, see `quantize_couplings`.
            Codes have those of the last routed layer, at most 256, and eleven
            where it does not round. Defaults to `None`, couplings as they are.
        mode: As in `tfcaps.rem.quantize`. Defaults to `"midtread"`.
        couplings: Bool. Keep the couplings with all classes, of 1,000 images
            with 1,152 children and ten classes 46 MB. Defaults to `True`.
        batch_size: Int. Most images in a batch cut from arrays. Defaults to
            `256`.

    Raises:
        ValueError: If the model has no routed layer, the last one makes no
            classes, there are no images, or an argument is out of range.

    Example:

    >>> import numpy as np
    >>> from tfcaps.models import dr_capsnet
    >>> network = dr_capsnet((20, 20, 1), 10, filters=4, primary_types=2)
    >>> found = trees(network, np.zeros((3, 20, 20, 1), "float32"))
    >>> found.towards.shape, found.num_types, found.places[0, :3].tolist()
    ((3, 8), 2, [[8.0, 8.0], [8.0, 8.0], [8.0, 10.0]])
    """
    check_mode(mode)
    if levels is not None:
        model = quantize_couplings(model, levels, mode=mode)
    model = graphs.classifier(model)
    network = TreeNetwork(model, mode)
    check_weights(model.weights)  # a ReLU may make zeros of what is no number
    batches, _ = labelled_batches(images, batch_size, model, need_labels=False)
    parts = []
    for part in (network(batch) for batch, _ in batches if len(batch)):
        if not couplings:
            none = part.couplings[..., :0].copy()
            hidden = tuple((a, c[..., :0].copy()) for a, c in part.hidden)
            part = dataclasses.replace(part, couplings=none, hidden=hidden)
        parts.append(part)
    if not parts:
        raise ValueError(NO_SAMPLES)
    joined = keras.tree.map_structure(
        _joined, *(part._of_each() for part in parts)
    )
    return dataclasses.replace(parts[0], **joined)


def _joined(*arrays: Array) -> Array:
    """Returns arrays as one, in one memory where all rows are."""
    if all(array.strides[0] == 0 for array in arrays):
        shape = (sum(map(len, arrays)), *arrays[0].shape[1:])
        return np.broadcast_to(arrays[0][:1], shape)
    return np.concatenate(arrays)


class _Call(NamedTuple):
    """The inputs and outputs of a call of a layer."""

    layer: Any
    children: Tensor
    activations: Tensor | None
    poses: Tensor
    couplings: Tensor


class TreeNetwork:
    """A network from its inputs to all that their trees are made of.

    It is made of what `classifier` returns, or the upper part of it. `mode`
    counts where the routing does not round. `layers` are the names of the fully
    connected ones, `poses` a tensor that the last one gives besides, `fields`
    its receptive fields, `None` where children have no positions.
    """

    def __init__(self, network: keras.Model, mode: str = "midtread"):
        copy, calls = connected_calls(network)
        self.layers = [call.layer.name for call in calls]
        *below, last = calls
        shown = {"poses": last.poses, "couplings": last.couplings}
        outputs = shown_outputs(copy, shown)
        self.poses = outputs.pop("poses")
        outputs |= _Children(last.layer)(*last[1:3])
        outputs["hidden"] = [
            [_Children(c.layer)(*c[1:3])["activations"], c.couplings]
            for c in below
        ]
        self.model = keras.Model(copy.input, outputs, name=network.name)
        self._thresholds = tuple(
            tree_threshold(
                graphs.routing_of(call.layer), call.couplings.shape[-1]
            )
            for call in calls
        )
        routing = graphs.routing_of(last.layer)
        self._levels = routing.levels or _LEVELS
        self._mode = routing.mode if routing.levels else mode
        if self._levels > 256:
            raise ValueError(
                "`levels` must be in [2, 256], so that a code is a byte. "
                f"Received: levels={self._levels}."
            )
        children, self.num_classes = last.couplings.shape[1:]
        self.grid: tuple[int, ...] = (children,)
        if graphs.makes_classes(last.layer):
            self.grid = last.layer.children_shape(last.children.shape)
        self._types = np.arange(math.prod(self.grid)) % self.grid[-1]
        self.fields: ReceptiveFields | None = None
        image = network.inputs[0].shape[1:]
        are_maps = len(self.grid) == len(image) == 3 and None not in image
        if are_maps and math.prod(self.grid[:2]) > 1:
            self.fields = receptive_fields(network)

    def __call__(self, inputs: Any) -> Trees:
        """Returns the trees of a batch."""
        outputs = predict(self.model, inputs)
        lengths, couplings = outputs["lengths"], outputs["couplings"]
        predicted = lengths.argmax(axis=-1)
        towards = np.take_along_axis(
            couplings, predicted[:, np.newaxis, np.newaxis], axis=-1
        )[..., 0]
        codes = quantize(towards, self._levels, mode=self._mode)
        places = outputs.get("places")
        if places is None:
            places = np.full(2, np.nan)
            if self.fields is not None:
                places = self.fields.child_centres
            places = np.broadcast_to(places, (*towards.shape, 2))
        return Trees(
            predicted=predicted.astype(np.int32),
            lengths=lengths,
            couplings=couplings,
            towards=towards,
            codes=ops.convert_to_numpy(codes).astype(np.uint8),
            in_tree=in_tree(towards, self._thresholds[-1]),
            activations=outputs["activations"],
            types=self._types,
            places=places.astype(np.float64, copy=False),
            hidden=tuple((a, c) for a, c in outputs["hidden"]),
            thresholds=self._thresholds,
            grid=self.grid,
            presence=outputs.get("presence"),
        )


def connected_calls(model: keras.Model) -> tuple[keras.Model, list[_Call]]:
    """Returns a copy of a model, and its fully connected calls.

    Each makes directly the children of the next one.
    """
    last = graphs.last_routed_layer(model)
    graphs.check_called_once(model, last)
    calls: dict[int, _Call] = {}  # by the poses that they made

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer is not last and not graphs.makes_classes(layer):
            return layer(*args, **kwargs)
        outputs, couplings = with_couplings(layer, args, kwargs)
        children, *rest = args
        activations = rest[0] if rest else kwargs.get("activations")
        poses = keras.tree.flatten(outputs)[0]
        done = _Call(layer, children, activations, poses, couplings)
        calls[id(poses)] = done
        return outputs

    copy = graphs.clone_with_call(model, call)
    found = [[c for c in calls.values() if c.layer is last][-1]]
    if len(found[0].couplings.shape) != 3:
        raise ValueError(
            f"The last routed layer of {model.name!r} is a "
            f"{type(last).__name__}, whose children differ from window to "
            "window. Trees need class capsules, such as "
            "`tfcaps.layers.ClassCaps`, at the end."
        )
    while (before := calls.get(id(found[0].children))) is not None:
        if before.couplings.shape[2] != found[0].couplings.shape[1]:
            break  # `compact` took capsules out
        found.insert(0, before)
    return copy, found


class _Children(keras.layers.Layer):
    """Returns activations of a layer's children, and places, if it says."""

    def __init__(self, layer: Any):
        super().__init__(dtype="float32")
        self.layer = layer

    def call(
        self, children: Tensor, activations: Tensor | None = None
    ) -> dict[str, Tensor]:
        if graphs.makes_classes(self.layer):
            active = self.layer.voting_activations(children, activations)
        else:
            active = child_activations(children, activations)
            active = ops.reshape(active, (ops.shape(active)[0], -1))
        found = {"activations": ops.cast(active, "float32")}
        if hasattr(self.layer, "child_places"):
            places = self.layer.child_places(children)
            found["places"] = ops.cast(places, "float32")
        if hasattr(self.layer, "child_presence"):
            found["presence"] = self.layer.child_presence(children)
        return found
