"""Callbacks that set what gradients do not: blueprints and their width."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps import split_merge
from tfcaps.layers import ConstellationCaps, PartCaps, TemplateDecoder
from tfcaps.layers.part_caps import compete
from tfcaps.split_merge import Found, Slots

Array = NDArray[Any]
# A type, slots, and which of them are its own.
_Split = tuple[int, Slots, Array]

_BATCH = 250
# Pixels that a gradient need not bridge, and the share of the images of a class
# in which a type must be found at a place to move there.
_JUMP = 3.0
_LEAST_SHARE = 0.1
# Bias of a type that another one has taken in: it is never present again, and
# `tfcaps.rem.compact` takes it away.
_SPARE_BIAS = -1e4


class BlueprintEstimation(keras.callbacks.Callback):
    """Sets where the parts of classes stand, from where they were found.

    After each epoch but the last one, on some of the training images: each type
    of each class moves to the place, relative to the class, at which it is
    found most often (gradients move it only by tenths of a pixel, and cannot
    exchange two). From the second epoch on a class keeps a slot for those types
    only that are found at their place in more than `least` of its images.

    It also narrows the width of the routing from epoch to epoch, from
    `widths[0]` to `widths[1]` during the share `narrowing` of the epochs, and
    makes the competition of places hard for the share `hard` of them at the
    end.

    Args:
        images: Training images `[n, h, w, c]`, as the model takes them: an
            array, or what gives one for an array of indices.
        labels: Their class indices `[n]`.
        epochs: Int. Epochs of the whole training.
        samples: Int. How many of the images are looked at, drawn anew each
            time. Defaults to `1500`.
        widths: Two floats, in pixels, or `None` for the width as it is.
            Defaults to `(6.0, 2.0)`.
        narrowing: Float in (0, 1]. Defaults to `0.6`.
        hard: Float in [0, 1]. Defaults to `0.35`.
        least: Float. Defaults to `0.4`.
        move: Bool. Move and take slots; else only the width and the competition
            are set. Defaults to `True`.
        apart: Float. Pixels between two types of a class. Defaults to `4.0`.
        merge: Float or `None`. Cosine between 0 and 1 of where two types are
            found, from which on they are one. `None` leaves the types as they
            are. Defaults to `0.5`.
        split: Float. Share of the occurrences of a type, above one half, which
            must be told apart for it to be split. Defaults to `0.75`.
        seed: Int. Seed of what is drawn. Defaults to `0`.

    If no type is active in any of the images, it says so when training ends.

    Raises:
        ValueError: When training begins, if the model has not one `PartCaps`
            and one `ConstellationCaps`.
    """

    def __init__(
        self,
        images: Any,
        labels: Array,
        epochs: int,
        *,
        samples: int = 1500,
        widths: tuple[float, float] | None = (6.0, 2.0),
        narrowing: float = 0.6,
        hard: float = 0.35,
        least: float = 0.4,
        move: bool = True,
        apart: float = 4.0,
        merge: float | None = 0.5,
        split: float = 0.75,
        seed: int = 0,
    ):
        super().__init__()
        self.images = images
        self.labels = np.asarray(labels)
        self.epochs = epochs
        self.samples = samples
        self.widths = widths
        self.narrowing = narrowing
        self.hard = hard
        self.least = least
        self.move = move
        self.apart = apart
        self.merge = merge
        self.split = split
        self.seed = seed
        self.moved: list[int] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self._parts, self._classes = (
            _layer(self.model, kind) for kind in (PartCaps, ConstellationCaps)
        )
        self._seen: keras.Model | None = None
        self._most_active = 1.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.widths is not None:
            first, last = self.widths
            done = epoch / max(1.0, self.narrowing * (self.epochs - 1))
            width = first * (last / first) ** min(1.0, done)
            self._classes.log_width.assign(math.log(width))
        is_hard = epoch >= round((1.0 - self.hard) * self.epochs)
        self._parts.hardness.assign(float(is_hard))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not self.move:
            return
        self._keep_spare()
        if epoch >= self.epochs - 1:
            return
        # Of a training that is resumed, the same as of one that was not.
        draw = np.random.default_rng([self.seed, epoch])
        some = np.sort(draw.permutation(len(self.labels))[: self.samples])
        images, labels = self.images[some], self.labels[some]
        found, features = self._look(images, labels)
        self._most_active = float(found.active.max())
        if self._most_active < _LEAST_SHARE:
            return  # as in the first steps of a training
        # What is changed must be learnt before the end.
        splits: list[_Split] = []
        if self.merge is not None and 1 <= epoch < self.epochs - 2:
            found = self._merge_types(found, self.merge)
            if epoch % 2:
                splits = self._split_types(found, images, features)
        self.moved.append(self._move(found))
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

    def _look(self, images: Array, labels: Array) -> tuple[Found, Array]:
        """Looks for parts, and for the place of each image's own class.

        Returns:
            What is found, and the feature map that it is found in.
        """
        if self._seen is None:
            (parts,) = (
                layer
                for layer in self.model.layers
                if getattr(layer, "layer", layer) is self._parts
            )
            outputs = (self.model.output["presence"], parts.input)
            self._seen = keras.Model(self.model.input, outputs)
        layer = self._classes
        active, cells, features = [], [], []
        for start in range(0, len(images), _BATCH):
            presence, seen = self._seen.predict_on_batch(
                images[start : start + _BATCH]
            )
            soft = compete(presence, self._parts.window, self._parts.power)
            evidence, anchors = layer.evidence_map(
                self._parts.places(presence), soft
            )
            evidence = ops.convert_to_numpy(evidence)
            own = labels[start : start + _BATCH]
            best = evidence[np.arange(len(own)), own].argmax(axis=-1)
            best = anchors(ops.convert_to_tensor(best[:, None], dtype="int32"))
            places = ops.convert_to_numpy(best)[:, 0]
            cells.append(np.rint((places - layer.offset) / layer.stride))
            active.append(np.minimum(ops.convert_to_numpy(soft), 1.0))
            features.append(seen)
        where = np.concatenate(cells).astype(int)
        found = Found(np.concatenate(active), where, labels)
        return found, np.concatenate(features)

    def _merge_types(self, found: Found, least: float) -> Found:
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
            kernel[..., gone], bias[gone] = 0.0, _SPARE_BIAS
            for of_type in (active, mass):
                of_type[..., kept] += of_type[..., gone]
                of_type[..., gone] = 0.0
        self._set_type_weights(kernel, bias, templates)
        return found._replace(active=np.minimum(active, 1.0))

    def _split_types(
        self, found: Found, images: Array, features: Array
    ) -> list[_Split]:
        """Splits types that stand for two kinds."""
        layer = self._classes
        kernel, bias, templates = self._type_weights()
        spare = list(np.flatnonzero(_are_spare(bias)))
        shares = found.shares(layer.num_capsules)

        def pictures(where: Array) -> Array:
            middle = layer.offset + layer.stride * where[:, 1:]
            pixels = np.concatenate([where[:, :1], np.rint(middle)], axis=1)
            return split_merge.cut_out(images, pixels.astype(int))

        splits = []
        for t in np.flatnonzero(~_are_spare(bias)):
            slots = split_merge.slots_of(
                shares, t, self.least, self.apart / layer.stride
            )
            kinds = split_merge.two_kinds(found, t, slots, pictures, features)
            if not spare or kinds is None or kinds.accuracy < self.split:
                continue
            new = spare.pop(0)
            half, more = kinds.kernel / 2, kinds.bias / 2
            # Both together are there where the one was.
            bias[new], bias[t] = bias[t] + more, bias[t] - more
            bias[[new, t]] -= math.log(2)
            kernel[..., new] = kernel[..., t] + half
            kernel[..., t] -= half
            templates[..., new] = templates[..., t]
            splits += [
                (t, slots, ~kinds.second),
                (new, slots, kinds.second),
            ]
        if splits:
            self._set_type_weights(kernel, bias, templates)
        return splits

    def _part_slots(self, t: int, slots: Slots, own: Array) -> None:
        """Gives a type that was split those slots that are of its kind."""
        layer = self._classes
        shifts = np.array(ops.convert_to_numpy(layer.shifts))
        has = np.array(ops.convert_to_numpy(layer.slots))
        types = len(shifts) // layer.instances
        has[t::types] = 0.0
        for j, cell in zip(slots.classes[own], slots.cells[own], strict=True):
            number = t + types * int(has[t::types, j].sum())
            if number < len(has):
                has[number, j] = 1.0
                shifts[number, j] = layer.stride * cell
        layer.blueprint.assign(shifts / layer.side)
        layer.slots.assign(has)

    def _keep_spare(self) -> None:
        """Takes back where momentum has carried types that are no more."""
        kernel, bias, templates = self._type_weights()
        spare = _are_spare(bias)
        if spare.any():
            kernel[..., spare], bias[spare] = 0.0, _SPARE_BIAS
            self._set_type_weights(kernel, bias, templates)

    def _type_weights(self) -> tuple[Array, Array, Array]:
        kernel, bias = (np.array(w) for w in self._parts.conv.get_weights())
        decoder = _layer(self.model, TemplateDecoder)
        return kernel, bias, np.array(decoder.templates)

    def _set_type_weights(
        self, kernel: Array, bias: Array, templates: Array
    ) -> None:
        self._parts.conv.set_weights([kernel, bias])
        _layer(self.model, TemplateDecoder).templates.assign(templates)

    def _move(self, found: Found) -> int:
        """Moves types to where they are found most.

        Returns:
            How many of those moved that are found in more than `least` of the
            images of the class: of types that a class has not, the place means
            nothing.
        """
        layer = self._classes
        rows, columns, types = found.active.shape[1:]
        shares = found.shares(layer.num_capsules)
        down, right = (
            layer.stride * (np.arange(2 * n) - n) for n in (rows, columns)
        )

        def away(place: Array) -> Array:
            return np.hypot(down[:, None] - place[0], right - place[1])

        shifts = np.array(ops.convert_to_numpy(layer.shifts))
        moved = 0
        self._known = np.arange(len(shifts))[:, None] < types
        self._known = np.tile(self._known, (1, layer.num_capsules))
        for j in np.unique(found.labels):
            had: list[Array] = []  # places of parts that the class has
            for instance in range(layer.instances):
                share = shares[j].copy()
                for place in had:
                    share[away(place) <= self.apart] = 0.0
                # The one that is found most often first, until none is left.
                while (often := share.max()) > (self.least if instance else 0):
                    row, column, t = np.unravel_index(
                        share.argmax(), share.shape
                    )
                    place = np.array([down[row], right[column]])
                    number = instance * types + t
                    self._known[number, j] = True
                    far = np.linalg.norm(place - shifts[number, j]) > _JUMP
                    if far and often > _LEAST_SHARE:
                        shifts[number, j] = place
                        moved += bool(often > self.least)
                    if often > self.least:
                        had.append(place)
                    share[away(place) <= self.apart] = 0.0
                    share[..., t] = 0.0
        layer.blueprint.assign(shifts / layer.side)
        return moved

    def _keep_slots(self, found: Found) -> None:
        """Leaves a class the types that are found in it often enough."""
        layer = self._classes
        rows, columns = found.active.shape[1:3]
        grid = np.stack(
            np.meshgrid(
                layer.offset[0] + layer.stride * np.arange(rows),
                layer.offset[1] + layer.stride * np.arange(columns),
                indexing="ij",
            ),
            axis=-1,
        )
        width = float(np.exp(ops.convert_to_numpy(layer.log_width)))
        shifts = ops.convert_to_numpy(layer.shifts)
        sums = np.zeros((len(shifts), layer.num_capsules))
        for active, cell, label in zip(
            found.active, found.cells, found.labels, strict=True
        ):
            place = layer.offset + layer.stride * cell
            wanted = place + shifts[:, label]  # [t, 2]
            apart = np.sum((grid[:, :, None] - wanted) ** 2, axis=-1)
            active = np.tile(active, layer.instances)
            near = active * np.exp(-0.5 * apart / width**2)
            sums[:, label] += np.minimum(near.sum(axis=(0, 1)), 1.0)
        counts = np.bincount(found.labels, minlength=layer.num_capsules)
        rates = sums / np.maximum(counts, 1)
        self.rates = rates
        has = (rates > self.least) & self._known
        layer.slots.assign(has.astype("float32"))


def _are_spare(bias: Array) -> Array:
    return bias < 0.5 * _SPARE_BIAS


def _layer(model: keras.Model, kind: type) -> Any:
    """Returns a layer of a model, perhaps within another one."""
    layers = [getattr(layer, "layer", layer) for layer in model.layers]
    found = [layer for layer in layers if isinstance(layer, kind)]
    is_training = isinstance(model.output, dict) and "presence" in model.output
    if len(found) != 1 or not is_training:
        raise ValueError(
            f"The model {model.name!r} must be one that "
            "`tfcaps.models.with_templates` returned, with one "
            f"`{kind.__name__}`. Received: one with {len(found)}."
        )
    return found[0]
