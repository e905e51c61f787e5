"""Sets what gradients do not: blueprints, and how wide they are."""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from tfcaps.graphs import only_layer
from tfcaps.parts import kinds, samples
from tfcaps.parts.constellation_caps import ConstellationCaps
from tfcaps.parts.part_caps import SPARE_BIAS, PartCaps

Array = NDArray[Any]

_BATCH = 250
# The share of the epochs in which the width of the routing narrows.
_NARROWING = 0.6
# The share of the images of a class in which it has a part, and pixels between
# two types of a class.
_LEAST, _APART = 0.4, 4.0
# The share of images whose class must be told by new types, if it was before.
_TOLD = 0.9
# Pixels that a gradient need not bridge, and the share of the images of a class
# in which a type must be found at a place to move there.
_JUMP, _LEAST_SHARE = 3.0, 0.1


class Occurrences(NamedTuple):
    """What was found in some images, whose classes are known."""

    active: Array  # activations `[n, h, w, t]` of soft competition
    cells: Array  # row and column `[n, 2]` of the cell at which the class is
    labels: Array  # classes `[n]`

    def shares(self, classes: int) -> Array:
        """Returns how often a type is so far from one of so many classes.

        That is `[j, 2h, 2w, t]`, the class itself at `[h, w]`. Smoothed, so
        that it is 1 for a part that is always found at one place.
        """
        rows, columns, types = self.active.shape[1:]
        sums = np.zeros((classes, 2 * rows, 2 * columns, types))
        for active, (row, column), label in zip(
            self.active, self.cells, self.labels, strict=True
        ):
            down = slice(rows - row, 2 * rows - row)
            right = slice(columns - column, 2 * columns - column)
            sums[label, down, right] += active
        counts = np.bincount(self.labels, minlength=classes)
        sums /= np.maximum(counts, 1)[:, None, None, None]
        # Around a lone part the filter's largest value is 1 / 2 pi.
        return (
            2.0 * np.pi * gaussian_filter(sums, (0, 1, 1, 0), mode="constant")
        )


class HardenParts(keras.callbacks.Callback):
    """Makes the competition of places hard at the end of a training.

    From then on a place wins all of its window in training, as it does at
    inference; see `tfcaps.parts.PartCaps`.

    Args:
        share: Float in [0, 1]. The share of the epochs. Defaults to `0.35`.
        epochs: Int. Epochs of the whole training. Defaults to `None`, those of
            `fit`.

    Raises:
        ValueError: If `share` is out of range, or when training begins, if the
            model has not one `PartCaps`.
    """

    def __init__(self, share: float = 0.35, epochs: int | None = None):
        if not 0 <= share <= 1:
            raise ValueError(
                f"`share` must be from 0 to 1. Received: share={share}."
            )
        super().__init__()
        self.share = share
        self.epochs = epochs

    def on_train_begin(self, logs: Any = None) -> None:
        self._parts = only_layer(self.model, PartCaps)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        is_hard = epoch >= round((1.0 - self.share) * self._num_epochs)
        self._parts.hardness.assign(float(is_hard))

    @property
    def _num_epochs(self) -> int:
        return int(self.epochs or self.params["epochs"])


