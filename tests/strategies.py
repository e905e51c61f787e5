"""What property tests draw: settings, shapes and values, usual or extreme."""

from functools import partial

import numpy as np
from hypothesis import assume, settings
from hypothesis import strategies as st

from tests.cases import LayerCase
from tests.networks import (
    SMALL_NETWORKS,
    backbone_capsnet,
    backbone_parts_capsnet,
)
from tests.nightly import NIGHTLY
from tfcaps import layers, losses, models, routing

# The largest value by type. Squared lengths of float32 end at 3e38, and a sum
# of a hundred votes of 1e15 has one of 1e34. In float16 numbers end at 65,504:
# sums of six values of 1e4.
LARGEST = {"float32": 1e15, "bfloat16": 1e15, "float16": 1e4}
# Layers of float16 sum up more than six products.
LARGEST_IN_LAYERS = {**LARGEST, "float16": 500.0}
# Squares of float16, summed over a small image.
LARGEST_IN_LOSSES = {**LARGEST, "float16": 40.0}
# Networks multiply layer by layer; raw pixels are the largest images there are.
LARGEST_IMAGE = 255.0

POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}

# At most one factor of a product is of a large kind.
ORDINARY = ("zero", "tiny", "random", "equal", "pruned", "ladder")
LARGE = ("large", "equal_large", "mixed")
ALL_KINDS = ORDINARY + LARGE

dtypes = st.sampled_from(list(LARGEST))
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 3)
windows = st.integers(1, 2)
paddings = st.sampled_from(["valid", "same"])
kinds = st.sampled_from(
    [(one, other) for one in ORDINARY for other in ALL_KINDS]
    + [(one, other) for one in LARGE for other in ORDINARY]
)


def cases(in_ci, nightly):
    """Returns how many cases a test tries: the same in CI, new ones at night.

    What fails is printed, with a line that repeats it.
    """
    return settings(
        max_examples=nightly if NIGHTLY else in_ci,
        derandomize=not NIGHTLY,
        print_blob=True,
        database=None,
        deadline=None,
    )


def _made(function, *arguments, **named):
    """Returns a strategy of what makes an object, which is shown if it fails.

    Arguments that are no strategies are taken as they are.
    """

    def strategy(value):
        return value if isinstance(value, st.SearchStrategy) else st.just(value)

    named = {name: strategy(value) for name, value in named.items()}
    return st.builds(
        partial, st.just(function), *map(strategy, arguments), **named
    )


_ROUTED = {
    "levels": st.none() | st.integers(2, 11),
    "levels_mode": st.sampled_from(["midtread", "midrise"]),
}
_SILENT = {"silent_parents": st.integers(0, 2)}
_MODES = {**_ROUTED, "gradient": st.sampled_from(["last", "full"])}
_SHARP = {**_MODES, "sharpness": st.sampled_from([0.1, 30.0, 200.0])}
_LOOPS = {**_MODES, "iterations": st.integers(1, 3) | st.integers(1, 10)}

ROUTINGS = {
    routing.DynamicRouting: _made(
        routing.DynamicRouting, leaky=st.booleans(), **_LOOPS, **_SILENT
    )
    | _made(
        routing.DynamicRouting,
        leaky=True,
        orphan=st.sampled_from([-1.0, 0.02, 0.5]),
        orphan_mode=st.sampled_from(["fixed", "learned"]),
        sharpness_mode=st.sampled_from(["fixed", "scheduled", "learned"]),
        **{**_LOOPS, **_SHARP},
    ),
    routing.EMRouting: _made(
        routing.EMRouting,
        variant=st.sampled_from(["paper", "code"]),
        inverse_temperature=st.sampled_from([0.01, 1.0]),
        epsilon=st.sampled_from([1e-9, 0.01]),
        **_LOOPS,
    ),
    routing.MeanShiftRouting: _made(
        routing.MeanShiftRouting,
        steps=st.integers(1, 3),
        width=st.sampled_from([0.1, 2.0, 100.0]),
        **_ROUTED,
    ),
    routing.RegularizedRouting: _made(
        routing.RegularizedRouting, st.sampled_from(["l1", "l2"]), **_ROUTED
    ),
    routing.ScaledDistanceRouting: _made(
        routing.ScaledDistanceRouting,
        distance_scale=st.sampled_from(["capsule", "sample", "batch"]),
        **_LOOPS,
    ),
    routing.SelfAttentionRouting: _made(routing.SelfAttentionRouting, **_SHARP),
    routing.UniformRouting: _made(routing.UniformRouting, **_ROUTED, **_SILENT),
}
# Those of layers that leave silent children out, or take no other weights.
_QUIET = [routing.DynamicRouting, routing.UniformRouting]
_BIASED = [*_QUIET, routing.ScaledDistanceRouting]


