"""Models that quantise couplings, and models that return them."""

from collections.abc import Callable
from typing import Any

import keras

from tfcaps.layers import Length
from tfcaps.ops import Tensor, check_mode
from tfcaps.rem.gradient_ramp import GradientRamp
from tfcaps.rem.layer_levels import Levels, layer_levels
from tfcaps.rem.with_couplings import with_couplings
from tfcaps.routing import Routing


def encoder(model: keras.Model) -> keras.Model:
    """Returns the part of a model from images to class lengths.

    That is the model itself, without a decoder and without the input `labels`
    from which a decoder or `RegularizedRouting` learns. It shares the layers,
    and so the weights.

    Args:
        model: A functional or sequential model. Of several inputs `images` is
            kept, of several outputs `lengths`, or the first of a list.

    Returns:
        A functional model of one input and one output, without optimiser.

    Raises:
        ValueError: If the model has several inputs or outputs and none of that
            name.
    """
    model = functional(model)
    images = _only(model.input, "images")
    lengths = _only(model.output, "lengths")
    if len(model.inputs) > 1:
        parts = keras.Model(model.input, lengths, name=model.name)
        parts = same_layers(parts, _without_labels)
        images, lengths = _only(parts.input, "images"), parts.output
    return keras.Model(images, lengths, name=model.name)


def functional(model: keras.Model) -> keras.Model:
    """Returns the model, or a functional one of a `keras.Sequential`.

    That has no `input` of its own before it is called.

    Raises:
        ValueError: If its layers are not known yet, or not from it.
    """
    is_sequential = isinstance(model, keras.Sequential)
    known = model.built if is_sequential else getattr(model, "inputs", None)
    if not known:
        raise ValueError(
            f"{model.name!r} must be a functional model, or a sequential one "
            "that is built, such as by a `keras.Input` as its first layer. "
            f"Received: {type(model).__name__}."
        )
    if not is_sequential:
        return model
    return keras.Model(model.inputs[0], model.outputs[0], name=model.name)


def quantize_couplings(
    model: keras.Model, levels: Levels, *, mode: str = "midtread"
) -> keras.Model:
    """Returns a copy of a model whose couplings take `levels` values.

    Routed layers round the couplings of their last iteration, see
    `tfcaps.rem.quantize`. Weights are copied; later changes of one model do not
    reach the other.

    Args:
        model: A functional or sequential model with at least one routed layer.
        levels: Int, at least 2, for all routed layers but `ConvCaps3D`, whose
            couplings are too small for it; a sequence with an int for each of
            these layers, from input to output; or a mapping from names of
            layers to ints, in which a `ConvCaps3D` may be named. Layers that it
            does not name stay as they are.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`. Defaults
            to `"midtread"`.

    Returns:
        A `keras.Model` with the same inputs and outputs.

    Raises:
        ValueError: If the model has no routed layer, or an argument is out of
            range or does not fit the layers.
    """
    chosen = layer_levels(routed_layers(model), levels)
    check_mode(mode)

    def copied(layer: Any) -> Any:
        if is_routed(layer) and layer.name in chosen:
            return _with_levels(layer, chosen[layer.name], mode)
        return type(layer).from_config(layer.get_config())

    copy = keras.models.clone_model(model, clone_function=copied)
    copy.set_weights(model.get_weights())
    return copy


def capsule_outputs(
    model: keras.Model, *, couplings: bool = True
) -> keras.Model:
    """Returns a model that shows what the last routed layer does.

    It shares the layers, and so the weights, of `model`.

    Args:
        model: A functional or sequential model from images to class lengths
            `[b, j]`, or to class poses `[b, j, d]`; see `encoder` for models of
            several inputs and outputs.
        couplings: Bool. Show couplings too. Defaults to `True`.

    Returns:
        A functional model with the same input images and the outputs `lengths`
        `[b, j]`, `poses` `[b, j, d]` and `couplings` `[b, i, j]`, a dict.

    Raises:
        ValueError: If the model has no routed layer.
    """
    model = encoder(model)
    shown: dict[str, Tensor] = {}
    call = show_last(model, shown, couplings=couplings)
    copy = same_layers(model, call)
    return keras.Model(copy.input, shown_outputs(copy, shown))


