"""Functional Keras models of capsules: their parts, and copies of them."""

import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps.ops import Tensor

# Outputs that `add_couplings` adds.
TO_TRAIN_ON = ("couplings", "counterfactual")

# Where the classes are from that Keras makes models of, on any backend.
_KERAS = ("builtins", "flax", "keras", "tensorflow", "torch")

# Names as Keras makes them, such as `reshape_2`; those of higher numbers are a
# user's own.
_NUMBERED = re.compile(r"^(.*?)(?:_([1-9]\d*))?$", re.DOTALL)
_MOST_OF_A_NAME = 10_000

# Weights of layers that `model.quantize` has changed.
_SCALES = ("kernel_scale", "embeddings_scale")

# What a class may do in its own way when a model is trained or called.
_METHODS = (
    *("train_step", "test_step", "predict_step", "call"),
    *("compute_loss", "compute_metrics"),
)


def classifier(model: keras.Model) -> keras.Model:
    """Returns the part of a model from images to class lengths.

    It leaves out a decoder, the input `labels` from which a decoder or
    `RegularizedRouting` learns, and the outputs that `add_couplings` adds to
    train on. It shares the layers, and so the weights. Functions that take a
    model to measure or to explain take the classifier of it.

    Args:
        model: A functional or sequential model. Of several inputs `images` is
            kept, of several outputs `lengths`, or the first of a list.

    Returns:
        A functional model of one input and one output, without optimiser.

    Raises:
        ValueError: If of several inputs or outputs none has that name.
    """
    keep_pruned(model)
    model = functional(without_couplings(model))
    lengths = pick_tensor(model.output, "lengths")
    images = pick_tensor(model.input, "images")
    if len(model.inputs) > 1:
        model = keras.Model(model.input, lengths, name=model.name)
        model = clone_with_call(model, _without_labels)
        images, lengths = pick_tensor(model.input, "images"), model.output
    try:
        return keras.Model(images, lengths, name=model.name)
    except ValueError as error:  # of another input
        raise ValueError(
            f"The lengths of {model.name!r} must depend on its images alone, "
            "as trees are those of an image. Received: a model of the inputs "
            f"{sorted(model.input)}. Give a model of one input, with the "
            "others as constants."
        ) from error


def functional(model: keras.Model) -> keras.Model:
    """Returns the model, or a functional one of a `keras.Sequential`.

    Raises:
        ValueError: If the model is neither functional nor built, or does
            something else than its layers when it is called.
    """
    check_model(model)
    if "call" in _own_methods(model) and not _trains_itself(model):
        raise ValueError(
            f"{model.name!r} must do what its layers do. Received: a "
            f"{type(model).__name__}, whose own `call` they do not show. Give "
            "`keras.Model(model.input, model.output)` if they are what you "
            "mean."
        )
    _reserve_names(model)
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


def inner_model(layer: Any) -> keras.Model | None:
    """Returns a layer that is a model of layers, as a functional one."""
    if not isinstance(layer, keras.Model) or "call" in _own_methods(layer):
        return None
    return functional(layer)


def _reserve_names(model: keras.Model) -> None:
    """Keeps Keras from giving names of layers from a file to new operations."""
    for layer in getattr(model, "layers", ()):
        stem, number = _NUMBERED.findall(layer.name)[0]
        taken = int(number or 0)
        while keras.backend.get_uid(stem) <= taken < _MOST_OF_A_NAME:
            pass


def without_couplings(model: keras.Model) -> keras.Model:
    """Returns the network in a model that `add_couplings` made for training.

    It has the same inputs, and all outputs but those to train on. Other models
    are returned as they are.
    """
    layers = [] if isinstance(model, keras.Sequential) else model.layers
    if not any(unwrapped(layer) is not layer for layer in layers):
        return model
    outputs = model.output
    if isinstance(outputs, dict):
        outputs = {k: x for k, x in outputs.items() if k not in TO_TRAIN_ON}
        if len(outputs) == 1 and not isinstance(model.input, dict):
            outputs = next(iter(outputs.values()))  # as networks have it
    copy = clone_with_call(
        keras.Model(model.input, outputs, name=model.name),
        # The couplings come last and are not used.
        lambda layer, *args, **kwargs: unwrapped(layer)(*args, **kwargs),
    )
    return of_same_kind(model, copy.input, copy.output)


def unwrapped(layer: Any) -> Any:
    """Returns the routed layer that a layer asks for its couplings, or it."""
    return layer.layer if getattr(layer, "shows_couplings", False) else layer