def largest_with_gradient(chosen, dtype, is_factored):
    """Returns the largest votes of which a routing's gradient is demanded.

    Above this the derivative, or its rounding error, may be beyond the type.
    """
    full = getattr(chosen, "differentiates_loop", False)
    if is_factored and isinstance(chosen, routing.ScaledDistanceRouting):
        # Squared poses, over lengths of 1e-19 and a mean distance of 1e-12.
        return 1e3
    if isinstance(chosen, routing.EMRouting):
        # By the activations of dead children it is votes times 1e9, which is
        # one over the least mass, and squared votes over variances; a loop
        # multiplies them.
        if dtype == "float16":
            return 0.0
        return 1e2 if full else 1e12
    if isinstance(chosen, routing.DynamicRouting) and full:
        # Each iteration may multiply it by a vote.
        room = 1e8 if dtype == "float16" else 1e25
        return room ** (1.0 / chosen.iterations)
    return np.inf


def _routing(draw, classes=tuple(ROUTINGS)):
    """Draws a routing, sharing its cases evenly among the classes."""
    return draw(st.sampled_from(classes).flatmap(ROUTINGS.get))()


def _routed(draw, classes=tuple(ROUTINGS)):
    """Draws settings of a routed layer, and whether parents are matrices."""
    dim, is_matrix = draw(
        st.sampled_from([(1, False), (3, False), (4, False), (4, True)])
    )
    return {
        "dim": dim,
        "matrix": is_matrix,
        "routing": _routing(draw, classes),
        "use_bias": draw(st.booleans()),
    }


_ALL = {"return_activations": True, "return_couplings": True}


def _row(make, inputs, activations=None, call=None):
    """Returns a row of the registry, with activations of these axes or none."""
    if activations is not None:
        inputs = [inputs, activations]
    return LayerCase("drawn", make, inputs, 0, call or {})


def _shape(draw, axes):
    return tuple(draw(sizes) for _ in range(axes))


def _activations(draw, routed, children):
    """Draws whether a layer gets activations, which `EMRouting` wants."""
    wanted = routed["routing"].explicit_activations or draw(st.booleans())
    return children if wanted else None


@st.composite
def _class_caps(draw):
    routed = _routed(draw)
    axes = draw(st.sampled_from([1, 3]))
    shares = [None, "all", "type"] if axes > 1 else [None, "all"]
    share = draw(st.sampled_from(shares))
    is_matrix = routed["matrix"]
    coordinates = axes > 1 and is_matrix and draw(st.booleans())
    children = _shape(draw, axes)
    components = routed["dim"] if is_matrix else draw(sizes)
    make = partial(
        layers.ClassCaps,
        draw(sizes),
        share=share,
        coordinates=coordinates,
        **routed,
    )
    activations = _activations(draw, routed, children)
    return _row(make, (*children, components), activations, _ALL)


@st.composite
def _compact_caps(draw):
    quiet = [*_BIASED, routing.SelfAttentionRouting]
    routed = _routed(draw, quiet)
    if isinstance(routed["routing"], routing.ScaledDistanceRouting):
        routed["routing"].distance_scale = "capsule"
    inside = _shape(draw, draw(st.sampled_from([1, 3])))
    shares = [None, "type", "all"] if len(inside) == 3 else [None]
    share = draw(st.sampled_from(shares))
    grid = inside if share else (int(np.prod(inside)),)
    grid = (*grid[:-1], grid[-1] + draw(st.integers(0, 2)))
    counted = inside[-1] if share else int(np.prod(inside))
    voting = draw(st.integers(1, counted))
    components = routed["dim"] if routed["matrix"] else draw(sizes)
    make = partial(
        layers.CompactCaps,
        draw(sizes),
        grid=grid,
        sources=tuple(range(voting)),
        origins=tuple(range(grid[-1]))[-voting:],
        share=share,
        **routed,
    )
    return _row(make, (*inside, components), None, _ALL)


