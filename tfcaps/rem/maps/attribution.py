"""Attribution maps of any network: gradients, Grad-CAM and occlusion.

They know nothing of capsules, and are what maps of couplings are compared with.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from tfcaps.graphs import encoder, is_routed, same_layers
from tfcaps.layers import Length
from tfcaps.ops import Tensor, towards_class
from tfcaps.rem.batches import images_of, predict
from tfcaps.rem.finite import check_weights
from tfcaps.rem.labels import chosen_classes
from tfcaps.rem.maps.explanation import saliency_map
from tfcaps.rem.parse.receptive_fields import feature_centres

Array = NDArray[Any]

BLURRED = "blurred"
# Blurred images keep what is wider than this share of their longer side.
_BLUR = 1 / 8
# An occluded window is this share of an image's side.
_WINDOW = 1 / 8
# Batches from which it pays on TensorFlow to trace a network.
_MANY = 16


def integrated_gradients(
    model: keras.Model,
    images: Array,
    classes: ArrayLike | None = None,
    *,
    steps: int = 32,
    baseline: float | ArrayLike = 0.0,
    batch_size: int = 128,
) -> Array:
    """Returns maps of what each pixel adds to the length of a class.

    `(x - x') * mean_k dl/dx(x' + (k - 1/2) / steps * (x - x'))`, summed over
    channels, with the image x, the baseline x', the length l of the class, and
    k from 1 to `steps`. A map sums to `l(x) - l(x')`, but for the error of the
    sum over steps.

    Gradients go through the couplings too, whatever `gradient` the routing was
    trained with. Quantised couplings are constants, so maps of a network with
    such couplings do not sum to the difference.

    Args:
        model: A functional or sequential model from images to class lengths
            `[b, j]`, or to class poses `[b, j, d]`, as in `capsule_outputs`; a
            network without capsules serves too.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        steps: Int, at least 1. Points between baseline and image. Defaults to
            `32`.
        baseline: Number, or an image `[h, w, c]`, in which nothing is to be
            seen. Defaults to `0`, black.
        batch_size: Int. Most images that the model sees at once. Defaults to
            `128`.

    Returns:
        Array `[n, h, w]`, float32. Pixels that speak against the class are
        negative.

    Raises:
        ValueError: If an argument is out of range, or the backend is neither
            TensorFlow nor JAX.

    References:
        - Sundararajan, Taly, Yan, 2017, https://arxiv.org/abs/1703.01365
    """
    if steps < 1:
        raise ValueError(
            f"`steps` must be at least 1. Received: steps={steps}."
        )
    scores = ClassScores(model, images, classes, batch_size)
    return integrated_gradients_of(scores, steps, baseline)


def grad_cam(
    model: keras.Model,
    images: Array,
    classes: ArrayLike | None = None,
    *,
    layer: str | None = None,
    batch_size: int = 128,
) -> Array:
    """Returns maps of where features make a class longer.

    `max(0, sum_c w_c A_mnc)` of features A. The weight `w_c` is the mean over
    positions of the gradient of the class's length with respect to `A_mnc`,
    which goes through the couplings too. Each value is drawn at the centre of
    what the feature sees, and pixels between centres are interpolated, as in
    `saliency_map`.

    Args:
        model: As in `integrated_gradients`.
        images: As in `integrated_gradients`.
        classes: As in `integrated_gradients`.
        layer: Name of the layer that makes the features, `[b, rows, columns,
            c]`. Defaults to the last one below the capsules.
        batch_size: As in `integrated_gradients`.

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