def of_same_kind(
    model: keras.Model, inputs: Any, outputs: Any, kind: Any = keras.Model
) -> keras.Model:
    """Returns a model with other outputs that trains as the given one does.

    It is a `kind` if the given one is of no class of its own, or of one that
    trains itself by one input and one output, and there are others. It is an
    error if a class of its own cannot be made of inputs and outputs.
    """
    is_one = not isinstance(inputs, dict) and not isinstance(outputs, dict)
    if check_kind(model) and (is_one or not _trains_itself(model)):
        kind = type(model)
    copy = kind(inputs, outputs, name=model.name)
    if kind is type(model) and _trains_itself(model):
        copy.go_on_from(model)
    return copy


def check_kind(model: keras.Model) -> bool:
    """Tells whether a model is of its own class, which copies then can have."""
    check_model(model)
    kind = type(model)
    own = _own_methods(model)
    arguments = inspect.getfullargspec(kind.__init__)
    takes_any = arguments.varargs is not None and arguments.varkw is not None
    fits = takes_any or arguments.args[1:] == ["inputs", "outputs", "name"]
    # What was set on the model itself stays with it.
    fits = fits and not any(name in vars(model) for name in own)
    if fits and not isinstance(model, keras.Sequential):
        return any(not _is_of_keras(cls) for cls in kind.__mro__)
    if own:
        raise ValueError(
            f"{model.name!r} must train by Keras' own `{own[0]}`, or be of a "
            "class that is made of (inputs, outputs, name). Received: a "
            f"{kind.__name__}, whose `{own[0]}` a copy would lose. Give "
            "`keras.Model(model.input, model.output)` if it does not matter."
        )
    return False


def _trains_itself(model: keras.Model) -> bool:
    """Tells whether a model does what its layers do, and trains on more."""
    return getattr(model, "trains_itself", False)


def _own_methods(model: keras.Model) -> list[str]:
    """Returns the methods of training that a model does not have from Keras."""
    own = [cls for cls in type(model).__mro__ if not _is_of_keras(cls)]
    places = [vars(model), *map(vars, own)]
    return [name for name in _METHODS if any(name in at for at in places)]