@st.composite
def _conv_caps(draw):
    routed = _routed(draw)
    rows, columns, types = draw(st.tuples(windows, sizes, sizes))
    padding = draw(paddings)
    window = draw(windows), draw(windows)
    if padding == "valid":
        window = min(window[0], rows), min(window[1], columns)
    components = routed["dim"] if routed["matrix"] else draw(sizes)
    make = partial(
        layers.ConvCaps,
        draw(windows),
        kernel_size=window,
        strides=draw(windows),
        padding=padding,
        share_types=draw(st.booleans()),
        **routed,
    )
    children = (rows, columns, types)
    activations = _activations(draw, routed, children)
    return _row(make, (*children, components), activations, _ALL)


@st.composite
def _conv_caps_3d(draw):
    squash = draw(st.sampled_from(["capsule", "map"]))
    chosen = _routing(draw, _BIASED if squash == "capsule" else _BIASED[:1])
    assume(set(chosen.weights(1, 2, 3)) == {"bias"})  # as the layer wants
    shape = *_shape(draw, 3), draw(sizes)
    make = partial(
        layers.ConvCaps3D,
        draw(windows),
        draw(sizes),
        1 if draw(st.booleans()) else min(shape[:2]),
        draw(paddings),
        chosen,
        bias=draw(st.sampled_from(["routing", "votes", None])),
        squash=squash,
        depth=draw(st.none() | st.integers(1, shape[-1])),
    )
    return _row(make, shape, None, {"return_couplings": True})


@st.composite
def _convolution(draw, public_class):
    is_map = public_class is layers.CapsuleConv2D
    is_matrix = public_class is layers.PrimaryMatrixCaps
    types, dim = draw(sizes), draw(sizes)
    more = {}
    if not is_matrix:
        more = {
            "squash": draw(st.sampled_from(["hinton", "efficient"])),
            "use_bias": draw(st.booleans()),
            "depthwise": not is_map and draw(st.booleans()),
        }
    channels = _shape(draw, 2 if is_map else 1)
    if more.get("depthwise"):
        channels = (types * dim,)
    rows, columns = draw(sizes), draw(sizes)
    window = min(draw(windows), rows), min(draw(windows), columns)
    make = partial(
        public_class, types, dim, window, draw(windows), draw(paddings), **more
    )
    return _row(make, (rows, columns, *channels))


@st.composite
def _constellation_caps(draw):
    children = _shape(draw, 3)
    make = partial(
        layers.ConstellationCaps,
        draw(sizes),
        routing.MeanShiftRouting(steps=draw(windows)),
        stride=draw(windows),
    )
    return _row(make, (*children, 2), children, _ALL)


@st.composite
def _part_caps(draw):
    make = partial(
        layers.PartCaps, draw(sizes), draw(st.sampled_from([1, 3])), draw(sizes)
    )
    return _row(make, _shape(draw, 3))


@st.composite
def _template_decoder(draw):
    step, (rows, columns, types) = draw(windows), _shape(draw, 3)
    image = (step * rows, step * columns, draw(sizes))
    size = draw(st.sampled_from([3, 5]))
    make = partial(layers.TemplateDecoder, image, size)
    return _row(make, (rows, columns, types))


@st.composite
def _decoder(draw):
    network, image = draw(
        st.sampled_from(
            [("dense", (1, 1, 1)), ("dense", (2, 1, 3))] * 2
            + [("deconvolution", (4, 8, 1)), ("upsampling", (24, 24, 1))]
        )
    )
    independent = draw(st.booleans())
    make = partial(layers.Decoder, image, network, independent)
    poses = _shape(draw, 2)
    return _row(make, poses, poses[:1] if draw(st.booleans()) else None)