def occlusion(
    model: keras.Model,
    images: Array,
    classes: ArrayLike | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    stride: int | tuple[int, int] | None = None,
    fill: float | str = 0.0,
    batch_size: int = 128,
) -> Array:
    """Returns maps of how much shorter a class gets with a window covered.

    A pixel's value is the mean, over all windows that contain it, of how much
    the class's length falls when the window is covered. This works on every
    backend.

    Args:
        model: As in `integrated_gradients`.
        images: As in `integrated_gradients`.
        classes: As in `integrated_gradients`.
        size: Int, or rows and columns of a window. Defaults to an eighth of the
            image, at least 1.
        stride: Int, or rows and columns from a window to the next, at most
            `size`. The last ones end where the image does. Defaults to half of
            the size, at least 1.
        fill: What covers a window: a number, or `"blurred"`. Defaults to `0`,
            black.
        batch_size: As in `integrated_gradients`.

    Returns:
        Array `[n, h, w]`, float32.

    Raises:
        ValueError: If an argument is out of range.

    References:
        - Zeiler, Fergus, 2014, https://arxiv.org/abs/1311.2901
    """
    scores = ClassScores(model, images, classes, batch_size)
    return occlusion_of(scores, size, stride, fill)


def lengths_of(model: keras.Model) -> keras.Model:
    """Returns the model from images to class lengths `[b, j]`."""
    model = encoder(model)
    lengths = model.output
    if len(lengths.shape) != 2:
        lengths = Length(dtype="float32")(lengths)
    return keras.Model(model.input, lengths, name=model.name)


class ClassScores:
    """A class of each image, its length, and that of changed images.

    Args:
        model: As in `tfcaps.rem.capsule_outputs`; a network without capsules
            serves too, its outputs are taken as lengths.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        batch_size: Int. Most images that the model sees at once.

    Attributes:
        network: The model from images to class lengths `[b, j]`.
        images: The images, float32.
        classes: Class `[n]` of each.
        full: Its length `[n]` when nothing is changed.
        batch_size: As given.

    Raises:
        ValueError: If images or classes have another shape, or there is no such
            class.
    """

    def __init__(
        self,
        model: keras.Model,
        images: Array,
        classes: ArrayLike | None = None,
        batch_size: int = 128,
    ):
        self.network = lengths_of(model)
        check_weights(self.network.weights)
        self.images = np.asarray(images_of(images, self.network), np.float32)
        if self.images.ndim != 4 or not len(self.images) or batch_size < 1:
            raise ValueError(
                "`images` must have the shape [n, h, w, c], with at least one "
                "image, and one in a batch. Received: "
                f"{self.images.shape}, batch_size={batch_size}."
            )
        self.batch_size = batch_size
        lengths = np.concatenate(
            [
                self._lengths(self.images[image])[:new]
                for image, new in full_batches(len(self.images), batch_size)
            ]
        )
        self.classes = _classes(classes, lengths)
        self.full = lengths[np.arange(len(lengths)), self.classes]

    def of_parts(
        self,
        count: int,
        kept: Callable[[Array, Array], NDArray[np.bool_]],
        fill: float | str = 0.0,
    ) -> Array:
        """Returns the lengths `[n, count]` of parts of the images.

        Images and parts are packed into full batches, so that the model is
        called as often for few images of many parts as for many of few.

        Args:
            count: Int. How many parts of each image there are.
            kept: From indices `[m]` of images and indices `[m]` of parts to the
                pixels `[m, h, w]` that stay.
            fill: The value of the other pixels: a number, or `"blurred"`.

        Raises:
            ValueError: If `fill` is neither.
        """
        filling = filled(self.images, fill)
        pairs = len(self.images) * count
        parts = []
        for pair, new in full_batches(pairs, self.batch_size):
            image, part = np.divmod(pair, count)
            stays = kept(image, part)[..., None]
            batch = np.where(stays, self.images[image], filling[image])
            lengths = self._lengths(batch, pairs > _MANY * self.batch_size)
            lengths = lengths[np.arange(len(image)), self.classes[image]]
            parts.append(lengths[:new])
        return np.concatenate(parts).reshape(-1, count)

    def _lengths(self, batch: Array, many: bool = False) -> Array:
        return np.asarray(predict(self.network, batch, compiled=many))


def full_batches(total: int, batch_size: int) -> Iterator[tuple[Array, int]]:
    """Yields indices below `total` in batches of one size.

    Each comes with how many of its indices are new: the last one is filled up,
    as other backends than TensorFlow compile a network for each size.
    """
    size = min(batch_size, total)
    for start in range(0, total, size):
        indices = np.arange(start, start + size)
        yield np.minimum(indices, total - 1), min(size, total - start)