def add_couplings(model: keras.Model, *, ramp_steps: int = 0) -> keras.Model:
    """Returns a model with the further output `couplings`, to be trained on.

    It shares the layers, and so the weights, of `model`. Train it with
    `tfcaps.losses.CouplingLoss` on that output, and use `model` afterwards.

    Args:
        model: A functional or sequential model with a routed layer and the
            output `lengths`, alone or among others.
        ramp_steps: Int. Training steps in which the gradient of the couplings
            grows linearly from 0 to its whole, so that a loss of large weight
            finds capsules that tell the classes apart already. Defaults to 0,
            whole from the start.

    Returns:
        A functional model with the same inputs and a dict of outputs: those of
        `model`, and `couplings` `[b, i, j]` of its last routed layer.

    Raises:
        ValueError: If the model has no routed layer, or an output `couplings`
            already, or `ramp_steps` is negative.
    """
    model = functional(model)
    if isinstance(model.output, dict) and "couplings" in model.output:
        raise ValueError(
            f"The model {model.name!r} has an output `couplings` already; "
            "train on that one."
        )
    shown: dict[str, Tensor] = {}
    copy = same_layers(model, show_last(model, shown))
    outputs, couplings = copy.output, shown["couplings"]
    if ramp_steps:
        couplings = GradientRamp(ramp_steps, dtype="float32")(couplings)
    if not isinstance(outputs, dict):
        outputs = {"lengths": _only(outputs, "lengths")}
    return keras.Model(
        copy.input,
        {**outputs, "couplings": couplings},
        name=model.name,
    )