def _is_of_keras(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in _KERAS


def copied(model: keras.Model, make: Callable[[Any], Any]) -> keras.Model:
    """Returns a copy of a model, of the layers that `make` makes of its own.

    It has the same weights. Its inputs stay optional, which
    `keras.models.clone_model` forgets.
    """
    check_kind(model)
    functional(model)  # or an error
    inputs = None if isinstance(model, keras.Sequential) else model.input
    copy = keras.models.clone_model(
        model, input_tensors=inputs, clone_function=make
    )
    copy.set_weights(model.get_weights())
    return copy


def keep_pruned(model: keras.Model) -> None:
    """Prunes once more what something else has changed in pruned weights.

    Masks act after each step of the optimiser. Averages, restored weights and
    `set_weights` come after it. Warns of what they changed, and of zeros that
    are lost since `strip_pruning`.
    """
    check_model(model)
    _warn_of_lost_zeros(model)
    changed = pruned = total = 0
    for weight in model.weights:
        prune_again = getattr(weight.constraint, "prune_again", None)
        if prune_again is not None:
            counts = prune_again()
            changed, pruned = changed + counts[0], pruned + counts[1]
            total += math.prod(weight.shape)
    if changed:
        warnings.warn(
            f"{changed:,} of the {pruned:,} pruned weights of {model.name!r} "
            f"had other values again, so that {(pruned - changed) / total:.1%} "
            f"were pruned and not {pruned / total:.1%}: something has set "
            "weights after the last step, such as `restore_best_weights`, "
            "averages (`use_ema`, `SwapEMAWeights`) or `set_weights`. They are "
            "pruned once more; measure the network as it is now.",
            stacklevel=3,
        )


def note_zeros(weights: Iterable[Any]) -> None:
    """Notes how many zeros pruned weights have, for `keep_pruned`."""
    for weight in weights:
        weight.noted_zeros = _count_zeros(weight)


def forget_zeros(weights: Iterable[Any]) -> None:
    """Forgets what `note_zeros` noted."""
    for weight in weights:
        weight.noted_zeros = 0


def _count_zeros(weight: Any) -> int:
    return int(np.sum(keras.ops.convert_to_numpy(weight) == 0))


def _warn_of_lost_zeros(model: keras.Model) -> None:
    """Warns once if weights have fewer zeros than when pruning ended."""
    pruned = [w for w in model.weights if getattr(w, "noted_zeros", 0)]
    had = sum(weight.noted_zeros for weight in pruned)
    left = sum(min(_count_zeros(w), w.noted_zeros) for w in pruned)
    if left < had:
        forget_zeros(pruned)
        warnings.warn(
            f"Of the {had:,} zeros that {model.name!r} had when pruning ended, "
            f"{left:,} are left: training on has filled them, before which "
            "`tfcaps.rem.keep_zeros(model)` keeps them, or something has set "
            "weights, such as `EarlyStopping(restore_best_weights=True)`, "
            "which must stand before `rem.Prune` among the callbacks.",
            stacklevel=4,
        )


def check_model(model: Any) -> None:
    """Raises `ValueError` unless a function is given a model first."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            "The first argument must be a Keras model; data and paths come "
            f"after it. Received: {type(model).__name__}."
        )


def check_unquantized(model: keras.Model) -> None:
    """Raises `ValueError` if weights are stored in another form.

    `model.quantize` packs two numbers of int4 into one, for example.
    """
    check_model(model)
    for weight in model.weights:
        if weight.name in _SCALES:
            layer = weight.path.rpartition("/")[0]
            raise ValueError(
                f"The weights of {model.name!r} must be as they were trained. "
                f"Received: {layer!r} as `model.quantize` stores it. Measure, "
                "prune, compact and export the network before that; "
                "`tfcaps.export.save(..., int8=...)` writes int8."
            )


def check_file(model: keras.Model, path: Any) -> None:
    """Raises `ValueError` if a file cannot hold a model that trains itself."""
    if str(path).endswith((".h5", ".hdf5")):
        raise ValueError(
            f"{type(model).__name__} is saved whole as a `.keras` file; its "
            f"weights alone by `save_weights`. Received: {path}."
        )


def check_called_once(model: keras.Model, layer: Any) -> None:
    """Raises `ValueError` if a routed layer has several calls in a model."""
    count = sum(call.layer is layer for call in calls_of(model)[1])
    if count > 1:
        raise ValueError(
            f"The routed layer {layer.name!r} must be called once in "
            f"{model.name!r}, so that an image has one tree. Received: {count} "
            "calls. Give the model of one of them."
        )


def routing_of(layer: Any) -> Any:
    """Returns what couples children with parents: the layer's routing, or it.

    A layer that couples them itself, as `ConstellationCaps`, has
    `tree_threshold`, `levels`, `mode` and `rounded` of `Routing`, and returns
    couplings last if it is called with `return_couplings`.
    """
    return getattr(layer, "routing", layer)


def is_routed(layer: Any) -> bool:
    """Tells whether a layer couples children with parents."""
    return hasattr(routing_of(layer), "tree_threshold")


def makes_classes(layer: Any) -> bool:
    """Tells whether each parent of a routed layer has all children.

    Such a layer has `children_shape`, see `tfcaps.layers.units`.
    """
    return is_routed(layer) and hasattr(layer, "children_shape")


def routed_layers(model: keras.Model) -> list[Any]:
    """Returns the routed layers, of which there must be one, in order."""
    check_model(model)
    layers = [unwrapped(layer) for layer in model.layers]
    routed = [layer for layer in layers if is_routed(layer)]
    if not routed:
        raise ValueError(
            f"The model {model.name!r} has no routed capsule layer, such as "
            "`tfcaps.layers.ClassCaps`, among its own layers."
        )
    return routed


def last_routed_layer(model: keras.Model) -> Any:
    """Returns the routed layer nearest to the output."""
    return routed_layers(model)[-1]


def only_layer(model: keras.Model, kind: type) -> Any:
    """Returns the only layer of a kind, also from within another layer."""
    layers = [getattr(layer, "layer", layer) for layer in model.layers]
    found = [layer for layer in layers if isinstance(layer, kind)]
    if len(found) != 1:
        raise ValueError(
            f"The model {model.name!r} must have one `{kind.__name__}`, as "
            "`tfcaps.models.constellation_capsnet` has. Received: one with "
            f"{len(found)}."
        )
    return found[0]


def children_grid(model: keras.Model) -> tuple[int, ...]:
    """Returns the shape in which the last routed layer's children stand.

    That is `(h, w, t)`, or `(i,)` where they have no positions.
    """
    model = classifier(model)
    layer = last_routed_layer(model)
    if not makes_classes(layer):
        raise ValueError(
            f"The last routed layer of {model.name!r} must be a "
            f"`tfcaps.layers.ClassCaps`. Received: {type(layer).__name__}."
        )
    [*_, call] = [call for call in calls_of(model)[1] if call.layer is layer]
    return tuple(layer.children_shape(call.inputs[0].shape))


def pick_tensor(tensors: Any, name: str) -> Tensor:
    """Returns the tensor of that name, or the only one, or the first one."""
    if isinstance(tensors, dict):
        if len(tensors) > 1 and name not in tensors:
            raise ValueError(
                f"A model of several inputs or outputs must call one {name!r}. "
                f"Received: {sorted(tensors)}."
            )
        return tensors.get(name, [*tensors.values()][0])
    if name == "images" and isinstance(tensors, (list, tuple)) and tensors[1:]:
        raise ValueError(
            "A model of several inputs must be made of a dict of them, such as "
            f"{{'images': ..., 'labels': ...}}. Received: a list of "
            f"{len(tensors)}."
        )
    return keras.tree.flatten(tensors)[0]


def clone_with_call(
    model: keras.Model, call: Any, inputs: Any = None
) -> keras.Model:
    """Returns a model of the same layers, each called by `call`."""
    return keras.models.clone_model(
        model,
        input_tensors=model.input if inputs is None else inputs,
        clone_function=lambda layer: layer,
        call_function=call,
    )


class Call(NamedTuple):
    """A call of a layer: the tensors that it takes and gives."""

    layer: Any  # or an operation
    inputs: list[Any]
    outputs: list[Any]
    training: bool  # whether it does in prediction what it does in training


def calls_of(
    model: keras.Model, inputs: Any = None
) -> tuple[keras.Model, list[Call]]:
    """Returns a model of the same layers, and its calls in their order."""
    calls: list[Call] = []

    def record(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = layer(*args, **kwargs)
        given = keras.tree.flatten((args, kwargs))
        given = [x for x in given if isinstance(x, keras.KerasTensor)]
        training = bool(kwargs.get("training"))
        calls.append(Call(layer, given, keras.tree.flatten(outputs), training))
        return outputs

    return clone_with_call(model, record, inputs), calls


def matrix_between(start: Tensor, end: Tensor) -> str | None:
    """Returns the name of a layer with a weight matrix between two tensors."""

    @functools.cache
    def names(operation: Any, index: int) -> list[str] | None:
        """Returns those up to a call, `None` if it is not after the start."""
        if (operation, index) == start._keras_history[:2]:
            return []
        taken = operation._inbound_nodes[index].input_tensors
        before = [names(*tensor._keras_history[:2]) for tensor in taken]
        after = [each for each in before if each is not None]
        weights = getattr(operation, "weights", ())
        has_matrix = any(len(weight.shape) > 1 for weight in weights)
        return sum(after, []) + [operation.name] * has_matrix if after else None

    return next(iter(names(*end._keras_history[:2]) or ()), None)


def split(model: keras.Model, layer: Any) -> tuple[keras.Model, keras.Model]:
    """Returns the part of a model up to a layer, and the part after it.

    Everything after the layer must depend on its output alone.
    """
    copy, calls = calls_of(model)
    [*_, output] = [call.outputs[0] for call in calls if call.layer is layer]
    front = keras.Model(copy.input, output)
    return front, keras.Model(output, copy.output, name=model.name)


def cut(
    model: keras.Model, layer: Any, *, first: bool = False
) -> tuple[keras.Model, keras.Model]:
    """Returns the part of a model below a layer, and the rest with the layer.

    The first part has a list of outputs, which the second one takes: the inputs
    of the layer, and then whatever else passes from below. Of several calls of
    the layer the last one counts, or the first, and then all calls of routed
    layers after it are above, also those of branches beside it.
    """
    copy, calls = calls_of(model)
    places = [k for k, call in enumerate(calls) if call.layer is layer]
    start = places[0 if first else -1]
    taken = list(calls[start].inputs)
    above: set[int] = set()
    for k, call in enumerate(calls[start:]):
        beside = k and not any(id(x) in above for x in call.inputs)
        if beside and not (first and is_routed(unwrapped(call.layer))):
            continue
        known = above | {id(x) for x in taken}
        taken += [x for x in call.inputs if id(x) not in known]
        above.update(id(x) for x in call.outputs)
    return (
        keras.Model(copy.input, taken),
        keras.Model(taken, copy.output, name=model.name),
    )


def _without_labels(layer: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("labels", None)
    return layer(*args, **kwargs)
