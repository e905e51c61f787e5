"""Everything public stays finite and in range, whatever it is given.

Each row of the registry gets a few draws of values, weights, sizes and types,
the same in each run; with NIGHTLY=1 many, which are new every day.
"""

import dataclasses
import datetime
import itertools
import operator

import keras
import numpy as np
import pytest
from keras import ops

from tests.gradients import value_and_gradients, with_weights
from tests.nightly import NIGHTLY
from tests.registry import ALL, LAYERS, LOSSES, ROUTINGS
from tfcaps import layers, losses, routing
from tfcaps.routing.factored_votes import Block, FactoredVotes

# The largest value by type, and the largest of which gradients are demanded:
# above, a derivative or its rounding error may be beyond the type. Squared
# lengths of float32 end at 3e38. In float16 numbers end at 65,504, and layers
# sum up products of two.
LARGEST = {
    "float32": (1e15, 1e2),
    "bfloat16": (1e15, 1e2),
    "float16": (500.0, 40.0),
}
# How far above one a length or a sum of shares may come out.
ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-3}

# At most one factor of a product is of a large kind.
ORDINARY = ("zero", "tiny", "random", "equal", "pruned", "ladder")
LARGE = ("large", "equal_large", "mixed")
KINDS = ORDINARY + LARGE
PAIRS = [p for p in itertools.product(KINDS, KINDS) if {*p} & {*ORDINARY}]
# Tried with every row: all that pruning leaves may be zero.
ZEROS = [
    *(("zero", "random"), ("random", "zero")),
    *(("pruned", "pruned"), ("zero", "zero")),
]
_SLOW = pytest.mark.slow
_DAY = datetime.date.today().toordinal()
SEEDS = range(200 * _DAY, 200 * _DAY + 200) if NIGHTLY else range(4)


def tried(rows):
    """Calls a test with each row, a generator and two kinds of values."""

    def decorate(test):
        def repeated(row, seed):
            rng = np.random.default_rng(seed)
            kinds = one_of(rng, ZEROS[seed - SEEDS[0] :][:1] or PAIRS)
            test(row, rng, kinds)

        by_name = pytest.mark.parametrize("row", rows, ids=lambda r: r.name)
        seeds = [*SEEDS[:2], *(pytest.param(n, marks=_SLOW) for n in SEEDS[2:])]
        return pytest.mark.parametrize("seed", seeds)(by_name(repeated))

    return decorate


def one_of(rng, values):
    values = list(values)
    return values[rng.integers(len(values))]


def sizes(rng, count):
    return tuple(map(int, rng.integers(1, 4, count)))


def filled(kind, shape, rng, largest):
    """Returns float32 values of a kind, of at most `largest`."""
    top = np.log10(largest)
    values = rng.uniform(-1.0, 1.0, size=shape)
    scale = {
        "zero": 0.0,
        "tiny": 10.0 ** rng.uniform(-38, -4),
        "random": 1.0,
        "equal": 0.5 / np.where(values == 0, 1.0, values),
        "pruned": rng.choice([0.0, 1.0], size=shape),
        # Of every size, in one tensor.
        "ladder": 10.0 ** rng.uniform(-38, 0, size=shape),
        "mixed": 10.0 ** rng.uniform(-38, top, size=shape),
        "large": largest,
        "equal_large": largest / np.where(values == 0, 1.0, values),
    }[kind]
    return (values * scale).astype("float32")


def filled_activations(shape, rng, largest=1.0):
    """Returns activations of some kind, often of dead children."""
    kind = one_of(rng, ["zero", "pruned", "random", "ladder", "equal_large"])
    return np.abs(filled(kind, shape, rng, largest))


def limit(chosen, dtype, rng):
    """Draws how large values may be, and whether there is a gradient."""
    # By the activations of dead children EM's is votes times 1e9.
    of_em = isinstance(chosen, routing.EMRouting) and dtype == "float16"
    differentiated = bool(rng.integers(2)) and not of_em
    return LARGEST[dtype][differentiated], differentiated


@tried(ROUTINGS)
def test_routing(row, rng, kinds):
    chosen, dtype = row.make(), one_of(rng, LARGEST)
    batch, children, parents, dim, components = sizes(rng, 5)
    children *= getattr(chosen, "types", 1)
    is_factored = chosen.vote_free and rng.integers(2)
    largest, differentiated = limit(chosen, dtype, rng)
    shapes = [(batch, children, parents, dim)]
    if is_factored:
        maps = (children, parents, components, dim)
        shapes = [(batch, 1, children, components), maps]
    factors = [
        ops.cast(filled(kind, shape, rng, largest), dtype)
        for kind, shape in zip(kinds, shapes, strict=False)
    ]
    others = {}
    if rng.integers(2):
        # Lengths may be anything, but for what is no length.
        most = 1.0 if chosen.explicit_activations else largest
        active = filled_activations((batch, children), rng, most)
        others["activations"] = active
    if rng.integers(2):
        kind = "random" if is_factored else kinds[1]
        for name, weight in chosen.weights(children, parents, dim).items():
            others[name] = filled(kind, weight.shape, rng, largest)

    def route(others, factors):
        votes = factors[0]
        if is_factored:
            votes = FactoredVotes([Block(*factors)])
        return tuple(chosen(votes, **others))

    poses, activations, couplings = computed(
        route, [others, factors], rng, dtype, differentiated
    )
    assert_in_range(activations)
    if not chosen.explicit_activations:
        assert_lengths(poses, "float32")
    assert_couplings(couplings, chosen)