def filled(images: Array, fill: float | str) -> Array:
    """Returns images `[n, h, w, c]` without anything to see.

    Args:
        images: Images of this shape.
        fill: A number that all pixels have, or `"blurred"`: a Gaussian filter
            whose deviation is an eighth of the longer side.

    Raises:
        ValueError: If `fill` is neither.
    """
    if isinstance(fill, str):
        if fill != BLURRED:
            raise ValueError(
                f"`fill` must be a number or {BLURRED!r}. Received: "
                f"fill={fill!r}."
            )
        width = _BLUR * max(images.shape[1:3])
        return ndimage.gaussian_filter(images, (0, width, width, 0))
    return np.full_like(images, fill)


def _classes(given: ArrayLike | None, lengths: Array) -> Array:
    if given is None:
        return np.argmax(lengths, axis=-1)
    return chosen_classes(given, *lengths.shape)


def integrated_gradients_of(
    scores: ClassScores, steps: int = 32, baseline: float | ArrayLike = 0.0
) -> Array:
    """`integrated_gradients` for given scores."""
    images = scores.images
    start = np.broadcast_to(np.asarray(baseline, np.float32), images.shape)
    network = with_full_gradients(scores.network)
    gradients = ClassGradients(
        keras.Model([network.input], {"lengths": network.output})
    )
    sums = np.zeros(images.shape, np.float64)
    for pair, new in full_batches(len(images) * steps, scores.batch_size):
        image, step = np.divmod(pair, steps)
        share = ((step + 0.5) / steps).astype(np.float32)[:, None, None, None]
        points = start[image] + share * (images[image] - start[image])
        _, slopes = gradients([points], scores.classes[image])
        np.add.at(sums, image[:new], slopes[:new])
    maps = (images - start) * (sums / steps)
    return np.sum(maps, axis=-1).astype(np.float32)


def occlusion_of(
    scores: ClassScores,
    size: int | tuple[int, int] | None = None,
    stride: int | tuple[int, int] | None = None,
    fill: float | str = 0.0,
) -> Array:
    """`occlusion` for given scores."""
    windows = _windows(scores.images.shape[1:3], size, stride)
    lengths = scores.of_parts(
        len(windows), lambda _, window: ~windows[window], fill
    )
    drops = scores.full[:, None] - lengths
    sums = np.einsum("nw,whv->nhv", drops, windows.astype(np.float32))
    return (sums / np.sum(windows, axis=0)).astype(np.float32)


