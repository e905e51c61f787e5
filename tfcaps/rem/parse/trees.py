"""The trees of images as arrays: which children, of what type, and where."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import encoder, last_routed_layer, same_layers
from tfcaps.layers import ClassCaps
from tfcaps.layers.routed import child_activations
from tfcaps.ops import Tensor, check_levels, check_mode, quantize
from tfcaps.rem.batches import predict_batches
from tfcaps.rem.parse.couplings import show_last, shown_outputs
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold
from tfcaps.rem.parse.receptive_fields import receptive_fields
from tfcaps.rem.parse.with_couplings import without_couplings

Array = NDArray[Any]

# Codes are bytes.
_MOST_LEVELS = 256
# Those that all images share.
_SHARED = "types"


@dataclasses.dataclass(frozen=True, eq=False)
class Trees:
    """The trees of `n` images, of `i` children and `j` classes.

    The tree of an image has the children that are coupled with its predicted
    class by more than `Routing.tree_threshold` says, as a rule 1/J. Couplings
    are those of the model as it is. `trees[rows]` are those of some images.

    Attributes:
        predicted: The predicted class, `[n]`, int32.
        lengths: Lengths of the classes, `[n, j]`, float32.
        couplings: Couplings of all children with all classes, `[n, i, j]`,
            float32.
        towards: Those with the predicted class, `[n, i]`, float32.
        codes: Their codes, `[n, i]`, uint8.
        in_tree: Which children are in the tree, `[n, i]`, bool.
        activations: How active the children are, `[n, i]`, float32; 0 for those
            that pruning has left no vote.
        types: The type of each child, `[i]`, int64. Children are counted in the
            order row, column, type; each has a type of its own where they have
            no positions.
        places: Row and column of each child in pixels, `[n, i, 2]`, float64,
            the centre of the first pixel at 0: what the layer's `child_places`
            says, if it has such a method, or the centre of the child's
            receptive field, see `receptive_fields`. NaN where children have no
            positions, or the input is no image of a known size. It may be a
            view that cannot be written to.
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

    def __len__(self) -> int:
        return len(self.predicted)

    def __getitem__(self, rows: Any) -> "Trees":
        """Returns the trees of some images, by a slice or an array."""
        return Trees(
            **{
                name: values if name == _SHARED else values[rows]
                for name, values in vars(self).items()
                if name in _FIELDS
            }
        )

    @classmethod
    def joined(cls, parts: Sequence["Trees"]) -> "Trees":
        """Returns the trees of all images of one or more parts."""
        first = parts[0]
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in _FIELDS
            if name not in (_SHARED, "places")
        }
        places = [part.places for part in parts]
        if all(_is_shared(each) for each in places):
            shape = (len(joined["predicted"]), *first.places.shape[1:])
            joined["places"] = np.broadcast_to(first.places[:1], shape)
        else:
            joined["places"] = np.concatenate(places)
        return cls(**joined, types=first.types)

    @functools.cached_property
    def leaves(self) -> Array:
        """How many children are in the tree of each image, `[n]`, int64."""
        return np.count_nonzero(self.in_tree, axis=1)

    @property
    def num_types(self) -> int:
        """How many types of children there are, `t`."""
        return int(self.types.max()) + 1

    @functools.cached_property
    def slots(self) -> Array:
        """Whether each tree has a child of each type, `[n, t]`, bool."""
        of_type = self.types[:, np.newaxis] == np.arange(self.num_types)
        counts = self.in_tree.astype(np.float32) @ of_type.astype(np.float32)
        slots: Array = counts > 0.5
        return slots

    @property
    def has_places(self) -> bool:
        """Whether it is known where children are."""
        return bool(np.isfinite(self.places[:1]).all())


_FIELDS = tuple(field.name for field in dataclasses.fields(Trees))


