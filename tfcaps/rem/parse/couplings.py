"""Models that quantise couplings, and models that return them."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfcaps import graphs
from tfcaps.layers import Length
from tfcaps.ops import (
    Tensor,
    as_float32,
    check_mode,
    check_that,
    is_integer,
    towards_class,
)
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold

# One number for all layers, or one for each; `None` does not round a layer.
Levels = int | Sequence[int | None]


def layer_levels(
    routed: Sequence[Any], levels: Levels, *, most: int | None = None
) -> dict[str, int]:
    """Returns the levels of each layer that rounds its couplings, by its name.

    Without a highest number, `most`, a layer whose number is `None` does not.
    """
    names = [r.name for r in routed if getattr(r, "quantizable", True)]
    is_one = isinstance(levels, str) or not isinstance(levels, Sequence)
    # One number is checked in any case.
    each: Any = [levels] * max(len(names), 1) if is_one else levels
    if not is_one and len(each) != len(names):
        raise ValueError(
            f"`levels` must be one number, or one for each of the {len(names)} "
            f"layers {names}. Received: levels={tuple(each)}."
        )
    if most is None and not is_one:
        rounds = [count is not None for count in each]
        names = [*itertools.compress(names, rounds)]
        each = [*itertools.compress(each, rounds)]
    for count in each:
        if not (is_integer(count) and 2 <= count <= (most or count)):
            wanted = "at least 2" if most is None else f"in [2, {most}]"
            raise ValueError(
                f"`levels` must be {wanted}, and whole. Received: "
                f"levels={count}."
            )
    return dict(zip(names, map(int, each), strict=False))


def cut_below_rounding(network: keras.Model) -> tuple[keras.Model, keras.Model]:
    """Returns the part of a network that no rounding changes, and the rest."""
    layers = graphs.routed_layers(network)
    names = layer_levels(layers, 2)
    lowest = next((x for x in layers if x.name in names), layers[-1])
    return graphs.cut(network, lowest, first=True)


def quantize_couplings(
    model: keras.Model, levels: Levels, *, mode: str = "midtread"
) -> keras.Model:
    """Returns a copy of a model whose couplings take `levels` values.

    Routed layers round the couplings of their last iteration, see
    `tfcaps.rem.quantize`. Weights are copied.

    Args:
        model: A functional or sequential model with at least one routed layer.
        levels: Int, at least 2, for all routed layers but `ConvCaps3D`, whose
            couplings are too small for it; or a sequence with an int for each
            of these layers, from input to output, or `None` for one whose
            couplings stay as they are.
        mode: As in `tfcaps.rem.quantize`. Defaults to `"midtread"`.

    Returns:
        A `keras.Model` with the same inputs and outputs, but for those that
        `add_couplings` adds.

    Raises:
        ValueError: If the model has no routed layer, an argument does not fit,
            or the model has its own `train_step` that the copy would lose.
    """
    graphs.keep_pruned(model)
    model = graphs.without_couplings(model)
    chosen = layer_levels(graphs.routed_layers(model), levels)
    check_mode(mode)

    def copy_of(layer: Any) -> Any:
        config = layer.get_config()
        if graphs.is_routed(layer) and layer.name in chosen:
            settings = config.get("routing", {}).get("config", config)
            settings |= {"levels": chosen[layer.name], "mode": mode}
        return type(layer).from_config(config)

    return graphs.copied(model, copy_of)


def capsule_outputs(
    model: keras.Model, *, couplings: bool = True
) -> keras.Model:
    """Returns a model that shows what the last routed layer does.

    It shares the layers, and so the weights, of `model`.

    Args:
        model: A functional or sequential model from images to class lengths
            `[b, j]`, or to class poses `[b, j, d]`, see `classifier`.
        couplings: Bool. Show couplings too. Defaults to `True`.

    Returns:
        A functional model with the same input images and the outputs `lengths`
        `[b, j]`, `poses` `[b, j, d]` and `couplings` `[b, i, j]`, a dict.

    Raises:
        ValueError: If the model has no routed layer.
    """
    copy, shown = _with_last_shown(
        graphs.classifier(model), couplings=couplings
    )
    return keras.Model(copy.input, shown_outputs(copy, shown))


def add_couplings(
    model: keras.Model, *, ramp_steps: int = 0, counterfactual: bool = False
) -> keras.Model:
    """Returns the model with one more output, `couplings`, to train on.

    It shares the layers, and so the weights, of `model`. Train it with
    `tfcaps.losses.CouplingLoss` on that output, and use `model` afterwards.
    With `counterfactual` there is a second new output, for
    `tfcaps.losses.CounterfactualLoss`. Either loss may be left out.

    Args:
        model: A functional or sequential model with a routed layer and the
            output `lengths`, alone or among others.
        ramp_steps: Int. Training steps over which the gradient of the couplings
            grows linearly from 0 to its full size, so that capsules learn to
            tell the classes apart before a loss of large weight acts on them.
            Defaults to 0, the full size from the start.
        counterfactual: Bool. Also route without the tree of the longest class
            and with that tree alone. Needs a `tfcaps.layers.ClassCaps` as the
            last routed layer. Defaults to `False`.

    Returns:
        A functional model with the same inputs and a dict of outputs: those of
        `model`, `couplings` `[b, i, j]` of its last routed layer, and with
        `counterfactual` the output of that name, `[b, 3, j]`, which
        `tfcaps.losses.CounterfactualLoss` explains.

    Raises:
        ValueError: If the model has no routed layer, or an output `couplings`
            already, or an argument does not fit it, or it has its own
            `train_step` and its class is not made of inputs and outputs.
    """
    given = model
    graphs.check_kind(given)
    model = graphs.functional(model)
    if isinstance(model.output, dict) and "couplings" in model.output:
        raise ValueError(
            f"The model {model.name!r} has an output `couplings` already; "
            "train on that one."
        )
    last = graphs.last_routed_layer(model)
    if counterfactual and not graphs.makes_classes(last):
        raise ValueError(
            "`counterfactual` needs fully connected capsules, "
            "`tfcaps.layers.ClassCaps`, as the last routed layer. Received: a "
            f"model that ends in a {type(last).__name__}."
        )
    copy, shown = _with_last_shown(model, counterfactual=counterfactual)
    outputs = copy.output
    if not isinstance(outputs, dict):
        outputs = {"lengths": graphs.pick_tensor(outputs, "lengths")}
    outputs = {**outputs}
    for name in graphs.TO_TRAIN_ON[: 1 + counterfactual]:
        outputs[name] = shown[name]
        if ramp_steps:
            ramp = GradientRamp(ramp_steps, dtype="float32")
            outputs[name] = ramp(shown[name])
    return graphs.of_same_kind(given, copy.input, outputs)


def shown_outputs(
    model: keras.Model, shown: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns lengths, and poses and couplings of the last routed layer."""
    lengths, sizes = model.outputs[0], shown["poses"].shape[1:-1]
    if len(lengths.shape) != 2:
        lengths = Length(dtype="float32")(shown["poses"])
    elif None not in sizes and lengths.shape[1] != math.prod(sizes):
        raise ValueError(
            f"The outputs of {model.name!r} must be one for each capsule of "
            f"its last routed layer. Received: {lengths.shape[1]} outputs and "
            f"{math.prod(sizes)} capsules. End the network with capsules for "
            "the classes, and `tfcaps.layers.Length`."
        )
    elif mixing := graphs.matrix_between(shown["poses"], lengths):
        raise ValueError(
            f"The outputs of {model.name!r} must be one for each capsule of "
            "its last routed layer, each of its own capsule. Received: outputs "
            f"that {mixing!r} mixes from all capsules. Leave it out."
        )
    return {"lengths": lengths, **shown}


