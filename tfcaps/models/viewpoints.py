"""Networks of parts that know an object at any angle and size."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import graphs
from tfcaps.layers import ConstellationCaps, PartCaps
from tfcaps.ops import Tensor, check_positive, longest

# Where it is sought whether something is there at all, presences count by this
# power: at another angle a detector is less sure, but not silent.
_POWER, _MISSED = 0.4, 0.01
# Constellations that are moved to what lies near them, how often, and the
# deviation in pixels within which something is near.
_TRACED, _MOVES, _NEAR = 12, 2, 1.5
# Pixels, and the share of the size, that two views must differ.
_ALIKE_PLACE, _ALIKE_TURN = 3.0, 0.2
_UPRIGHT = np.array([1.0, 0.0], "float32")  # cosine and sine


def points(pose: Tensor, blueprint: Tensor) -> Tensor:
    """Returns where the parts of constellations stand, in pixels.

    Args:
        pose: `[..., 4]`: row and column of the blueprint's middle, and its size
            times cosine and sine of its angle.
        blueprint: Rows and columns of parts from the middle, `[..., t, 2]`.

    Returns:
        `[..., t, 2]`.
    """
    place, turn = pose[..., None, :2], pose[..., None, 2:]
    across = ops.flip(blueprint, axis=-1) * np.array([-1, 1], "float32")
    return place + turn[..., :1] * blueprint + turn[..., 1:] * across


def with_viewpoints(
    model: keras.Model,
    turns: int = 24,
    sizes: Sequence[float] = (0.75, 1.0, 1.33),
    views: int = 3,
) -> keras.Model:
    """Returns a network that knows the same objects at any angle and size.

    Nothing is trained anew. Whether something is at a place is known at any
    angle, though not what: the blueprints of the classes are laid on these
    places in `turns` directions and `sizes`, the best are moved to what lies
    near them, and the `views` best are looked at: the image is turned back, so
    that the object stands upright in its middle, and `model` says what it is.
    The view with the most evidence for a class counts, and so does the image as
    it is; only that one is routed.

    Args:
        model: A functional model with one `PartCaps` and one
            `ConstellationCaps`, trained on upright objects.
        turns: Int. Directions that are tried. Defaults to `24`.
        sizes: Sizes that are tried, 1 as in training. Defaults to `(0.75, 1,
            1.33)`.
        views: Int. Views that are looked at. Defaults to `3`.

    Returns:
        A functional model from images `[b, h, w, c]` to a dict: `lengths`
        `[b, j]`; `viewpoint` `[b, 4]`, row and column of the object's middle in
        pixels, its angle in degrees against the clock, and its size.

    Raises:
        ValueError: If the model has not one of each of these layers, or a
            number is out of range.

    References:
        - Ballard, 1981, "Generalizing the Hough transform to detect arbitrary
          shapes"
    """
    model = graphs.encoder(model)
    layer = Viewpoints(model, turns, sizes, views, name="viewpoints")
    lengths, viewpoint = layer(images := keras.Input(model.input.shape[1:]))
    outputs = {
        name: keras.layers.Identity(name=name)(tensor)
        for name, tensor in (("lengths", lengths), ("viewpoint", viewpoint))
    }
    return keras.Model(images, outputs, name=f"{model.name}_viewpoints")


@keras.saving.register_keras_serializable(package="tfcaps")
class Viewpoints(keras.layers.Layer):
    """Looks at images from the viewpoints at which something may stand.

    Args:
        model: As in `with_viewpoints`, whose other arguments these are too.
        turns: Int.
        sizes: Sequence of floats.
        views: Int.
        **kwargs: Arguments of `keras.layers.Layer`.

    Output shape:
        Lengths `[b, j]`, and the viewpoint `[b, 4]`.
    """

    def __init__(
        self,
        model: keras.Model,
        turns: int = 24,
        sizes: Sequence[float] = (0.75, 1.0, 1.33),
        views: int = 3,
        **kwargs: Any,
    ):
        check_positive(turns=turns, views=views)
        tried = turns * len(sizes)
        if not sizes or min(sizes) <= 0 or views > tried:
            raise ValueError(
                "`sizes` must be above 0, and `views` at most turns times "
                f"sizes. Received: sizes={tuple(sizes)}, views={views}, "
                f"turns={turns}."
            )
        super().__init__(**kwargs)
        self.model = model
        self.turns, self.views = turns, views
        self.sizes = tuple(float(size) for size in sizes)
        self._parts = graphs.only_layer(model, PartCaps)
        self._classes = graphs.only_layer(model, ConstellationCaps)
        self._features = keras.Model(model.input, self._parts.input)
        _, self._above = graphs.cut(model, self._classes)
        angles = np.repeat(2 * np.pi * np.arange(turns) / turns, len(sizes))
        turn = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        scale = np.tile(self.sizes, turns)[:, None]
        self._turns = (scale * turn).astype("float32")  # [h, 2]

    def call(self, images: Tensor) -> Any:
        images = ops.cast(images, "float32")
        features = self._features(images)
        blueprints, slots, middle = self._blueprints()
        presence = self._parts.presence(features)
        pose = self._found(1.0 - presence[..., -1], blueprints, slots)
        views = _seen_from(images, pose, self.model.input.shape[1:3])
        seen = self._parts(self._features(views))
        parts = self._parts(features)
        # Only of the view with the most evidence the parts are routed.
        strength, place = self._as_it_is(parts, middle)
        others = self._in_the_middle(seen, blueprints)
        best = longest(ops.concatenate([strength, others], axis=1))

        def chosen(own: Tensor, other: Tensor) -> Tensor:
            """Returns one of `[b, ...]` and `[b * views, ...]` as it is."""
            other = ops.reshape(other, (-1, self.views, *own.shape[1:]))
            every = ops.concatenate([own[:, None], other], axis=1)
            index = ops.reshape(best, (-1, *[1] * (len(every.shape) - 1)))
            return ops.take_along_axis(every, index, axis=1)[:, 0]

        routed = [chosen(*pair) for pair in zip(parts, seen, strict=True)]
        upright = ops.concatenate([place, 0 * place + _UPRIGHT], axis=-1)
        pose = chosen(upright, pose)
        size = ops.sqrt(ops.sum(ops.square(pose[:, 2:]), axis=1))
        angle = ops.arctan2(pose[:, 3], pose[:, 2]) * (180 / np.pi)
        found = ops.stack([angle, size], axis=-1)
        return self._above(routed), ops.concatenate([pose[:, :2], found], 1)

    def _as_it_is(
        self, parts: list[Tensor], middle: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the most evidence `[b, 1]`, and where it is, `[b, 2]`."""
        evidence, anchors = self._classes.evidence_map(*parts)  # [b, j, x]
        places = anchors(longest(evidence)) + middle
        evidence = ops.max(evidence, axis=-1)
        kind = longest(evidence)[:, None, None]
        return (
            ops.max(evidence, axis=-1, keepdims=True),
            ops.take_along_axis(places, kind, axis=1)[:, 0],
        )

    def _in_the_middle(self, seen: list[Tensor], blueprints: Tensor) -> Tensor:
        """Returns the most evidence `[b, views]` in the middle of views."""
        near = [
            (side - 1) / 2 + self._parts.stride * np.arange(-1.0, 2.0)
            for side in self.model.input.shape[1:3]
        ]
        shifts = ops.transpose(blueprints, (1, 0, 2))
        evidence, _ = self._classes.evidence_map(*seen, shifts, near)
        return ops.reshape(ops.max(evidence, axis=(1, 2)), (-1, self.views))

    def _blueprints(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns places `[j, t, 2]` about their middle, slots, and it."""
        slots = ops.transpose(ops.clip(self._classes.slots, 0.0, 1.0))  # [j, t]
        places = ops.transpose(self._classes.shifts, (1, 0, 2))  # [j, t, 2]
        total = ops.maximum(ops.sum(slots, axis=-1), 1.0)[:, None]
        middle = ops.sum(slots[..., None] * places, axis=1) / total
        return places - middle[:, None], slots, middle

    def _found(
        self, present: Tensor, blueprints: Tensor, slots: Tensor
    ) -> Tensor:
        """Returns the most likely poses of any class, `[b, views, 4]`."""
        pose, kind = self._tried(present, blueprints, slots)
        blueprint = ops.take(blueprints, kind, axis=0)  # [b, k, t, 2]
        wanted = ops.take(slots, kind, axis=0)  # [b, k, t]
        score = self._score(present, points(pose, blueprint), wanted)
        moved = pose
        for _ in range(_MOVES):
            moved = self._moved(present, moved, blueprint, wanted)
            again = self._score(present, points(moved, blueprint), wanted)
            pose = ops.where((again > score)[..., None], moved, pose)
            score = ops.maximum(score, again)
        seen = []
        for _ in range(self.views):
            best = longest(score)[:, None, None]
            seen.append(ops.take_along_axis(pose, best, axis=1))
            score = ops.where(_alike(pose, seen[-1]), -1e9, score)
        return ops.concatenate(seen, axis=1)

    def _tried(
        self, present: Tensor, blueprints: Tensor, slots: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the best of all directions and sizes, and their classes."""
        _, rows, columns = present.shape
        border = np.array([rows // 16, columns // 16])
        cells = np.indices((rows, columns) - 2 * border).reshape(2, -1).T
        cells += border
        # Every other place is near enough, as the best are moved.
        cells = cells[cells.sum(axis=-1) % 2 == 0]  # [g, 2]
        fine = ops.image.resize(
            present[..., None],
            (2 * rows, 2 * columns),
            data_format="channels_last",
        )[..., 0]
        padded = ops.pad(self._likelihood(fine), [[0, 0], [1, 1], [1, 1]])
        # The batch last: a constellation is a few sums of whole rows. In whole
        # numbers, whose largest Keras finds in a third of the time.
        flat = ops.transpose(
            ops.reshape(padded, (-1, (2 * rows + 2) * (2 * columns + 2)))
        )
        flat = ops.cast(1e5 * flat, "int32")
        turns = np.pad(self._turns, ((0, 0), (2, 0)))  # at the origin, [h, 4]
        offsets = points(turns[:, None], blueprints)
        steps = ops.round(2 * offsets / self._parts.stride + 0.5)
        # Of a part that a class lacks the padding counts, which is 0.
        steps = ops.where(slots[..., None] > 0.5, steps, -1e6)
        steps = ops.cast(steps, "int32")[:, None]  # [h, 1, j, t, 2]
        classes, types = slots.shape
        evidence: Any = 0
        for t in range(types):
            down, right = (
                ops.clip(
                    2 * cells[:, None, axis] + 1 + steps[..., t, axis],
                    0,
                    2 * count + 1,
                )
                for axis, count in enumerate((rows, columns))
            )
            index = down * (2 * columns + 2) + right  # [h, g, j]
            evidence = evidence + ops.take(flat, index, axis=0)
        tried = len(self._turns)
        evidence = ops.reshape(evidence, (tried, len(cells) * classes, -1))
        most = ops.transpose(ops.max(evidence, axis=1))  # [b, h]
        which = ops.transpose(ops.argmax(evidence, axis=1))
        _, traced = ops.top_k(ops.cast(most, "float32"), min(_TRACED, tried))
        which = ops.take_along_axis(which, ops.cast(traced, which.dtype), 1)
        place = self._first + self._parts.stride * cells
        place = ops.take(place.astype("float32"), which // classes, axis=0)
        turn = ops.take(self._turns, traced, axis=0)
        return ops.concatenate([place, turn], axis=-1), which % classes

    @property
    def _first(self) -> Any:
        return np.array(self._parts.offset, "float32")

    def _likelihood(self, present: Tensor) -> Tensor:
        """Returns the log-likelihood ratio that a part is there."""
        seen = ops.power(ops.clip(present, 1e-6, 1.0), _POWER)
        return ops.log(_MISSED + (1 - _MISSED) * seen) - np.log(_MISSED)

    def _score(self, present: Tensor, points: Tensor, wanted: Tensor) -> Tensor:
        """Returns the evidence `[b, k]` of parts at points `[b, k, t, 2]`."""
        _, rows, columns = present.shape
        ratio = ops.reshape(self._likelihood(present), (-1, rows * columns))
        at = (points - self._first) / self._parts.stride
        most = np.array([rows - 1, columns - 1], "float32")
        total: Any = 0.0
        for shift in np.ndindex(2, 2):
            corner = ops.floor(at) + np.array(shift, "float32")
            inside = ops.all((corner >= 0) & (corner <= most), axis=-1)
            weight = ops.prod(1.0 - ops.abs(at - corner), axis=-1)
            cell = ops.cast(ops.clip(corner, 0, most), "int32")
            index = cell[..., 0] * columns + cell[..., 1]  # [b, k, t]
            flat = ops.reshape(index, (-1, math.prod(index.shape[1:])))
            value = ops.take_along_axis(ratio, flat, axis=1)
            value = ops.reshape(value, (-1, *index.shape[1:]))
            total = total + ops.where(inside, weight * value, 0.0)
        return ops.sum(wanted * total, axis=-1)

    def _moved(
        self, present: Tensor, pose: Tensor, blueprint: Tensor, wanted: Tensor
    ) -> Tensor:
        """Returns poses fitted to what is present near their parts."""
        _, rows, columns = present.shape
        cells = np.indices((rows, columns)).reshape(2, -1).T
        cells = (self._first + self._parts.stride * cells).astype("float32")
        expected = points(pose, blueprint)
        square = sum(
            ops.square(expected[..., axis, None] - cells[:, axis])
            for axis in (0, 1)
        )
        near = wanted[..., None] * ops.exp(square * (-0.5 / _NEAR**2))
        share = near / (ops.sum(near, axis=2, keepdims=True) + 1e-9)
        mass = near * share * ops.reshape(present, (-1, 1, 1, rows * columns))
        amount = ops.sum(mass, axis=-1, keepdims=True) + 1e-3
        target = (ops.matmul(mass, cells) + 1e-3 * expected) / amount
        weight = wanted[..., None] * ops.minimum(amount, 1.0)  # [b, k, t, 1]
        whole = ops.sum(weight, axis=2, keepdims=True) + 1e-9
        goal, own = (
            ops.sum(weight * x, axis=2, keepdims=True) / whole
            for x in (target, blueprint)
        )
        # The similarity of least squares, as complex numbers divide.
        to, of = target - goal, blueprint - own
        spread = ops.sum(weight * of * of, axis=(2, 3))[..., None] + 1e-9
        along = ops.sum(weight * to * of, axis=(2, 3))[..., None]
        across = ops.sum(
            weight[..., 0]
            * (to[..., 1] * of[..., 0] - to[..., 0] * of[..., 1]),
            axis=2,
        )[..., None]
        turn = ops.concatenate([along, across], axis=-1) / spread
        nowhere = ops.concatenate([0 * turn, turn], axis=-1)
        place = (goal - points(nowhere, own))[:, :, 0]
        return ops.concatenate([place, turn], axis=-1)

    def compute_output_spec(self, images: Any) -> Any:
        batch = images.shape[0]
        return tuple(
            keras.KerasTensor((batch, n), dtype="float32")
            for n in (self._classes.num_capsules, 4)
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "model": keras.saving.serialize_keras_object(self.model),
            "turns": self.turns,
            "sizes": self.sizes,
            "views": self.views,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Viewpoints":
        model = keras.saving.deserialize_keras_object(config["model"])
        return cls(**{**config, "model": model})


def _alike(one: Tensor, other: Tensor) -> Tensor:
    """Tells which poses show the same upright."""

    def lengths(apart: Tensor) -> Tensor:
        return ops.sqrt(ops.sum(ops.square(apart), axis=-1))

    apart, size = one - other, lengths(other[..., 2:])
    near = lengths(apart[..., :2]) < _ALIKE_PLACE
    return near & (lengths(apart[..., 2:]) < _ALIKE_TURN * size)


def _seen_from(images: Tensor, pose: Tensor, shape: Any) -> Tensor:
    """Returns images `[b * k, h, w, c]` with what stands there upright."""
    rows, columns = shape
    row, column, cosine, sine = (pose[..., k] for k in range(4))
    down, right = (rows - 1) / 2, (columns - 1) / 2
    nothing = 0 * cosine
    # From a pixel (x, y) of the view to one of the image.
    to_image = ops.stack(
        [
            *(cosine, sine, column - cosine * right - sine * down),
            *(-sine, cosine, row + sine * right - cosine * down),
            *(nothing, nothing),
        ],
        axis=-1,
    )
    return ops.image.affine_transform(
        ops.repeat(images, pose.shape[1], axis=0),
        ops.reshape(to_image, (-1, 8)),
        interpolation="bilinear",
        fill_mode="nearest",
        data_format="channels_last",
    )
