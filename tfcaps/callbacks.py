"""Callbacks that set what gradients do not: blueprints and their width."""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from tfcaps.layers import ConstellationCaps, PartCaps
from tfcaps.layers.part_caps import compete

Array = NDArray[Any]

_BATCH = 250
# Pixels that a gradient need not bridge, and the share of the images of a class
# in which a type must be found at a place to move there.
_JUMP = 3.0
_LEAST_SHARE = 0.1


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
        self.moved: list[int] = []
        self._rng = np.random.default_rng(seed)

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
        if not self.move or epoch >= self.epochs - 1:
            return
        some = self._rng.permutation(len(self.labels))[: self.samples]
        some = np.sort(some)
        found = self._look(self.images[some], self.labels[some])
        self._most_active = float(found.active.max())
        if self._most_active < _LEAST_SHARE:
            return  # as in the first steps of a training
        self.moved.append(self._move(found))
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

    def _look(self, images: Array, labels: Array) -> "_Found":
        """Looks for parts, and for the place of each image's own class."""
        if self._seen is None:
            output = self.model.output["presence"]
            self._seen = keras.Model(self.model.input, output)
        active, places = [], []
        for start in range(0, len(images), _BATCH):
            presence = self._seen.predict_on_batch(
                images[start : start + _BATCH]
            )
            soft = compete(presence, self._parts.window, self._parts.power)
            evidence, anchors = self._classes.evidence_map(
                self._parts.places(presence), soft
            )
            evidence = ops.convert_to_numpy(evidence)
            own = labels[start : start + _BATCH]
            best = evidence[np.arange(len(own)), own].argmax(axis=-1)
            best = anchors(ops.convert_to_tensor(best[:, None], dtype="int32"))
            places.append(ops.convert_to_numpy(best)[:, 0])
            active.append(np.minimum(ops.convert_to_numpy(soft), 1.0))
        return _Found(np.concatenate(active), np.concatenate(places), labels)

    def _move(self, found: "_Found") -> int:
        """Moves types to where they are found most.

        Returns:
            How many of those moved that are found in more than `least` of the
            images of the class: of types that a class has not, the place means
            nothing.
        """
        layer = self._classes
        rows, columns, types = found.active.shape[1:]
        stride, offset = layer.stride, np.array(layer.offset)
        # How often a type is so far from the class, [j, 2h - 1, 2w - 1, t].
        sums = np.zeros((layer.num_capsules, 2 * rows, 2 * columns, types))
        counts = np.bincount(found.labels, minlength=layer.num_capsules)
        cells = np.rint((found.places - offset) / stride).astype(int)
        for active, (row, column), label in zip(
            found.active, cells, found.labels, strict=True
        ):
            down = slice(rows - row, 2 * rows - row)
            right = slice(columns - column, 2 * columns - column)
            sums[label, down, right] += active
        shares = sums / np.maximum(counts, 1)[:, None, None, None]
        # Around a lone part of presence 1 the filter's largest value is 1.
        shares = (
            2.0 * np.pi * gaussian_filter(shares, (0, 1, 1, 0), mode="constant")
        )
        down, right = (stride * (np.arange(2 * n) - n) for n in (rows, columns))
        shifts = np.array(ops.convert_to_numpy(layer.shifts))
        moved = 0
        for j in np.flatnonzero(counts):
            share = shares[j]
            free = np.ones(types, bool)
            while free.any():  # the one that is found most often first
                row, column, t = np.unravel_index(
                    (share * free).argmax(), share.shape
                )
                place = np.array([down[row], right[column]])
                far = np.linalg.norm(place - shifts[t, j]) > _JUMP
                if far and share[row, column, t] > _LEAST_SHARE:
                    shifts[t, j] = place
                    moved += bool(share[row, column, t] > self.least)
                free[t] = False
                away = np.hypot(down[:, None] - place[0], right - place[1])
                share = share * (away > self.apart)[..., None]
        layer.blueprint.assign(shifts / layer.side)
        return moved

    def _keep_slots(self, found: "_Found") -> None:
        """Leaves a class the types that are found in it often enough."""
        layer = self._classes
        rows, columns, types = found.active.shape[1:]
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
        sums = np.zeros((types, layer.num_capsules))
        for active, place, label in zip(
            found.active, found.places, found.labels, strict=True
        ):
            wanted = place + shifts[:, label]  # [t, 2]
            apart = np.sum((grid[:, :, None] - wanted) ** 2, axis=-1)
            near = active * np.exp(-0.5 * apart / width**2)
            sums[:, label] += np.minimum(near.sum(axis=(0, 1)), 1.0)
        counts = np.bincount(found.labels, minlength=layer.num_capsules)
        rates = sums / np.maximum(counts, 1)
        self.rates = rates
        layer.slots.assign((rates > self.least).astype("float32"))


class _Found(NamedTuple):
    """What was found in some images.

    Attributes:
        active: Activations `[n, h, w, t]` of soft competition.
        places: Row and column `[n, 2]` of the image's own class, in pixels.
        labels: Classes `[n]`.
    """

    active: Array
    places: Array
    labels: Array


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