def _windows(
    image_shape: tuple[int, ...],
    size: int | tuple[int, int] | None,
    stride: int | tuple[int, int] | None,
) -> NDArray[np.bool_]:
    """Returns the pixels `[windows, h, w]` of each window."""
    sizes = [max(1, round(_WINDOW * side)) for side in image_shape]
    if size is not None:
        sizes = list(np.broadcast_to(size, 2))
    strides = [max(1, s // 2) for s in sizes]
    if stride is not None:
        strides = list(np.broadcast_to(stride, 2))
    if any(
        not 1 <= s <= side or not 1 <= step <= s
        for s, side, step in zip(sizes, image_shape, strides, strict=True)
    ):
        raise ValueError(
            "`size` must be from 1 to the image's, and `stride` from 1 to "
            f"`size`. Received: size={size}, stride={stride}, images of "
            f"{image_shape[0]}x{image_shape[1]} pixels."
        )
    rows, columns = (
        _intervals(*axis)
        for axis in zip(image_shape, sizes, strides, strict=True)
    )
    windows = rows[:, None, :, None] & columns[None, :, None, :]
    return windows.reshape(-1, *image_shape)


def _intervals(side: int, size: int, stride: int) -> NDArray[np.bool_]:
    """Returns masks `[intervals, side]` of the pixels of each interval."""
    starts = [*range(0, side - size, stride), side - size]
    pixels = np.arange(side)
    return np.array([(a <= pixels) & (pixels < a + size) for a in starts])


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


def with_full_gradients(model: keras.Model) -> keras.Model:
    """Returns the same network, differentiated through its couplings.

    Outputs are the same. Routed layers whose gradients take couplings as
    constants are copied with their weights; all others are shared.
    """

    def copied(layer: Any) -> Any:
        if not is_routed(layer):
            return layer
        if getattr(layer.routing, "gradient", "full") == "full":
            return layer
        config = layer.get_config()
        settings = {**config["routing"]["config"], "gradient": "full"}
        config["routing"] = {**config["routing"], "config": settings}
        copy = type(layer).from_config(config)
        copy.build_from_config(layer.get_build_config())
        copy.set_weights(layer.get_weights())
        return copy

    return same_layers(model, _calling(copied))


class ClassGradients:
    """Differentiates the length of one class of each sample.

    Args:
        model: A functional model from a list of inputs to a dict with `lengths`
            `[b, j]`.
        at: Int. With respect to which of the inputs. Defaults to `0`.

    Raises:
        ValueError: If the backend is neither TensorFlow nor JAX.
    """

    def __init__(self, model: keras.Model, at: int = 0):
        backend = keras.backend.backend()
        makers = {"tensorflow": _tensorflow, "jax": _jax}
        if backend not in makers:
            raise ValueError(
                "Gradients of images need the TensorFlow or the JAX backend. "
                f"Received: {backend!r}. Set KERAS_BACKEND to one of them, or "
                "use `occlusion`, which needs no gradients."
            )
        self._differentiate = makers[backend](model, at)

    def __call__(
        self, inputs: list[Array], classes: Array
    ) -> tuple[dict[str, Array], Array]:
        """Returns the outputs, and the gradients of the lengths of classes.

        Args:
            inputs: All inputs of the model, `[b, ...]` each.
            classes: Class `[b]` of each sample.
        """
        tensors = [ops.convert_to_tensor(x) for x in inputs]
        chosen = ops.convert_to_tensor(classes.astype("int32"))
        results = self._differentiate(tensors, chosen)
        return keras.tree.map_structure(ops.convert_to_numpy, results)


def _calling(copied: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns a caller of layers that puts copies in place of some."""
    copies: dict[int, Any] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if id(layer) not in copies:  # it may be called more than once
            copies[id(layer)] = copied(layer)
        return copies[id(layer)](*args, **kwargs)

    return call


def _total(outputs: dict[str, Tensor], classes: Tensor) -> Tensor:
    """Returns the sum over samples of the length of its class."""
    lengths = ops.cast(outputs["lengths"], "float32")
    return ops.sum(towards_class(lengths, classes))


def _tensorflow(model: keras.Model, at: int) -> Callable[..., Any]:
    # Eagerly, as `predict_batches`: tracing takes longer than a few batches.
    def differentiate(inputs: list[Tensor], classes: Tensor) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(inputs[at])
            outputs = model(inputs, training=False)
            total = _total(outputs, classes)
        gradient = tape.gradient(
            total, inputs[at], unconnected_gradients="zero"
        )
        return outputs, gradient

    return differentiate


def _jax(model: keras.Model, at: int) -> Callable[..., Any]:
    import jax

    def total(
        x: Tensor, inputs: list[Tensor], classes: Tensor, *values: Any
    ) -> tuple[Tensor, Any]:
        given = [*inputs[:at], x, *inputs[at + 1 :]]
        outputs, _ = model.stateless_call(*values, given, training=False)
        return _total(outputs, classes), outputs

    compute = jax.jit(jax.value_and_grad(total, has_aux=True))

    def differentiate(inputs: list[Tensor], classes: Tensor) -> Any:
        values = [
            [variable.value for variable in variables]
            for variables in (
                model.trainable_variables,
                model.non_trainable_variables,
            )
        ]
        (_, outputs), gradient = compute(inputs[at], inputs, classes, *values)
        return outputs, gradient

    return differentiate