@tried(LAYERS)
def test_layer(row, rng, kinds):
    dtype = one_of(rng, LARGEST)
    policy = "float32" if dtype == "float32" else f"mixed_{dtype}"
    layer = row.make(dtype=policy)
    if reads_stale_memory(layer, dtype):
        return
    chosen = getattr(layer, "routing", None)
    of_maps = isinstance(layer, layers.ConvCaps3D)
    call = row.call
    if chosen is not None:
        call = {"return_couplings": True} if of_maps else ALL
    row = dataclasses.replace(row, call=call)
    largest, differentiated = limit(chosen, dtype, rng)
    kind, weight_kind = kinds
    (batch,) = sizes(rng, 1)
    first, *more = row.inputs if isinstance(row.inputs, list) else [row.inputs]
    inputs = filled(kind, (batch, *first), rng, largest)
    inputs = ops.cast(inputs, layer.compute_dtype)
    if more:
        inputs = [inputs, filled_activations((batch, *more[0]), rng)]
    row.apply(layer, inputs)
    spoil(layer, weight_kind, rng, largest)
    weights = layer.trainable_variables
    outputs = computed(
        with_weights(lambda x: row.apply(layer, x), weights),
        [[weight.value for weight in weights], inputs],
        rng,
        dtype,
        differentiated,
    )
    if isinstance(layer, layers.PrimaryMatrixCaps):
        assert_in_range(outputs[1])
    if chosen is None:
        if hasattr(layer, "squash"):
            assert_lengths(outputs, dtype)
        return
    poses, *activations, couplings = outputs
    for tensor in activations:
        assert_in_range(tensor)
    if not chosen.explicit_activations:
        assert_lengths(poses, dtype)
    elif isinstance(layer, layers.ConvCaps):
        # A child's shares are spread over the windows that hold it.
        return assert_in_range(couplings)
    return assert_couplings(couplings, chosen, (1, 2, 4) if of_maps else -1)


@tried([row for row in LOSSES if row.of == "classes"])
def test_loss_of_lengths(row, rng, kinds):
    dtype = one_of(rng, LARGEST)
    loss, largest = row.make(dtype=dtype), LARGEST[dtype][dtype == "float16"]
    batch, classes = sizes(rng, 2)
    classes += isinstance(loss, losses.SpreadLoss)  # one has no others
    predictions = filled(kinds[0], (batch, classes), rng, largest)
    # Also none of the classes, or several.
    targets = rng.integers(0, 2, size=(batch, classes))
    if rng.integers(2):
        targets = rng.integers(-1, classes + 1, size=batch)
    value = computed(lambda x: loss(targets, x), [predictions], rng, dtype)
    unbounded = row.name.startswith("evidence")
    assert float(value) >= 0.0 or unbounded


def reads_stale_memory(layer, dtype):
    """Says whether TensorFlow may, where strides exceed the kernel (oneDNN)."""
    return dtype == "bfloat16" and any(
        any(map(operator.gt, part.strides, part.kernel_size))
        for part in layer._flatten_layers()
        if isinstance(part, (keras.layers.Conv2D, keras.layers.DepthwiseConv2D))
    )


def computed(function, values, rng, dtype, differentiated=True):
    """Returns outputs, which are finite, as gradients are.

    In float16 a loss is scaled, here down to the size of the largest values.
    Couplings of scaled distances, float32, have a derivative of up to 1e12.
    """

    def upstream_of(output):
        own = keras.backend.standardize_dtype(output.dtype)
        scale = 1.0
        if dtype == "float16":
            scale = 1e-4 if own == "float16" else 1e-16
        return ops.cast(scale * rng.normal(size=output.shape), own)

    outputs = function(*values)
    assert_finite(outputs)
    if differentiated:
        upstream = keras.tree.map_structure(upstream_of, outputs)
        assert_finite(
            value_and_gradients(function, *values, upstream=upstream)[1]
        )
    return outputs


def spoil(layer, kind, rng, largest):
    """Fills the weights of a layer; those of a network it scales.

    What has several layers would multiply large weights, and routing may
    multiply votes by its own.
    """
    for weight in layer.weights:
        if isinstance(layer, layers.Decoder):
            if kind in ("zero", "pruned") and "moving" not in weight.name:
                weight.assign(weight * filled(kind, weight.shape, rng, 1.0))
            continue
        of_votes = weight.name in ("transformation", "kernel")
        is_large = kind in LARGE
        small = is_large and hasattr(layer, "routing") and not of_votes
        values = filled("random" if small else kind, weight.shape, rng, largest)
        weight.assign(values)


def numpy(tensor):
    return np.asarray(ops.cast(tensor, "float32"))


def assert_finite(structure):
    for tensor in keras.tree.flatten(structure):
        assert np.all(np.isfinite(numpy(tensor))), tensor


def assert_lengths(poses, dtype):
    lengths = np.linalg.norm(numpy(poses).astype("float64"), axis=-1)
    assert np.all(lengths <= 1.0 + ROUNDING[dtype]), lengths


def assert_in_range(shares):
    shares = numpy(shares)
    assert np.all(shares >= 0.0), shares
    assert np.all(shares <= 1.0 + ROUNDING["float32"]), shares


def assert_couplings(couplings, chosen, axis=-1):
    """Checks that couplings are shares, as far as the routing says so."""
    couplings = numpy(couplings)
    learnt = isinstance(chosen, routing.RegularizedRouting)
    if learnt and not chosen.levels:
        return
    assert_in_range(couplings)
    if learnt or chosen.levels:
        return
    sums = couplings.sum(axis=axis)
    assert np.all(sums <= 1.0 + ROUNDING["float32"]), sums
    others = [
        getattr(chosen, n, 0) for n in ("leaky", "silent_parents", "orphan")
    ]
    if not any(others):
        assert np.all(sums >= 1.0 - ROUNDING["float32"]), sums
