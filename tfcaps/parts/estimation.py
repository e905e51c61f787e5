"""Sets what gradients do not: blueprints, and how wide they are."""

import math
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from tfcaps.graphs import only_layer
from tfcaps.ops import Array, check_that
from tfcaps.parts import kinds, samples, split_merge
from tfcaps.parts.constellation_caps import ConstellationCaps
from tfcaps.parts.part_caps import SPARE_BIAS, PartCaps

_BATCH = 250
# The share of the epochs in which the width of the routing narrows.
_NARROWING = 0.6
# The share of the images of a class in which it has a part, pixels between two
# types of a class, and how clear two kinds must be for a type to be split.
_LEAST, _APART, _CLEAR = 0.4, 4.0, 0.66
# The share of images whose class new types must tell, if it was told before,
# and the bias of spare types from then on.
_TOLD, _SET = 0.87, 2.0 * SPARE_BIAS
# The share of images whose class is told from which on types are merged.
_KNOWN = 0.5
# Pixels that a gradient need not bridge, and the share of the images of a class
# in which a type must be found at a place to move there.
_JUMP, _LEAST_SHARE = 3.0, 0.1
# Width of the Gaussian window around a part, in half sides of a template.
_FADING = 0.4


class _Views(NamedTuple):
    """What a network makes of images."""

    active: Array  # activations `[n, h, w, t]` of soft competition
    features: Array  # the map `[n, h, w, channels]` that parts are made of
    drawn: Array  # the images, drawn again


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
        check_that(0 <= share <= 1, "be from 0 to 1", share=share)
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
    Types are merged and split; once, they become the kinds of parts that the
    images of each class show when they are laid on each other, if these show
    them clearly, and if they tell the classes as well.

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
        merge: Float or `None`. Cosine between 0 and 1 of where two types are
            found, from which on they are one. `None` leaves the types as they
            are. Defaults to `0.5`.
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
        merge: float | None = 0.5,
        seed: int = 0,
    ):
        super().__init__(hard, epochs)
        self.sample: Any = None  # a `Sample`
        if labels is not None:
            self.sample = samples.of_arrays(images, np.asarray(labels), seed)
        self.widths = widths
        self.merge = merge

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
        found, views = self._look(images, labels)
        self._most_active = float(found.active.max())
        if self._most_active < _LEAST_SHARE:
            return  # as in the first steps of a training
        # What is changed must be learnt before the end.
        splits: list[tuple[int, split_merge.Slots]] = []
        is_known = self._accuracy >= _KNOWN
        if self.merge is not None and 1 <= epoch < self._num_epochs - 2:
            if not self._are_set and self._set_kinds(
                found, images, views.features
            ):
                return
            # Where classes are not told yet, places of parts say nothing.
            if is_known:
                found = self._merge_types(found, self.merge)
                if epoch == 1:
                    splits = self._split_types(found, images, views)
        self._move(found)
        if epoch >= 1:
            self._keep_slots(found)
        for split in splits:
            self._part_slots(*split)

    def on_train_end(self, logs: Any = None) -> None:
        if self._most_active < _LEAST_SHARE:
            print(
                "No type of part is active in the training images (at most "
                f"{self._most_active:.2g} of 1), so that nothing can be named. "
                "Train longer, look whether parts are about seven pixels large,"
                " or give `constellation_losses` a smaller `sparsity`.",
                flush=True,
            )

    def _look(
        self, images: Array, labels: Array
    ) -> tuple[split_merge.Occurrences, _Views]:
        """Looks for parts, and for the place of each image's own class."""
        layer, learner = self._classes, self.model.learner()
        active, cells, features, drawn, right = [], [], [], [], []
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
            # Of a mixed policy: half precision has no eigenvalues.
            features.append(outputs["features"].astype("float32"))
            drawn.append(outputs["reconstruction"])
        self._accuracy = float(np.mean(np.concatenate(right)))
        every = np.concatenate(active)
        found = split_merge.Occurrences(
            every, np.concatenate(cells).astype(int), labels
        )
        views = _Views(every, np.concatenate(features), np.concatenate(drawn))
        return found, views

    def _set_kinds(
        self, found: split_merge.Occurrences, images: Array, features: Array
    ) -> bool:
        """Sets types to what images show; tells whether that is as good."""
        layer, count = self._classes, self._parts.num_types
        images = np.asarray(images)
        parts = kinds.find(
            images,
            found.labels,
            layer.offset + layer.stride * found.cells,
            self.model.decoder.size,
            most=count,
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
        width = ops.convert_to_numpy(layer.log_width)
        if self.widths is not None:  # that which they have in the end
            layer.log_width.assign(math.log(self.widths[1]))
        self._look(images, found.labels)
        accuracy = self._accuracy
        kernel, bias = map(np.zeros_like, self._parts.conv.get_weights())
        kernel[..., names[:-1]], bias[:] = learnt[:, :-1], _SET
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
        layer.log_width.assign(width)
        if not is_told:
            for weight, value in zip(changed, before, strict=True):
                weight.assign(value)
        return is_told

    def _merge_types(
        self, found: split_merge.Occurrences, least: float
    ) -> split_merge.Occurrences:
        """Merges types that are found at the same places."""
        shares = found.shares(self._classes.num_capsules)
        pairs = split_merge.same_kinds(shares, found.mass, least)
        if not pairs:
            return found
        kernel, bias, templates = self._type_weights()
        active, mass = found.active.copy(), found.mass
        for kept, gone in pairs:
            share = mass[gone] / (mass[kept] + mass[gone])
            for each in (kernel, bias, templates):
                each[..., kept] += share * (each[..., gone] - each[..., kept])
            kernel[..., gone], bias[gone] = 0.0, SPARE_BIAS
            for of_type in (active, mass):
                of_type[..., kept] += of_type[..., gone]
                of_type[..., gone] = 0.0
        self._set_type_weights(kernel, bias, templates)
        return found._replace(active=np.minimum(active, 1.0))

    def _split_types(
        self, found: split_merge.Occurrences, images: Array, views: _Views
    ) -> list[tuple[int, split_merge.Slots]]:
        """Splits types that stand for two kinds."""
        layer = self._classes
        kernel, bias, templates = self._type_weights()
        spare = list(np.flatnonzero(are_spare(bias)))
        shares = found.shares(layer.num_capsules)
        pictures = partial(self._pictures, images=images, views=views)
        splits: list[tuple[int, split_merge.Slots]] = []
        apart = _APART / layer.stride
        todo = [
            (t, t, split_merge.slots_of(shares, t, _LEAST, apart))
            for t in np.flatnonzero(~are_spare(bias)).tolist()
        ]
        while todo and spare:
            # Occurrences of what was split off are those of the type it was.
            t, was, slots = todo.pop()
            kinds = split_merge.two_kinds(
                found, was, slots, pictures, views.features
            )
            if kinds is None or kinds.clarity < _CLEAR:
                continue
            new = int(spare.pop(0))
            half, more = kinds.kernel / 2, kinds.bias / 2
            # Both together are there where the one was.
            bias[new], bias[t] = bias[t] + more, bias[t] - more
            bias[[new, t]] -= math.log(2)
            kernel[..., new] = kernel[..., t] + half
            kernel[..., t] -= half
            templates[..., new] = templates[..., t]
            of_each = [
                (t, was, slots.of(~kinds.second)),
                (new, was, slots.of(kinds.second)),
            ]
            splits = [each for each in splits if each[0] != t]
            splits += [(each, own) for each, _, own in of_each]
            todo += of_each
        if splits:
            self._set_type_weights(kernel, bias, templates)
        return splits

    def _pictures(self, where: Array, images: Array, views: _Views) -> Array:
        """Returns what cells `[k, 3]` show, without parts near by, `[k, p]`."""
        decoder = self.model.decoder
        templates = ops.convert_to_numpy(decoder.pictures)  # [s, s, c, t]
        step, reach = round(self._classes.stride), len(templates) // 2
        middle = self._classes.offset + self._classes.stride * where[:, 1:]
        middle = np.rint(middle).astype(int)
        around = np.arange(2 * reach + 1)
        sides = ((0, 0), (reach, reach), (reach, reach), (0, 0))
        rest = np.pad(images - views.drawn, sides)[
            where[:, :1, None],
            middle[:, :1, None] + around[:, None],
            middle[:, 1:, None] + around,
        ]
        # What is drawn of the cells next to it belongs to the part itself.
        own = np.zeros(
            (len(where), *(rest.shape[1] + 2 * step,) * 2, rest.shape[-1])
        )
        active = np.pad(views.active, ((0, 0), (1, 1), (1, 1), (0, 0)))
        for down, right in np.ndindex(3, 3):
            there = active[where[:, 0], where[:, 1] + down, where[:, 2] + right]
            rows = slice(step * down, step * down + len(around))
            columns = slice(step * right, step * right + len(around))
            drawn = np.einsum("kt,rsct->krsc", there, templates)
            own[:, rows, columns] += drawn
        pictures = rest + own[:, step:-step, step:-step]
        fading = np.exp(-0.5 * ((around - reach) / (_FADING * reach)) ** 2)
        pictures = pictures * (fading[:, None] * fading)[..., None]
        return pictures.reshape(len(where), -1)

    @property
    def _are_set(self) -> bool:
        """Whether types are what the images show: a resumed run knows, too."""
        bias = self._parts.conv.get_weights()[1]
        return bool((bias < 0.75 * _SET).any())

    def _keep_spare(self) -> None:
        """Takes back where momentum has carried types that are no more."""
        kernel, bias, templates = self._type_weights()
        spare = are_spare(bias)
        if spare.any():
            kernel[..., spare] = 0.0
            bias[spare] = _SET if self._are_set else SPARE_BIAS
            self._set_type_weights(kernel, bias, templates)

    def _type_weights(self) -> tuple[Array, Array, Array]:
        kernel, bias = (np.array(w) for w in self._parts.conv.get_weights())
        decoder = self.model.decoder
        return kernel, bias, np.array(decoder.templates)

    def _set_type_weights(
        self, kernel: Array, bias: Array, templates: Array
    ) -> None:
        self._parts.conv.set_weights([kernel, bias])
        self.model.decoder.templates.assign(templates)

    def _move(self, found: split_merge.Occurrences) -> None:
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

    def _keep_slots(self, found: split_merge.Occurrences) -> None:
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

    def _part_slots(self, t: int, slots: split_merge.Slots) -> None:
        """Gives a type that was split those slots that are of its kind."""
        layer = self._classes
        shifts = np.array(ops.convert_to_numpy(layer.shifts))
        has = np.array(ops.convert_to_numpy(layer.slots))
        types = len(shifts) // layer.max_of_type
        has[t::types] = 0.0
        for j, cell in zip(*slots, strict=True):
            number = t + types * int(has[t::types, j].sum())
            if number < len(has):
                has[number, j] = 1.0
                shifts[number, j] = layer.stride * cell
        layer.blueprint.assign(shifts / layer.side)
        layer.slots.assign(has)


def are_spare(bias: Array) -> Array:
    """Tells which types, by their bias, another one has taken in."""
    return bias < 0.5 * SPARE_BIAS