class PlainAndQuantized:
    """A model run as it is and with quantised couplings, in one pass.

    What comes before the first layer that rounds its couplings is computed
    once.

    Args:
        model: As in `capsule_outputs`.
        levels: As in `quantize_couplings`.
        mode: As in `quantize_couplings`.

    Attributes:
        levels: Levels of each layer that rounds its couplings, by its name.
        input: The images.
        shared: The tensors that both take from what is computed once.
        plain: The outputs of `capsule_outputs`.
        quantized: The same with quantised couplings.
        rounded: The rounded couplings of each layer in `levels`, by its name.
    """

    def __init__(self, model: keras.Model, levels: Levels, mode: str):
        model = encoder(model)
        self.levels = layer_levels(routed_layers(model), levels)
        self.rounded: dict[str, Tensor] = {}
        self._mode = check_mode(mode)
        self._copies: dict[int, tuple[Any, Any]] = {}
        known: dict[Any, Any] = {}
        once: dict[int, Tensor] = {}
        shared: dict[int, Tensor] = {}
        shown: dict[str, Tensor] = {}
        call_plain = show_last(model, shown)
        call_rounding = show_last(model, shown, replace=self._rounding)

        def record(layer: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = call_plain(layer, *args, **kwargs)
            known[_call_key(layer, args, kwargs)] = outputs
            return outputs

        def differ(layer: Any, *args: Any, **kwargs: Any) -> Any:
            rounds = self._rounds(layer)
            key = _call_key(layer, args, kwargs)
            if key in known and not rounds:
                outputs = known[key]
                once.update((id(x), x) for x in keras.tree.flatten(outputs))
                return outputs
            for leaf in keras.tree.flatten((args, kwargs)):
                if id(leaf) in once:
                    shared[id(leaf)] = leaf
            if rounds and layer is not last:
                called = self._rounding(layer)
                outputs, couplings = with_couplings(called, args, kwargs)
                self.rounded[layer.name] = couplings
                return outputs
            return call_rounding(layer, *args, **kwargs)

        last = last_routed_layer(model)
        copy = same_layers(model, record)
        self.input = copy.input
        once.update((id(x), x) for x in copy.inputs)
        self.plain = shown_outputs(copy, shown)
        self.quantized = shown_outputs(same_layers(model, differ), shown)
        self.shared = list(shared.values())
        if last.name in self.levels:
            self.rounded[last.name] = self.quantized["couplings"]

    def update(self) -> None:
        """Gives the quantised layers the newest weights of the model."""
        for layer, copy in self._copies.values():
            copy.set_weights(layer.get_weights())

    def _rounds(self, layer: Any) -> bool:
        return is_routed(layer) and layer.name in self.levels

    def _rounding(self, layer: Any) -> Any:
        """Returns a copy that rounds, for layers that do, or the layer."""
        if not self._rounds(layer):
            return layer
        if id(layer) in self._copies:  # it is called more than once
            return self._copies[id(layer)][1]
        name = f"{layer.name}_rounded"  # the two are in one model
        levels = self.levels[layer.name]
        copy = _with_levels(layer, levels, self._mode, name=name)
        copy.build_from_config(layer.get_build_config())
        self._copies[id(layer)] = layer, copy
        return copy


def shown_outputs(
    model: keras.Model, shown: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns lengths, and poses and couplings of the last routed layer."""
    lengths = model.outputs[0]
    if len(lengths.shape) != 2:
        lengths = Length(dtype="float32")(shown["poses"])
    names = [name for name in ("poses", "couplings") if name in shown]
    return {"lengths": lengths, **{name: shown[name] for name in names}}


def show_last(
    model: keras.Model,
    shown: dict[str, Tensor],
    *,
    couplings: bool = True,
    replace: Callable[[Any], Any] = lambda layer: layer,
) -> Callable[..., Any]:
    """Returns a caller of layers that notes what the last routed one does.

    That is `children`, and `activations` if they are an input, `poses`, and
    `couplings` unless they are not wanted.
    """
    last = last_routed_layer(model)

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        called = replace(layer)
        if layer is not last:
            return called(*args, **kwargs)
        shown.clear()  # what an earlier call of the same layer did
        shown.update(zip(("children", "activations"), args, strict=False))
        if "activations" in kwargs:
            shown["activations"] = kwargs["activations"]
        if not couplings:
            outputs = called(*args, **kwargs)
            shown["poses"] = keras.tree.flatten(outputs)[0]
            return outputs
        outputs, shown["couplings"] = with_couplings(called, args, kwargs)
        shown["poses"] = keras.tree.flatten(outputs)[0]
        return outputs

    return call


def _call_key(layer: Any, args: Any, kwargs: Any) -> Any:
    """Tells calls of one layer on the same tensors from others."""
    leaves = keras.tree.flatten((args, kwargs))
    return id(layer), tuple(id(leaf) for leaf in leaves)


def _with_levels(layer: Any, levels: int, mode: str, **settings: Any) -> Any:
    """Returns a layer like this one that rounds its couplings."""
    config = {**layer.get_config(), **settings}
    routing = config["routing"]
    rounding = {"levels": levels, "levels_mode": mode}
    routing["config"] = {**routing["config"], **rounding}
    return type(layer).from_config(config)


def is_routed(layer: Any) -> bool:
    """Tells whether a layer routes."""
    return isinstance(getattr(layer, "routing", None), Routing)


def routed_layers(model: keras.Model) -> list[Any]:
    """Returns the routed layers from input to output.

    Raises:
        ValueError: If there is none.
    """
    routed = [layer for layer in model.layers if is_routed(layer)]
    if not routed:
        raise ValueError(
            f"The model {model.name!r} has no routed capsule layer such as "
            "`tfcaps.layers.ClassCaps` among its own layers."
        )
    return routed


def last_routed_layer(model: keras.Model) -> Any:
    """Returns the routed layer nearest to the output.

    Raises:
        ValueError: If there is none.
    """
    return routed_layers(model)[-1]


def _only(tensors: Any, name: str) -> Tensor:
    """Returns the tensor of that name, or the only one, or the first one."""
    if isinstance(tensors, dict):
        if len(tensors) > 1 and name not in tensors:
            raise ValueError(
                f"A model of several inputs or outputs must call one {name!r}. "
                f"Received: {sorted(tensors)}."
            )
        return (
            tensors[name] if name in tensors else next(iter(tensors.values()))
        )
    if name == "images" and isinstance(tensors, (list, tuple)) and tensors[1:]:
        raise ValueError(
            "A model of several inputs must be made of a dict of them, such as "
            f"{{'images': ..., 'labels': ...}}. Received: a list of "
            f"{len(tensors)}."
        )
    return keras.tree.flatten(tensors)[0]


def same_layers(model: keras.Model, call: Any) -> keras.Model:
    """Returns a model of the same layers, each of which `call` calls anew."""
    return keras.models.clone_model(
        model,
        input_tensors=model.input,
        clone_function=lambda layer: layer,
        call_function=call,
    )


def _without_labels(layer: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("labels", None)
    return layer(*args, **kwargs)