@st.composite
def _elementwise(draw, make):
    return _row(draw(make), _shape(draw, draw(st.integers(1, 4))))


LAYERS = {
    layers.CapsuleConv2D: _convolution(layers.CapsuleConv2D),
    layers.ClassCaps: _class_caps(),
    layers.CompactCaps: _compact_caps(),
    layers.ConstellationCaps: _constellation_caps(),
    layers.ConvCaps: _conv_caps(),
    layers.ConvCaps3D: _conv_caps_3d(),
    layers.Decoder: _decoder(),
    layers.Length: _elementwise(_made(layers.Length)),
    layers.PartCaps: _part_caps(),
    layers.PrimaryCaps: _convolution(layers.PrimaryCaps),
    layers.PrimaryMatrixCaps: _convolution(layers.PrimaryMatrixCaps),
    layers.Squash: _elementwise(
        _made(layers.Squash, st.sampled_from(["hinton", "efficient"]))
    ),
    layers.TemplateDecoder: _template_decoder(),
}

_REDUCTION = {"reduction": st.sampled_from(["sum_over_batch_size", "sum"])}

# A loss, and how many axes its predictions have besides the batch.
LOSSES = {
    losses.CounterfactualLoss: (
        _made(
            losses.CounterfactualLoss,
            *[st.sampled_from([0.0, 1.0])] * 2,
            margin=st.sampled_from([None, 0.2]),
            **_REDUCTION,
        ),
        2,
    ),
    losses.CouplingLoss: (
        _made(
            losses.CouplingLoss,
            st.sampled_from([0.0, 1.0]),
            st.sampled_from([0.0, 1.0]),
            st.sampled_from([0.0, 1.0]),
            **_REDUCTION,
        ),
        2,
    ),
    losses.EvidenceLoss: (
        _made(losses.EvidenceLoss, st.sampled_from([0.0, 0.2]), **_REDUCTION),
        1,
    ),
    losses.MarginLoss: (_made(losses.MarginLoss, **_REDUCTION), 1),
    losses.PresenceLoss: (_made(losses.PresenceLoss, **_REDUCTION), 3),
    losses.ReconstructionLoss: (
        _made(losses.ReconstructionLoss, **_REDUCTION),
        3,
    ),
    losses.SpreadLoss: (
        _made(losses.SpreadLoss, st.sampled_from([0.2, 1.0]), **_REDUCTION),
        1,
    ),
}


def _network(function, routings, **settings):
    """Returns a strategy of a network of `tests.networks` with few classes."""
    small = SMALL_NETWORKS[function.__name__]
    image_shape, _ = small.args
    return _made(
        function,
        image_shape,
        sizes,
        decoder=st.booleans(),
        routing=st.sampled_from(routings),
        **{**small.keywords, **settings},
    )


_ANY = [1, 3, "em", "regularized", "scaled_distance", "self_attention"]
MODELS = {
    models.affine_capsnet: _network(models.affine_capsnet, ["uniform", *_ANY]),
    models.backbone_capsnet: _network(backbone_capsnet, _ANY),
    models.backbone_parts_capsnet: _network(backbone_parts_capsnet, _ANY),
    models.constellation_capsnet: _made(
        models.constellation_capsnet,
        (12, 12, 1),
        sizes,
        part_types=sizes,
        filters=(4,),
        kernel_size=3,
        window=3,
    ),
    models.parts_capsnet: _network(models.parts_capsnet, _ANY),
    models.deepcaps: _network(
        models.deepcaps,
        [1, 3, "scaled_distance", "uniform"],
        variant=st.sampled_from(["corrected", "rem"]),
    ),
    models.dr_capsnet: _network(models.dr_capsnet, _ANY),
    models.efficient_capsnet: _network(models.efficient_capsnet, _ANY),
    models.efficient_conv_capsnet: _network(
        models.efficient_conv_capsnet, _ANY
    ),
    models.em_capsnet: _network(models.em_capsnet, [None, *_ANY]),
    models.gamma_capsnet: _network(models.gamma_capsnet, _ANY),
    models.multilayer_capsnet: _network(models.multilayer_capsnet, _ANY),
}
