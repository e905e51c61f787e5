"""Everything public stays finite and in range, whatever it is given.

A few hundred cases, the same in each run; with NIGHTLY=1 more than ten
thousand new ones. How large values may be stands in `tests/strategies.py`.
"""

import inspect
import operator

import keras
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from keras import ops

from tests import strategies
from tests.filled import filled, filled_activations
from tests.gradients import value_and_gradients, with_weights
from tests.strategies import cases
from tests.test_contract import public_classes
from tfcaps import layers, losses, models, routing
from training.devices import dtype_policy

# How far above one a length or a sum of shares may come out.
ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-3}


def each(rows):
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.__name__)


def test_every_public_class_and_network_is_tried():
    for module, base, rows in (
        (layers, keras.layers.Layer, strategies.LAYERS),
        (routing, routing.Routing, strategies.ROUTINGS),
        (losses, keras.losses.Loss, strategies.LOSSES),
    ):
        assert public_classes(module, base) == set(rows)
    functions = {f for _, f in inspect.getmembers(models, inspect.isfunction)}
    # One is called by the other networks, for `decoder=True`; one reads files.
    others = {
        models.with_decoder,
        models.with_templates,
        models.load_pretrained,
    }
    assert functions - others == set(strategies.MODELS)


@each(strategies.ROUTINGS)
@cases(25, 600)
@given(st.data())
def test_routing(row, data):
    chosen = data.draw(strategies.ROUTINGS[row])()
    dtype = data.draw(strategies.dtypes)
    batch, children, parents, dim = data.draw(
        st.tuples(*[strategies.sizes] * 4)
    )
    components = data.draw(st.just(0) | strategies.sizes)
    is_factored = components and chosen.vote_free
    largest, differentiated = draw_limit(
        data, chosen, dtype, strategies.LARGEST, is_factored
    )
    kinds = data.draw(strategies.kinds)
    given_activations, given_weights = data.draw(
        st.tuples(st.booleans(), st.booleans())
    )
    rng = np.random.default_rng(data.draw(strategies.seeds))
    shapes = [(batch, children, parents, dim)]
    if is_factored:
        shapes = [
            (batch, 1, children, components),
            (children, parents, components, dim),
        ]
    factors = [
        ops.cast(filled(kind, shape, rng, largest), dtype)
        for kind, shape in zip(kinds, shapes, strict=False)
    ]
    others = {}
    if given_activations:
        # Lengths may be anything, but for what is no length.
        longest = 1.0 if chosen.explicit_activations else largest
        others["activations"] = filled_activations(
            (batch, children), rng, longest
        )
    if given_weights:
        kind = "random" if is_factored else kinds[1]
        for name, weight in chosen.weights(children, parents, dim).items():
            others[name] = filled(kind, weight.shape, rng, largest)

    def route(others, factors):
        votes = factors[0]
        if is_factored:
            votes = routing.FactoredVotes([routing.Block(*factors)])
        return tuple(chosen(votes, **others))

    specs = (
        keras.KerasTensor((batch, parents, dim)),
        keras.KerasTensor((batch, parents)),
        keras.KerasTensor((batch, children, parents)),
    )
    upstream = upstream_of(specs, dtype, rng, chosen)
    outputs = tried(route, [others, factors], upstream, differentiated)
    assert_equal_specs(outputs, specs)
    poses, activations, couplings = outputs
    assert_activations(activations)
    if not chosen.explicit_activations:
        assert_lengths(poses, "float32")
    assert_couplings(couplings, chosen)


@each(strategies.LAYERS)
@cases(25, 500)
@given(st.data())
def test_layer(row, data):
    case = data.draw(strategies.LAYERS[row])
    dtype = data.draw(strategies.dtypes)
    layer = case.make(dtype=strategies.POLICIES[dtype])
    assume(not reads_stale_memory(layer, dtype))
    chosen = getattr(layer, "routing", None)
    # So few votes are made, unless children share matrices.
    is_factored = getattr(layer, "share", None) or getattr(
        layer, "share_types", False
    )
    largest, differentiated = draw_limit(
        data, chosen, dtype, strategies.LARGEST_IN_LAYERS, is_factored
    )
    kind, weight_kind = data.draw(strategies.kinds)
    batch = data.draw(strategies.sizes)
    rng = np.random.default_rng(data.draw(strategies.seeds))
    with_activations = isinstance(case.inputs, list)
    first, *more = case.inputs if with_activations else [case.inputs]
    inputs = ops.cast(
        filled(kind, (batch, *first), rng, largest), layer.compute_dtype
    )
    if with_activations:
        inputs = [inputs, filled_activations((batch, *more[0]), rng)]
    case.apply(layer, inputs)
    spoil(layer, weight_kind, rng, largest)
    specs = case.apply(layer.compute_output_spec, specs_of(inputs))
    weights = layer.trainable_variables
    outputs = tried(
        with_weights(lambda x: case.apply(layer, x), weights),
        [[weight.value for weight in weights], inputs],
        upstream_of(specs, dtype, rng, chosen),
        differentiated,
    )
    assert_equal_specs(outputs, specs)
    if isinstance(layer, layers.PrimaryMatrixCaps):
        assert_activations(outputs[1])
    if chosen is not None:
        assert_routed(layer, chosen, outputs, dtype)
    elif hasattr(layer, "squash"):
        assert_lengths(outputs, dtype)