def _with_last_shown(
    model: keras.Model, *, couplings: bool = True, counterfactual: bool = False
) -> tuple[keras.Model, dict[str, Tensor]]:
    """Returns a copy of a model, and what its last routed layer does in it."""
    last = graphs.last_routed_layer(model)
    graphs.check_called_once(model, last)
    shown: dict[str, Tensor] = {}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer is not last:
            return layer(*args, **kwargs)
        if not couplings:
            outputs = layer(*args, **kwargs)
        elif counterfactual:
            both = WithCouplings(layer, counterfactual=True)
            *results, shown["couplings"], asked = both(*args, **kwargs)
            shown["counterfactual"] = asked
            outputs = tuple(results) if results[1:] else results[0]
        else:
            outputs, shown["couplings"] = with_couplings(layer, args, kwargs)
        shown["poses"] = keras.tree.flatten(outputs)[0]
        return outputs

    return graphs.clone_with_call(model, call), shown


@keras.saving.register_keras_serializable(package="tfcaps")
class GradientRamp(keras.layers.Layer):
    """Passes on its inputs, and a share of their gradient that grows to 1.

    Steps are counted by a weight, which back-ups have, on every backend.
    """

    def __init__(self, ramp_steps: int, **kwargs: Any):
        check_that(ramp_steps >= 1, "be at least 1", ramp_steps=ramp_steps)
        super().__init__(**kwargs)
        self.ramp_steps = ramp_steps

    def build(self, input_shape: Any) -> None:
        self.step = self.add_weight(
            shape=(),
            initializer="zeros",
            dtype="int32",
            trainable=False,
            aggregation="only_first_replica",
            name="step",
        )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training:
            return inputs
        share = ops.cast(self.step, inputs.dtype) / self.ramp_steps
        # It stays at 1.
        self.step.assign(ops.minimum(self.step + 1, self.ramp_steps))
        constant = ops.stop_gradient(inputs)
        return constant + share * (inputs - constant)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ramp_steps": self.ramp_steps}


def with_couplings(layer: Any, args: Any, kwargs: Any) -> tuple[Any, Tensor]:
    """Calls a routed layer, and returns its outputs and its couplings."""
    *outputs, couplings = WithCouplings(layer)(*args, **kwargs)
    return (tuple(outputs) if outputs[1:] else outputs[0]), couplings


