"""Networks whose components are constellations of strokes."""

from typing import Any

import keras
import numpy as np
from keras import ops

from examples.kanji.shared import SharedParts
from examples.strokes.shared import OFFSET, STRIDE, SharedStrokes
from tfcaps.ops import Tensor
from tfcaps.parts import ConstellationCaps

_FILTERS, _STRIDES = (16, 32, 32, 32, 32, 48), (1, STRIDE, 1, 1, 1, 1)
_STROKE_WINDOW = 3  # places in which there is one stroke of a type
_WINDOW = 7  # places in which there is one component of a type
_WIDTH = 2.5  # pixels by which a stroke may stand beside its place
_MISSED = 0.05  # likelihood of a stroke that is not found


class Components(keras.layers.Layer):
    """Finds components where their strokes stand as in their blueprints.

    With the activations `a_t(p)` of strokes, the likelihood of stroke `s` of a
    component at place `x`, which should stand at `x + o_s`, is

        m_s(x) = ε + (1 - ε) min(1, sum_p a_t(p) exp(-|p - x - o_s|^2 / 2 w^2))

    The evidence is the sum of `log m_s - log(ε) / 2`, the activation the
    geometric mean of `m_s`. Within a window a type stays active where it has
    the most evidence, if that is above 0. It competes with other types there:
    its activation is divided by e to the power of what the strongest of them
    has more evidence. So a stroke that was missed makes a component weaker, and
    the class decides. Two places in each direction become one.

    Args:
        strokes: The blueprints.

    Input shape:
        Activations of strokes `[b, h, w, t]`; `h` and `w` even.

    Output shape:
        Places `[b, h / 2, w / 2, k, 2]` in pixels, and activations `[b, h / 2,
        w / 2, k]`, as of `tfcaps.parts.PartCaps`.
    """

    def __init__(self, strokes: SharedStrokes, **kwargs: Any):
        super().__init__(**kwargs)
        self.strokes = strokes

    def call(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = inputs.shape[1:3]
        near = []
        for count, places in zip(
            (rows, columns), self.strokes.places.T, strict=True
        ):
            cells = STRIDE * np.arange(count)
            away = cells - cells[:, None] - places[:, None, None]  # p - x - o
            near.append(np.exp(-0.5 * (away / _WIDTH) ** 2).astype("float32"))
        of_slots = ops.take(inputs, self.strokes.types, axis=-1)
        mass = ops.einsum("syp,sxq,bpqs->byxs", *near, of_slots)
        logs = ops.log(_MISSED + (1.0 - _MISSED) * ops.minimum(mass, 1.0))
        parts = np.arange(self.strokes.parts.max() + 1)
        belongs = np.equal.outer(self.strokes.parts, parts).astype("float32")
        count = belongs.sum(axis=0)
        total = ops.matmul(logs, belongs)
        evidence = total - 0.5 * np.log(_MISSED) * count
        of_type = ops.max_pool(evidence, _WINDOW, 1, padding="same")
        most = ops.max(of_type, axis=-1, keepdims=True)
        wins = ops.cast((evidence >= of_type) & (evidence > 0.0), "float32")
        mean = total / np.maximum(count, 1.0)
        active = wins * ops.exp(mean + evidence - most)
        blocks = (-1, rows // 2, 2, columns // 2, 2, len(parts))
        active = ops.reshape(active, blocks)
        grid = np.indices((rows, columns), "float32").transpose(1, 2, 0)
        grid = (STRIDE * grid + OFFSET).reshape(*blocks[1:-1], 1, 2)
        there = ops.sum(active, axis=(2, 4))
        placed = ops.sum(ops.expand_dims(active, -1) * grid, axis=(2, 4))
        middle = grid.mean(axis=(1, 3))
        places = (placed + 1e-6 * middle) / (ops.expand_dims(there, -1) + 1e-6)
        return places, ops.minimum(there, 1.0)


def networks(
    shape: tuple[int, int, int],
    num_classes: int,
    parts: SharedParts,
    strokes: SharedStrokes,
) -> tuple[keras.Model, keras.Model]:
    """Builds a network of strokes, components and classes, and its detector.

    Returns:
        From images to lengths of classes, and from images to the presence of
        strokes `[b, h, w, t]`, which alone is trained, by `stroke_loss`.
    """
    layers = keras.layers
    features = images = keras.Input(shape, name="images")
    for channels, step in zip(_FILTERS, _STRIDES, strict=True):
        features = layers.Conv2D(
            channels, 3, step, padding="same", use_bias=False
        )(features)
        features = layers.BatchNormalization(momentum=0.9)(features)
        features = layers.ReLU()(features)
    logits = layers.Conv2D(
        strokes.num_types,
        1,
        bias_initializer=keras.initializers.Constant(-4.0),  # most have none
    )(features)
    presence = layers.Activation("sigmoid")(logits)
    most = layers.MaxPooling2D(_STROKE_WINDOW, 1, "same")(logits)
    active = layers.Lambda(strongest, name="strokes")([presence, logits, most])
    places, components = Components(strokes, name="components")(active)
    classes = ConstellationCaps(
        num_classes,
        width=3.0,
        epsilon=1e-3,
        stride=2 * STRIDE,
        offset=(OFFSET + STRIDE / 2, OFFSET + STRIDE / 2),
        max_parts=parts.most,
        name="class_caps",
    )
    _, lengths = classes(places, components, return_activations=True)
    parts.begin(classes)
    return keras.Model(images, lengths), keras.Model(images, presence)


def strongest(tensors: list[Tensor]) -> Tensor:
    """Returns the presence of strokes that are stronger than those around."""
    presence, logits, most = tensors
    return presence * ops.cast(logits >= most, presence.dtype)


def stroke_loss(cells: Tensor, presence: Tensor) -> Tensor:
    """Returns the cross-entropy of strokes that may cross, of each image.

    Args:
        cells: What `SharedStrokes.cells` returns, `[b, h, w, t]`.
        presence: How much each type is there, `[b, h, w, t]`.
    """
    there = ops.clip(presence, 1e-6, 1.0 - 1e-6)
    known = ops.cast(cells >= 0, "float32")
    costs = ops.where(cells > 0, -ops.log(there), -ops.log(1.0 - there) * known)
    axes = (1, 2, 3)
    return ops.sum(costs, axes) / ops.maximum(ops.mean(known, axes), 1e-6)