@each(strategies.LOSSES)
@cases(20, 400)
@given(st.data())
def test_loss(row, data):
    make, axes = strategies.LOSSES[row]
    dtype = data.draw(strategies.dtypes)
    loss = data.draw(make)(dtype=dtype)
    batch, *shape = data.draw(st.tuples(*[strategies.sizes] * (1 + axes)))
    kinds = data.draw(st.tuples(*[st.sampled_from(strategies.ALL_KINDS)] * 2))
    wanted = data.draw(st.sampled_from(["indices", "targets"]))
    rng = np.random.default_rng(data.draw(strategies.seeds))
    largest = strategies.LARGEST_IN_LOSSES[dtype]
    if row in (losses.CounterfactualLoss, losses.SpreadLoss):
        shape[-1] = max(shape[-1], 2)  # one class has none to be compared with
    classes = shape[-1]
    if row is losses.CounterfactualLoss:
        shape[0] = 3
    predictions = filled(kinds[0], (batch, *shape), rng, largest)
    if row is losses.CounterfactualLoss:
        # Two rows tell which class was asked what, for how many images.
        longest = np.eye(classes)[rng.integers(0, classes, batch)]
        stands_for = rng.integers(0, 9, size=(batch, 2, 1))
        predictions[:, :2] = stands_for * longest[:, None]
    if row is losses.PresenceLoss:
        predictions = np.clip(np.nan_to_num(np.abs(predictions)), 0.0, 1.0)
    if row is losses.ReconstructionLoss:
        targets = filled(kinds[1], (batch, *shape), rng, largest)
    elif wanted == "indices":
        # Also none of the classes.
        targets = rng.integers(-1, classes + 1, size=batch)
    else:
        # Also none of them, or several.
        targets = rng.integers(0, 2, size=(batch, classes))
    value = tried(lambda x: loss(targets, x), [predictions], None, True)
    assert value.shape == () and value.dtype.name == dtype
    # Of couplings above one, which there may be, the entropy is negative, and
    # evidence has no bound.
    unbounded = losses.CouplingLoss, losses.EvidenceLoss
    assert float(value) >= 0.0 or row in unbounded


@each(strategies.MODELS)
@cases(2, 15)
@given(st.data())
def test_network(row, data):
    make = data.draw(strategies.MODELS[row])
    dtype = data.draw(strategies.dtypes)
    batch = data.draw(strategies.sizes)
    training = data.draw(st.booleans())
    kind = data.draw(st.sampled_from(strategies.ALL_KINDS))
    weight_kind = data.draw(st.sampled_from(strategies.ORDINARY))
    rng = np.random.default_rng(data.draw(strategies.seeds))
    with dtype_policy(strategies.POLICIES[dtype]):
        model = make()
    spoil(model, weight_kind, rng)
    # Labels are an input beside the images where there is a use for them.
    inputs = [
        filled(kind, (batch, *shape[1:]), rng, strategies.LARGEST_IMAGE)
        if shape[1:]
        else ops.zeros(batch, "int32")
        for shape in (tensor.shape for tensor in model.inputs)
    ]
    images, *labels = inputs
    specs = keras.tree.map_structure(
        lambda tensor: keras.KerasTensor((batch, *tensor.shape[1:])),
        model.output,
    )

    def run(images):
        if not labels:
            return model(images, training=training)
        named = {"images": images, "labels": labels[0]}
        return model(named, training=training)

    weights = model.trainable_variables
    outputs = tried(
        with_weights(run, weights),
        [[weight.value for weight in weights], images],
        upstream_of(specs, dtype, rng),
        True,
    )
    assert_equal_specs(outputs, specs)
    lengths = outputs["lengths"] if isinstance(outputs, dict) else outputs
    assert_activations(lengths)


def reads_stale_memory(layer, dtype):
    """Says whether TensorFlow may, where strides exceed the kernel (oneDNN)."""
    return dtype == "bfloat16" and any(
        any(map(operator.gt, part.strides, part.kernel_size))
        for part in layer._flatten_layers()
        if isinstance(part, (keras.layers.Conv2D, keras.layers.DepthwiseConv2D))
    )