@keras.saving.register_keras_serializable(package="tfcaps")
class WithCouplings(keras.layers.Layer):
    """Calls a routed layer and also returns its couplings.

    Keras 3.15 builds no functional model in which a layer that returned one
    output before returns two, so a layer of its own makes the second call.

    With `counterfactual` the last output is what `CounterfactualLoss` takes.
    Only the first half of a batch is routed again, in turn without the tree of
    the longest parent and with it alone. Silenced children have pose and
    activation 0 for two images, and the means of the batch for the next two.
    """

    # By which `tfcaps.graphs` finds the layer inside.
    shows_couplings = True

    def __init__(self, layer: Any, counterfactual: bool = False, **kwargs: Any):
        super().__init__(**{"dtype": layer.dtype_policy, **kwargs})
        self.layer = layer
        self.counterfactual = counterfactual

    def call(
        self, inputs: Tensor, activations: Tensor | None = None, **kwargs: Any
    ) -> Any:
        arguments = _also(activations, kwargs)
        if not self.counterfactual:
            return self.layer(inputs, **arguments)
        *outputs, couplings = self.layer(
            inputs, **{**arguments, "return_activations": True}
        )
        lengths = outputs[1]
        if not kwargs.get("return_activations"):
            del outputs[1]
        asked = self._asked(inputs, activations, couplings, lengths)
        return (*outputs, couplings, asked)

    def _asked(
        self, inputs: Tensor, activations: Any, couplings: Tensor, lengths: Any
    ) -> Tensor:
        """Returns the output `counterfactual`, see `CounterfactualLoss`."""
        batch = ops.shape(inputs)[0]
        count = (batch + 1) // 2
        places = ops.arange(count)
        is_alone, is_mean = places % 2 == 1, places // 2 % 2 == 1
        longest = ops.argmax(lengths[:count], axis=-1)
        towards = as_float32(towards_class(couplings[:count], longest))
        routing = graphs.routing_of(self.layer)
        threshold = tree_threshold(routing, couplings.shape[-1])
        # Constants: neither what is in a tree nor a mean has a gradient.
        tree = in_tree(towards, threshold)
        tree = ops.reshape(tree, (-1, *inputs.shape[1:-1]))
        stays = ops.equal(tree, _rows(is_alone, tree))

        def silence(tensor: Tensor, stays: Tensor) -> Tensor:
            mean = ops.stop_gradient(ops.mean(tensor, axis=0, keepdims=True))
            other = mean * ops.cast(_rows(is_mean, tensor), tensor.dtype)
            return ops.where(stays, tensor[:count], other)

        poses = silence(inputs, ops.expand_dims(stays, -1))
        if activations is not None:
            activations = silence(activations, stays)
        _, left = self.layer(poses, activations, return_activations=True)
        return _answers(as_float32(left), longest, is_alone, batch)

    def compute_output_spec(
        self, inputs: Any, activations: Any = None, **kwargs: Any
    ) -> Any:
        outputs = self.layer.compute_output_spec(
            inputs, **_also(activations, kwargs)
        )
        if not self.counterfactual:
            return outputs
        batch, _, parents = outputs[-1].shape
        spec = keras.KerasTensor((batch, 3, parents), dtype="float32")
        return (*outputs, spec)

    def inner_layers(self, input_shape: Any) -> list[Any]:
        return [(self.layer, input_shape)]  # without what is asked beside it

    def get_config(self) -> dict[str, Any]:
        layer = keras.saving.serialize_keras_object(self.layer)
        config = {"layer": layer, "counterfactual": self.counterfactual}
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WithCouplings":
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(**{**config, "layer": layer})


def _also(activations: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns call arguments that ask for couplings."""
    arguments = {**kwargs, "return_couplings": True}
    if activations is not None:
        arguments["activations"] = activations
    return arguments


def _rows(vector: Tensor, like: Tensor) -> Tensor:
    """Returns a number for each image, to be used beside `like`."""
    return ops.reshape(vector, (-1, *[1] * (len(like.shape) - 1)))


def _answers(
    lengths: Tensor, longest: Tensor, is_alone: Tensor, batch: Any
) -> Tensor:
    """Returns `[b, 3, j]`, with zeros for images that were not routed again."""
    count, parents = ops.shape(lengths)[0], lengths.shape[-1]
    kinds = ops.stack([ops.logical_not(is_alone), is_alone], axis=1)
    kinds = ops.cast(kinds, lengths.dtype)
    # A batch of one image has none for the second question.
    stand_for = ops.cast(batch, lengths.dtype) / ops.maximum(
        ops.sum(kinds, axis=0), 1.0
    )
    present = ops.one_hot(longest, parents, dtype=lengths.dtype)
    asked = ops.expand_dims(kinds * stand_for, -1) * ops.expand_dims(present, 1)
    answers = ops.concatenate([asked, ops.expand_dims(lengths, 1)], axis=1)
    rest = ops.zeros((batch - count, 3, parents), lengths.dtype)
    return ops.concatenate([answers, rest], axis=0)
