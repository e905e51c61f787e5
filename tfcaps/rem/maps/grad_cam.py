"""Grad-CAM: where features make a class longer."""

import itertools
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from tfcaps.graphs import same_layers
from tfcaps.rem.maps.class_scores import Array, ClassScores, full_batches
from tfcaps.rem.maps.explanation import saliency_map
from tfcaps.rem.maps.gradients import ClassGradients, with_full_gradients
from tfcaps.rem.parse.receptive_fields import feature_centres


def grad_cam(
    model: keras.Model,
    images: Array,
    classes: ArrayLike | None = None,
    *,
    layer: str | None = None,
    batch_size: int = 128,
) -> Array:
    """Returns where features make a class longer.

    `max(0, sum_c w_c A_mnc)` of features A. The weight `w_c` is the mean over
    positions of the gradient of the class's length with respect to `A_mnc`,
    which goes through the couplings too. Each value is drawn at the centre of
    what the feature sees, and pixels between centres are interpolated, as in
    `saliency_map`.

    Args:
        model: As in `integrated_gradients`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        layer: Name of the layer that makes the features, `[b, rows, columns,
            c]`. Defaults to the last one below the capsules.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Array `[n, h, w]`, float32, not negative.

    Raises:
        ValueError: If there is no such layer, an argument is out of range, or
            the backend is neither TensorFlow nor JAX.

    References:
        - Selvaraju et al., 2017, https://arxiv.org/abs/1610.02391
    """
    scores = ClassScores(model, images, classes, batch_size)
    return grad_cam_of(scores, layer)


def grad_cam_of(scores: ClassScores, layer: str | None = None) -> Array:
    """`grad_cam` for given scores."""
    network, delta = _with_features(scores.network, layer)
    gradients = ClassGradients(network, at=1)
    features = keras.Model(network.inputs[0], network.output["features"])
    centres = feature_centres(features)
    maps = []
    for image, new in full_batches(len(scores.images), scores.batch_size):
        shown = scores.images[image]
        zeros = np.zeros((len(shown), *delta), np.float32)
        outputs, slopes = gradients([shown, zeros], scores.classes[image])
        weights = np.mean(slopes, axis=(1, 2), keepdims=True)
        grid = np.sum(weights * outputs["features"], axis=-1, keepdims=True)
        positive = np.maximum(grid, 0.0).astype(np.float32)
        drawn = saliency_map(
            ops.convert_to_tensor(positive),
            ops.ones_like(positive),
            shown.shape[1:3],
            centres=centres,
        )
        maps.append(ops.convert_to_numpy(drawn)[:new])
    return np.concatenate(maps)


def has_features(network: keras.Model) -> bool:
    """Tells whether `grad_cam` finds a layer by itself."""
    return bool(_below_capsules(network))


def _with_features(
    model: keras.Model, name: str | None
) -> tuple[keras.Model, tuple[int, ...]]:
    """Returns a model that shows features, and takes what is added to them.

    From images and an addition to a dict of `lengths` and `features`, and the
    shape of the addition. The gradient with respect to it is that with respect
    to the features, also where other paths lead past them.
    """
    chosen = _feature_layer(model, name)
    shape = tuple(chosen.output.shape[1:])
    if None in shape:
        raise ValueError(
            f"{model.name!r} must take images of a known size. Received: "
            f"features of shape {(None, *shape)}."
        )
    delta = keras.Input(shape, dtype=chosen.output.dtype, name="delta")
    features: list[Any] = []

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = layer(*args, **kwargs)
        if layer is not chosen:
            return outputs
        features.append(outputs)
        return keras.layers.Add(dtype=outputs.dtype)([outputs, delta])

    network = with_full_gradients(model)
    both = keras.Model([network.input, delta], network.output)
    copy = same_layers(both, call)
    outputs = {"lengths": copy.output, "features": features[-1]}
    return keras.Model(copy.input, outputs), shape


def _feature_layer(model: keras.Model, name: str | None) -> Any:
    """Returns the layer of that name, or the last one below the capsules."""
    found = [layer for layer in model.layers if _makes_features(layer)]
    if name is not None:
        for layer in found:
            if layer.name == name:
                return layer
        raise ValueError(
            "`layer` must be one that makes features [b, rows, columns, c]: "
            f"{', '.join(layer.name for layer in found)}. Received: "
            f"layer={name!r}."
        )
    below = _below_capsules(model)
    if not below:
        raise ValueError(
            f"The model {model.name!r} has no features [b, rows, columns, c] "
            "below its capsules, so there is no Grad-CAM of it. Name a `layer` "
            "that makes some, or use another map."
        )
    return below[-1]


def _below_capsules(model: keras.Model) -> list[Any]:
    """Returns the layers that make features before any makes another thing."""
    layers = [x for x in model.layers if not _is_input(x)]
    return list(itertools.takewhile(_makes_features, layers))


def _is_input(layer: Any) -> bool:
    return isinstance(layer, keras.layers.InputLayer)


def _makes_features(layer: Any) -> bool:
    output = layer.output
    return (
        not _is_input(layer)
        and hasattr(output, "shape")
        and len(output.shape) == 4
    )
