"""Models that quantise couplings, and models that return them."""

from collections.abc import Callable
from typing import Any

import keras

from tfcaps.graphs import (
    TO_TRAIN_ON,
    check_kind,
    copied,
    encoder,
    functional,
    is_routed,
    keep_pruned,
    last_routed_layer,
    of_same_kind,
    only_one,
    routed_layers,
    same_layers,
    without_couplings,
)
from tfcaps.layers import ClassCaps, Length
from tfcaps.ops import Tensor, check_mode
from tfcaps.rem.gradient_ramp import GradientRamp
from tfcaps.rem.parse.layer_levels import Levels, layer_levels
from tfcaps.rem.parse.with_couplings import (
    WithCouplings,
    with_couplings,
)


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
        A `keras.Model` with the same inputs and outputs, but for those that
        `add_couplings` adds.

    Raises:
        ValueError: If the model has no routed layer, an argument is out of
            range or does not fit the layers, or the model has its own
            `train_step` that the copy would lose.
    """
    keep_pruned(model)
    model = without_couplings(model)
    chosen = layer_levels(routed_layers(model), levels)
    check_mode(mode)

    def copy_of(layer: Any) -> Any:
        if is_routed(layer) and layer.name in chosen:
            return with_levels(layer, chosen[layer.name], mode)
        return type(layer).from_config(layer.get_config())

    return copied(model, copy_of)


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
        `tfcaps.losses.CounterfactualLoss` explains: for half of the images of a
        batch, the lengths without the tree of the longest class (the children
        that are coupled with it by more than `1 / j`), or with that tree alone.

    Raises:
        ValueError: If the model has no routed layer, or an output `couplings`
            already, or `ramp_steps` is negative, or the last routed layer is no
            `ClassCaps` for `counterfactual`, or the model has its own
            `train_step` and its class is not made of inputs and outputs.
    """
    given = model
    check_kind(given)
    model = functional(model)
    if isinstance(model.output, dict) and "couplings" in model.output:
        raise ValueError(
            f"The model {model.name!r} has an output `couplings` already; "
            "train on that one."
        )
    last = last_routed_layer(model)
    if counterfactual and not isinstance(last, ClassCaps):
        raise ValueError(
            "`counterfactual` needs fully connected capsules, "
            "`tfcaps.layers.ClassCaps`, as the last routed layer, whose "
            "children it silences. Received: a model that ends in a "
            f"{type(last).__name__}."
        )
    shown: dict[str, Tensor] = {}
    show = show_last(model, shown, counterfactual=counterfactual)
    copy = same_layers(model, show)
    outputs = copy.output
    to_train_on = {name: shown[name] for name in TO_TRAIN_ON if name in shown}
    if ramp_steps:
        to_train_on = {
            name: GradientRamp(ramp_steps, dtype="float32")(tensor)
            for name, tensor in to_train_on.items()
        }
    if not isinstance(outputs, dict):
        outputs = {"lengths": only_one(outputs, "lengths")}
    return of_same_kind(given, copy.input, {**outputs, **to_train_on})


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
    counterfactual: bool = False,
    replace: Callable[[Any], Any] = lambda layer: layer,
) -> Callable[..., Any]:
    """Returns a caller of layers that notes what the last routed one does.

    That is `children`, and `activations` if they are an input, `poses`,
    `couplings` unless they are not wanted, and `counterfactual` if it is, see
    `WithCouplings`.
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
        if counterfactual:
            *results, shown["couplings"], shown["counterfactual"] = (
                WithCouplings(called, counterfactual=True)(*args, **kwargs)
            )
            outputs = tuple(results) if results[1:] else results[0]
        else:
            outputs, shown["couplings"] = with_couplings(called, args, kwargs)
        shown["poses"] = keras.tree.flatten(outputs)[0]
        return outputs

    return call


def with_levels(layer: Any, levels: int, mode: str, **settings: Any) -> Any:
    """Returns a layer like this one that rounds its couplings."""
    config = {**layer.get_config(), **settings}
    routing = config["routing"]
    rounding = {"levels": levels, "levels_mode": mode}
    routing["config"] = {**routing["config"], **rounding}
    return type(layer).from_config(config)