def draw_limit(data, chosen, dtype, largest, is_factored):
    """Draws how large values may be, and whether there is a gradient."""
    limit = strategies.largest_with_gradient(chosen, dtype, is_factored)
    if limit >= largest[dtype] or (limit and data.draw(st.booleans())):
        return min(limit, largest[dtype]), True
    return largest[dtype], False


def tried(function, values, upstream, differentiated):
    """Returns what a function returns; it and its gradients are finite."""
    if differentiated:
        outputs, gradients = value_and_gradients(
            function, *values, upstream=upstream
        )
        assert_finite(gradients)
    else:
        outputs = function(*values)
    assert_finite(outputs)
    return outputs


def upstream_of(specs, dtype, rng, chosen=None):
    """Returns random gradients of outputs.

    In float16 a loss is scaled, here down to the size of the largest values.
    Couplings of scaled distances are float32 and have a derivative of up to
    1e12, one over a distance.
    """
    is_scaled = isinstance(chosen, routing.ScaledDistanceRouting)

    def one(spec):
        scale = 1.0
        if dtype == "float16":
            steep = is_scaled and spec.dtype == "float32"
            scale = 1e-16 if steep else 1e-4
        return ops.cast(scale * rng.normal(size=spec.shape), spec.dtype)

    return keras.tree.map_structure(one, specs)


def specs_of(structure):
    return keras.tree.map_structure(
        lambda tensor: keras.KerasTensor(
            tuple(tensor.shape), keras.backend.standardize_dtype(tensor.dtype)
        ),
        structure,
    )


def spoil(layer, kind, rng, largest=None):
    """Fills the weights of a layer; those of a network it scales.

    What has several layers would multiply large weights, and routing may
    multiply votes by its own.
    """
    is_network = largest is None or isinstance(layer, layers.Decoder)
    for weight in layer.weights:
        if is_network:
            if kind in ("zero", "pruned") and "moving" not in weight.name:
                weight.assign(weight * filled(kind, weight.shape, rng, 1.0))
            continue
        of_votes = weight.name in ("transformation", "kernel")
        is_large = kind in strategies.LARGE
        small = is_large and hasattr(layer, "routing") and not of_votes
        values = filled("random" if small else kind, weight.shape, rng, largest)
        weight.assign(values)


def numpy(tensor):
    """Returns a float32 array, also of bfloat16."""
    return np.asarray(ops.cast(tensor, "float32"))


def assert_finite(structure):
    for tensor in keras.tree.flatten(structure):
        assert np.all(np.isfinite(numpy(tensor))), tensor


def assert_equal_specs(outputs, specs):
    keras.tree.assert_same_structure(specs_of(outputs), specs)
    for got, wanted in zip(
        *map(keras.tree.flatten, (specs_of(outputs), specs)), strict=True
    ):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)


def assert_lengths(poses, dtype):
    lengths = np.linalg.norm(numpy(poses).astype("float64"), axis=-1)
    assert np.all(lengths <= 1.0 + ROUNDING[dtype]), lengths


def assert_activations(activations):
    activations = numpy(activations)
    assert np.all(activations >= 0.0), activations
    assert np.all(activations <= 1.0 + ROUNDING["float32"]), activations


def assert_routed(layer, chosen, outputs, dtype):
    """Checks what a routed layer returns."""
    poses, *activations, couplings = outputs
    for tensor in activations:
        assert_activations(tensor)
    of_windows = isinstance(layer, layers.ConvCaps)
    if not chosen.explicit_activations:
        assert_lengths(poses, dtype)
    elif of_windows:
        # A child's shares are spread over the windows that hold it.
        assert_activations(couplings)
        return
    of_maps = isinstance(layer, layers.ConvCaps3D)
    assert_couplings(couplings, chosen, (1, 2, 4) if of_maps else -1)


def assert_couplings(couplings, chosen, axis=-1):
    """Checks that couplings are shares, as far as the routing says so."""
    couplings = numpy(couplings)
    learnt = isinstance(chosen, routing.RegularizedRouting)
    if learnt and not chosen.levels:
        return
    assert_activations(couplings)
    if learnt or chosen.levels:
        return
    sums = couplings.sum(axis=axis)
    assert np.all(sums <= 1.0 + ROUNDING["float32"]), sums
    others = [
        getattr(chosen, n, 0) for n in ("leaky", "silent_parents", "orphan")
    ]
    if not any(others):
        assert np.all(sums >= 1.0 - ROUNDING["float32"]), sums
