"""Gradients of class lengths with respect to an input of a model."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import is_routed, same_layers
from tfcaps.ops import Tensor, towards_class

Array = NDArray[Any]


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
                "use `tfcaps.rem.occlusion`, which needs no gradients."
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