class BlueprintEstimation(HardenParts):
    """Sets where the parts of classes stand, from where they were found.

    After each epoch but the last one, on some of the training images: each type
    of each class moves to the place, relative to the class, at which it is
    found most often (gradients move it only by tenths of a pixel, and cannot
    exchange two). From the second epoch on a class keeps a slot for those types
    only that are found at their place in more than two fifths of its images.
    Once, types become the kinds of parts that the images of each class show
    when they are laid on each other, if they show them clearly, and these tell
    the classes as well.

    It also narrows the width of the routing from epoch to epoch, from
    `widths[0]` to `widths[1]` during three fifths of the epochs, and makes the
    competition of places hard for the share `hard` of them at the end.

    `fit` of a `tfcaps.parts.ConstellationModel` does all that by itself. Give
    it this callback to choose the settings. If no type is active in any of the
    images, it says so when training ends.

    Args:
        images: Training images `[n, h, w, c]`, as the model takes them, or what
            gives them for an array of indices. Defaults to `None`, those that
            `fit` is given.
        labels: Their class indices `[n]`. Defaults to `None`.
        epochs: Int. Epochs of the whole training. Defaults to `None`, those of
            `fit`.
        widths: Two floats, in pixels, or `None` for the width as it is.
            Defaults to `(6.0, 2.0)`.
        hard: Float in [0, 1]. Defaults to `0.35`.
        distance: Float or `None`. How much two parts must differ to be of
            different kinds, in standard deviations of what is seen at one
            part. `None` leaves the types as they are. Defaults to `3.8`.
        seed: Int. Seed of what is drawn from arrays. Defaults to `0`.

    Raises:
        ValueError: When training begins, if the model is no
            `tfcaps.parts.ConstellationModel` that draws its images, or there
            are no images.
    """

    def __init__(
        self,
        images: Any = None,
        labels: Array | None = None,
        epochs: int | None = None,
        *,
        widths: tuple[float, float] | None = (6.0, 2.0),
        hard: float = 0.35,
        distance: float | None = kinds.DISTANCE,
        seed: int = 0,
    ):
        super().__init__(hard, epochs)
        self.sample: Any = None  # a `Sample`
        if labels is not None:
            self.sample = samples.of_arrays(images, np.asarray(labels), seed)
        self.widths = widths
        self.distance = distance

    def on_train_begin(self, logs: Any = None) -> None:
        if not getattr(self.model, "estimates_blueprints", False):
            raise ValueError(
                f"The model {self.model.name!r} must be a "
                "`tfcaps.parts.ConstellationModel`, such as "
                "`tfcaps.models.constellation_capsnet` returns, compiled with "
                "a loss of the `reconstruction`. Use `HardenParts` for others."
            )
        if self.sample is None:
            raise ValueError(
                "`BlueprintEstimation` needs images and labels where it is not "
                "a callback of `fit`."
            )
        super().on_train_begin(logs)
        self._classes = only_layer(self.model, ConstellationCaps)
        self._most_active = 1.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        if self.widths is not None:
            first, last = self.widths
            done = epoch / max(1.0, _NARROWING * (self._num_epochs - 1))
            width = first * (last / first) ** min(1.0, done)
            self._classes.log_width.assign(math.log(width))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self._keep_spare()
        if epoch >= self._num_epochs - 1:
            return
        images, labels = self.sample(epoch)
        if not len(labels):
            return
        found, features = self._look(images, labels)
        self._most_active = float(found.active.max())
        if self._most_active < _LEAST_SHARE:
            return  # as in the first steps of a training
        # What is changed must be learnt before the end.
        if (
            self.distance is not None
            and 1 <= epoch < self._num_epochs - 2
            and not are_spare(self._parts.conv.get_weights()[1]).any()
            and self._set_kinds(found, features, images)
        ):
            return
        self._move(found)
        if epoch >= 1:
            self._keep_slots(found)

    def on_train_end(self, logs: Any = None) -> None:
        if self._most_active < _LEAST_SHARE:
            print(
                "No type of part is active in the training images (at most "
                f"{self._most_active:.2g} of 1), so that nothing can be named. "
                "Train longer, look whether parts are about seven pixels large,"
                " or give `constellation_losses` a smaller `sparsity`.",
                flush=True,
            )

    def _look(self, images: Array, labels: Array) -> tuple[Occurrences, Array]:
        """Looks for parts, and for the place of each image's own class.

        Returns them, and the map `[n, h, w, channels]` that parts are made of.
        """
        layer, learner = self._classes, self.model.learner()
        active, cells, features, right = [], [], [], []
        for start in range(0, len(images), _BATCH):
            some = images[start : start + _BATCH]
            outputs = learner.predict_on_batch(some)
            # Of several replicas each one has taken the whole batch.
            outputs = {name: x[: len(some)] for name, x in outputs.items()}
            soft = self._parts.compete(outputs["presence"])
            places = self._parts.places(outputs["presence"])
            evidence, place = layer.evidence_map(places, soft)
            evidence = ops.convert_to_numpy(evidence)
            classes = labels[start : start + _BATCH]
            right.append(evidence.max(axis=-1).argmax(axis=-1) == classes)
            best = evidence[np.arange(len(classes)), classes].argmax(axis=-1)
            best = place(ops.convert_to_tensor(best[:, None], dtype="int32"))
            places = ops.convert_to_numpy(best)[:, 0]
            cells.append(np.rint((places - layer.offset) / layer.stride))
            active.append(np.minimum(ops.convert_to_numpy(soft), 1.0))
            # Of a mixed policy.
            features.append(outputs["features"].astype("float32"))
        self._accuracy = float(np.mean(np.concatenate(right)))
        where = np.concatenate(cells).astype(int)
        found = Occurrences(np.concatenate(active), where, labels)
        return found, np.concatenate(features)

    def _set_kinds(
        self, found: Occurrences, features: Array, images: Array
    ) -> bool:
        """Lets types, templates and blueprints be what the images show.

        Returns whether they show parts clearly, and these tell the classes
        as well. Types stay what they were if not.
        """
        layer, count = self._classes, self._parts.num_types
        images = np.asarray(images)
        parts = kinds.find(
            images,
            found.labels,
            layer.offset + layer.stride * found.cells,
            self.model.decoder.size,
            self.distance or 0.0,
            count,
            repeated=layer.max_of_type > 1,
        )
        if not parts.clear:
            return False
        shifts = np.array(ops.convert_to_numpy(layer.shifts))
        has = np.zeros(shifts.shape[:2], "float32")
        # The type at each place: none, and near a part it is not known.
        rows, columns = found.active.shape[1:3]
        types = np.full((len(images), rows + 2, columns + 2), count)
        where, kind_there = [], []
        for j, shift, kind in zip(*parts.slots, strict=True):
            number = kind + count * int(has[kind::count, j].sum())
            if number < len(has):
                has[number, j], shifts[number, j] = 1.0, shift
            of_class = np.flatnonzero((found.labels == j) & parts.fits)
            cells = parts.places[of_class] + shift - layer.offset
            cells = cells / layer.stride
            cells = np.rint(cells).astype(int)
            inside = np.all((cells >= 0) & (cells < (rows, columns)), axis=1)
            where.append(np.column_stack([of_class, cells])[inside])
            kind_there += [kind] * int(inside.sum())
        image, row, column = np.concatenate(where).T
        for down, right in np.ndindex(3, 3):
            types[image, row + down, column + right] = -1
        types[image, row + 1, column + 1] = kind_there
        types = types[:, 1:-1, 1:-1]
        known = (types >= 0) & parts.fits[:, None, None]
        names, groups = np.unique(types[known], return_inverse=True)
        learnt, more = kinds.discriminants(features[known], groups)
        changed = [
            *self._parts.weights,
            *self.model.decoder.weights,
            *layer.weights,
        ]
        before = [np.array(ops.convert_to_numpy(w)) for w in changed]
        accuracy = self._accuracy
        kernel, bias = map(np.zeros_like, self._parts.conv.get_weights())
        kernel[..., names[:-1]], bias[:] = learnt[:, :-1], SPARE_BIAS
        bias[names[:-1]] = more[:-1]
        self._parts.conv.set_weights([kernel, bias])
        self._parts.nothing_conv.set_weights(
            [learnt[None, None, :, -1:], more[-1:]]
        )
        active = types[..., None] == np.arange(count)
        self.model.decoder.adapt(images[parts.fits], active[parts.fits])
        layer.blueprint.assign(shifts / layer.side)
        layer.slots.assign(has)
        self._look(images, found.labels)
        is_told = self._accuracy >= min(accuracy, _TOLD)
        if not is_told:
            for weight, value in zip(changed, before, strict=True):
                weight.assign(value)
        return is_told

    def _keep_spare(self) -> None:
        """Takes back where momentum has carried types that are no more."""
        kernel, bias = (np.array(w) for w in self._parts.conv.get_weights())
        spare = are_spare(bias)
        if spare.any():
            kernel[..., spare], bias[spare] = 0.0, SPARE_BIAS
            self._parts.conv.set_weights([kernel, bias])

    def _move(self, found: Occurrences) -> None:
        """Moves types to where they are found most."""
        layer = self._classes
        rows, columns, types = found.active.shape[1:]
        shares = found.shares(layer.num_capsules)
        down, right = (
            layer.stride * (np.arange(2 * n) - n) for n in (rows, columns)
        )

        def away(place: Array) -> Array:
            return np.hypot(down[:, None] - place[0], right - place[1])

        shifts = np.array(ops.convert_to_numpy(layer.shifts))
        self._is_found = np.zeros(shifts.shape[:2], bool)
        self._is_found[:types] = True
        for j in np.unique(found.labels):
            had: list[Array] = []  # places of parts that the class has
            for first in range(0, len(shifts), types):
                share = shares[j].copy()
                for place in had:
                    share[away(place) <= _APART] = 0.0
                # The one that is found most often first, until none is left.
                while (often := share.max()) > (_LEAST if first else 0):
                    peak = np.unravel_index(share.argmax(), share.shape)
                    place = np.array([down[peak[0]], right[peak[1]]])
                    slot = first + peak[2]
                    self._is_found[slot, j] = True
                    far = np.linalg.norm(place - shifts[slot, j]) > _JUMP
                    if far and often > _LEAST_SHARE:
                        shifts[slot, j] = place
                    if often > _LEAST:
                        had.append(place)
                    share[away(place) <= _APART] = 0.0
                    share[..., peak[2]] = 0.0
        layer.blueprint.assign(shifts / layer.side)

    def _keep_slots(self, found: Occurrences) -> None:
        """Leaves a class the types that are found in it often enough."""
        layer = self._classes
        cells = np.moveaxis(np.indices(found.active.shape[1:3]), 0, -1)
        width = float(np.exp(ops.convert_to_numpy(layer.log_width)))
        shifts = ops.convert_to_numpy(layer.shifts) / layer.stride  # in cells
        sums = np.zeros(shifts.shape[:2])
        for active, cell, j in zip(*found, strict=True):
            wanted = cell + shifts[:, j]  # [s, 2]
            apart = np.sum((cells[:, :, None] - wanted) ** 2, axis=-1)
            active = np.tile(active, layer.max_of_type)
            near = active * np.exp(-0.5 * apart * (layer.stride / width) ** 2)
            sums[:, j] += np.minimum(near.sum(axis=(0, 1)), 1.0)
        counts = np.bincount(found.labels, minlength=layer.num_capsules)
        has = (sums > _LEAST * np.maximum(counts, 1)) & self._is_found
        # A class of which too little was seen stays as it is.
        has = np.where(has.any(axis=0), has, ops.convert_to_numpy(layer.slots))
        layer.slots.assign(has.astype("float32"))


def are_spare(bias: Array) -> Array:
    """Tells which types, by their bias, another one has taken in."""
    return bias < 0.5 * SPARE_BIAS