def trees(
    model: keras.Model,
    images: Any,
    levels: int = 11,
    *,
    mode: str = "midtread",
    batch_size: int = 256,
) -> Trees:
    """Returns the trees of images, from one pass of the model.

    The couplings of 1,000 images with 1,152 children and ten classes take 46
    MB; see `iter_trees` for more than fit into memory.

    Args:
        model: A functional or sequential model whose last routed layer makes
            the classes, from images to class lengths or poses. Decoders, inputs
            `labels` and outputs to train on do not matter.
        images: Its input `[n, ...]`; or what `evaluate` takes, `(images,
            labels)` or an iterable of such batches, whose labels are not looked
            at.
        levels: Int in [2, 256]. Levels of `Trees.codes`; the trees do not
            depend on it. Defaults to `11`.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`. Defaults
            to `"midtread"`.
        batch_size: Int. Most images in a batch cut from arrays. Defaults to
            `256`.

    Returns:
        `Trees`.

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
    parts = list(
        iter_trees(model, images, levels, mode=mode, batch_size=batch_size)
    )
    if not parts:
        raise ValueError(
            "The data set has no samples. A generator can be read only once; "
            "pass arrays or a `tf.data.Dataset`."
        )
    return Trees.joined(parts)


def iter_trees(
    model: keras.Model,
    images: Any,
    levels: int = 11,
    *,
    mode: str = "midtread",
    batch_size: int = 256,
) -> Iterator[Trees]:
    """Yields the trees of each batch of images, see `trees`.

    Args:
        model: As in `trees`.
        images: As in `trees`.
        levels: As in `trees`. Defaults to `11`.
        mode: As in `trees`. Defaults to `"midtread"`.
        batch_size: As in `trees`. Defaults to `256`.

    Yields:
        `Trees`.

    Raises:
        ValueError: As in `trees`, but for a data set without samples.
    """
    check_mode(mode)
    check_levels(levels)
    if levels > _MOST_LEVELS:
        raise ValueError(
            f"`levels` must be in [2, {_MOST_LEVELS}], so that a code is a "
            f"byte. Received: levels={levels}."
        )
    shown = _Shown(model)
    for outputs in shown.batches(images, batch_size):
        lengths, couplings = outputs["lengths"], outputs["couplings"]
        predicted = lengths.argmax(axis=-1)
        towards = np.take_along_axis(
            couplings, predicted[:, np.newaxis, np.newaxis], axis=-1
        )[..., 0]
        codes = ops.convert_to_numpy(quantize(towards, levels, mode=mode))
        places = outputs.get("places")
        if places is None:
            places = np.broadcast_to(shown.places, (*towards.shape, 2))
        yield Trees(
            predicted=predicted.astype(np.int32),
            lengths=lengths,
            couplings=couplings,
            towards=towards,
            codes=codes.astype(np.uint8),
            in_tree=in_tree(towards, shown.threshold),
            activations=outputs["activations"],
            types=shown.types,
            places=places.astype(np.float64, copy=False),
        )


def _is_shared(places: Array) -> bool:
    """Tells whether all images have the same places, in one memory."""
    return places.strides[0] == 0


class _Shown:
    """A model from images to all that their trees are made of."""

    def __init__(self, model: keras.Model):
        model = without_couplings(encoder(model))
        layer = last_routed_layer(model)
        shown: dict[str, Tensor] = {}
        copy = same_layers(model, show_last(model, shown))
        outputs = shown_outputs(copy, shown)
        couplings = outputs["couplings"]
        if len(couplings.shape) != 3:
            raise ValueError(
                f"The last routed layer of {model.name!r} is a "
                f"{type(layer).__name__}, whose children differ from window to "
                "window. Trees need class capsules, such as "
                "`tfcaps.layers.ClassCaps`, at the end."
            )
        outputs.pop("poses")
        outputs |= _Children(layer)(shown["children"], shown.get("activations"))
        self._network = keras.Model(copy.input, outputs, name=model.name)
        _, children, parents = couplings.shape
        self.threshold = tree_threshold(layer.routing, parents)
        grid: tuple[int, ...] = (children,)
        if isinstance(layer, ClassCaps):
            grid = layer.children_shape(shown["children"].shape)
        self.types = np.arange(children) % grid[-1]
        self.places = np.full((children, 2), np.nan)
        image = tuple(copy.inputs[0].shape[1:])
        if len(grid) == 3 and grid[0] * grid[1] > 1:
            if len(image) == 3 and None not in image:
                self.places = receptive_fields(model).child_centres

    def batches(
        self, images: Any, batch_size: int
    ) -> Iterator[dict[str, Array]]:
        """Yields what the network says of each batch."""
        yield from predict_batches(self._network, images, batch_size)


class _Children(keras.layers.Layer):
    """Returns how active the children of a layer are, and where, if it says."""

    def __init__(self, layer: Any):
        super().__init__(dtype="float32")
        self.layer = layer

    def call(
        self, children: Tensor, activations: Tensor | None = None
    ) -> dict[str, Tensor]:
        if isinstance(self.layer, ClassCaps):
            active = self.layer.voting_activations(children, activations)
        else:
            active = child_activations(children, activations)
            active = ops.reshape(active, (ops.shape(active)[0], -1))
        found = {"activations": ops.cast(active, "float32")}
        if hasattr(self.layer, "child_places"):
            places = self.layer.child_places(children)
            found["places"] = ops.cast(places, "float32")
        return found
