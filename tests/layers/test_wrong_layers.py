"""Errors of layers: wrong settings, and inputs that do not fit."""

import re
from functools import partial

import keras
import numpy as np
import pytest

from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    CompactCaps,
    ConstellationCaps,
    ConvCaps,
    ConvCaps3D,
    Decoder,
    PartCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
    TemplateDecoder,
)
from tfcaps.routing import DynamicRouting, ScaledDistanceRouting

CLASS_CAPS = partial(ClassCaps, 10, 16)
CONV_CAPS = partial(ConvCaps, 3, 4)
CONV_CAPS_3D = partial(ConvCaps3D, 2, 4)
CONSTELLATION = partial(ConstellationCaps, 3)
DECODER = partial(Decoder, (28, 28, 1))
MATRIX = partial(ClassCaps, 2, matrix=True)

TWO_INTS = "be an int or two ints of at least 1"
SQUASHES = "be one of ('hinton', 'efficient')"
SHAPE = "be (rows, columns, channels)"
ONE_BIAS = "takes a routing whose only weight is a bias of its parents. Rece"


def compact_caps(**changes):
    voting = {"grid": (9,), "sources": [0, 2], "origins": [1, 7], **changes}
    return CompactCaps(3, 4, **voting)


def refused(said):
    return pytest.raises(ValueError, match=re.escape(said))


@pytest.mark.parametrize(
    ("layer", "count", "arguments"),
    [
        (ClassCaps, "num_capsules", (0, 16)),
        (ClassCaps, "num_capsules", ("10", 16.5)),
        (ConvCaps, "num_types", (3, 0, 2)),
        (ConvCaps3D, "num_types", (0, 4)),
        (CapsuleConv2D, "num_types", (2, 0)),
        (PrimaryCaps, "num_types", (2, 0, 3)),
        (PrimaryMatrixCaps, "num_types", (0, 16)),
    ],
)
def test_sizes_must_be_integers_of_at_least_1(layer, count, arguments):
    given, dim, *_ = arguments
    with refused(
        f"`{count}` and `dim` must be integers of at least 1. Received: "
        f"{count}={given!r}, dim={dim!r}."
    ):
        layer(*arguments)


@pytest.mark.parametrize(
    ("make", "name", "value", "must"),
    [
        (CLASS_CAPS, "share", "position", "be one of (None, 'type', 'all')"),
        (CONV_CAPS, "kernel_size", (2, 0), TWO_INTS),
        (CONV_CAPS, "kernel_size", True, TWO_INTS),
        (partial(CONV_CAPS, 2), "strides", (1, 1, 1), TWO_INTS),
        (partial(CONV_CAPS, 2), "padding", "causal", 'be "valid" or "same"'),
        (CONV_CAPS_3D, "bias", "all", 'be None, "routing" or "votes"'),
        (CONV_CAPS_3D, "squash", "efficient", 'be "capsule" or "map"'),
        (partial(PrimaryCaps, 2, 4, 3), "squash", "none", SQUASHES),
        (Squash, "squash", "map", SQUASHES),
        (Decoder, "image_shape", (28, 28), SHAPE),
        (Decoder, "image_shape", (28, 0, 1), SHAPE),
        (Decoder, "image_shape", 28, SHAPE),
        (DECODER, "network", 5, "be a name or a Keras layer"),
        (DECODER, "network", "convolution", "be one of ('dense', 'deconvolu"),
        (partial(PartCaps, 2), "window", 4, "be odd"),
        (partial(TemplateDecoder, (8, 8, 1)), "size", 4, "be odd"),
        (CONSTELLATION, "stride", 0, "be above 0"),
        (CONSTELLATION, "apart", 0, "be above 0"),
        (CONSTELLATION, "spread", -1, "not be negative"),
        (CONSTELLATION, "repulsion", -1, "not be negative"),
        (CONSTELLATION, "instances", 0, "be integers of"),
    ],
)
def test_wrong_settings_are_refused(make, name, value, must):
    with refused(f"`{name}` must {must}") as error:
        make(**{name: value})
    assert f" Received: {name}={value!r}." in str(error.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(CLASS_CAPS, "none"), "`routing` must be a number of iteratio"),
        (partial(MATRIX, 8), "must be a square, such as 16 for 4x4. Received:"),
        (
            partial(ClassCaps, 2, 16, coordinates=True),
            "`coordinates` are added to matrices of at least two rows. "
            "Received: matrix=False, dim=16.",
        ),
        (partial(MATRIX, 1, coordinates=True), "Received: matrix=True, dim=1."),
        (partial(CONV_CAPS_3D, routing="em"), f"{ONE_BIAS}ived: EMRouting."),
        (
            partial(CONV_CAPS_3D, routing="self_attention"),
            f"{ONE_BIAS}ived: SelfAttentionRouting.",
        ),
        (
            partial(CONV_CAPS_3D, routing="uniform", squash="map"),
            '`squash="map"` is for DynamicRouting. Received: UniformRouting.',
        ),
        (
            partial(Decoder, (28, 30, 1), "deconvolution"),
            "needs sides divisible by 4. Received: image_shape=(28, 30, 1).",
        ),
        (
            partial(Decoder, (16, 24, 1), "upsampling"),
            'The network "upsampling" needs sides of at least 24 that are '
            "divisible by 8. Received: image_shape=(16, 24, 1).",
        ),
        (partial(PartCaps, 0), "`num_types` and `window` must be integers"),
        (partial(PartCaps, 2, stride=0), "`stride` and `power` must be above"),
        (
            partial(CONSTELLATION, DynamicRouting()),
            "`routing` must be a `tfcaps.routing.MeanShiftRouting`",
        ),
        *(
            (
                partial(compact_caps, **settings),
                "CompactCaps takes a routing for which children that vote zero "
                "do not count, and no `coordinates`. Received: routing=",
            )
            for settings in (
                {"routing": "regularized"},
                {"routing": ScaledDistanceRouting(distance_scale="sample")},
                {"matrix": True, "coordinates": True},
            )
        ),
        *(
            (
                partial(compact_caps, **settings),
                "`origins` must be different children of `grid`, one for each "
                "of `sources`. Received: grid=",
            )
            for settings in (
                {"grid": (3, 3)},
                {"grid": (1, 1, 3, 3)},
                {"grid": (9,), "share": "type"},
                {"grid": (3, 3, 7), "share": "type"},
                {"origins": [], "sources": []},
                {"origins": [1]},
                {"sources": [1, 2, 3]},
                {"origins": [7, 7]},
                {"origins": [1, 9]},
                {"origins": [-1, 7]},
            )
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(make, said):
    with refused(said):
        make()


KNOWN = ", all known but the batch. Rec"
ANY = "capsules [batch, children, components] or [batch, rows, columns, types, "
ANY += f"components]{KNOWN}"
MAP = "takes capsules [batch, rows, columns, types, components]"
FEATURES = "takes a feature map [batch, rows, columns, channels]"
SPATIAL = "needs spatial capsules [batch, rows, columns, types, components]"
SOURCES = "`sources` must be from 0 to 1 for the input shape (None, "


@pytest.mark.parametrize(
    ("layer", "shape", "said"),
    [
        (CLASS_CAPS(), (6, 6, 4), f"ClassCaps takes {ANY}"),
        (CLASS_CAPS(), (None, 4), f"ClassCaps takes {ANY}"),
        (compact_caps(), (3, 3, 4), f"CompactCaps takes {ANY}"),
        (CONV_CAPS(2), (16, 2, 3), f"ConvCaps {MAP}{KNOWN}"),
        (CONV_CAPS(2), (None, 4, 2, 3), f"ConvCaps {MAP}{KNOWN}"),
        (CONV_CAPS_3D(), (None, 4, 2, 3), f"ConvCaps3D {MAP}{KNOWN}"),
        (CapsuleConv2D(2, 4), (5, 5, 6), f"CapsuleConv2D {MAP}. Rec"),
        (PrimaryCaps(2, 4, 3), (5, 5), f"PrimaryCaps {FEATURES}. Rec"),
        (PrimaryMatrixCaps(2), (4, 3), f"PrimaryMatrixCaps {FEATURES}. Rec"),
        (PartCaps(2), (None, 4, 3), f"PartCaps {FEATURES}{KNOWN}"),
        (
            Decoder((4, 4, 1)),
            (2, 2, 3, 4),
            "Decoder takes class poses [batch, classes, components]. Received: "
            "input_shape=(None, 2, 2, 3, 4).",
        ),
        (ClassCaps(10, 16, share="type"), (5, 4), f'`share="type"` {SPATIAL}'),
        (MATRIX(16, coordinates=True), (12, 16), f"`coordinates` {SPATIAL}"),
        (
            ConvCaps(2, 16, 2, matrix=True),
            (4, 4, 2, 9),
            "Matrix capsules keep their shape. Received: children of 9 "
            "components for dim=16.",
        ),
        (
            CONV_CAPS((2, 5)),
            (4, 4, 2, 3),
            "A window of (2, 5) does not fit into a map of 4 rows and 4 column",
        ),
        *(
            (
                CONV_CAPS_3D(depth=depth),
                (4, 4, 2, 3),
                "`depth` must be from 1 to the components of a child. Received:"
                f" depth={depth}, input_shape=(None, 4, 4, 2, 3).",
            )
            for depth in (4, -1)
        ),
        (
            PrimaryCaps(2, 4, 3, depthwise=True),
            (5, 5, 6),
            "Depthwise PrimaryCaps need num_types * dim channels, here 8. "
            "Received: input_shape=(None, 5, 5, 6).",
        ),
        (compact_caps(), (2, 4), f"{SOURCES}2, 4). Received: sources=(0, 2)."),
        (
            compact_caps(sources=[-1, 1]),
            (2, 4),
            f"{SOURCES}2, 4). Received: sources=(-1, 1).",
        ),
        (
            compact_caps(grid=(3, 3, 8), share="type"),
            (3, 3, 2, 4),
            f"{SOURCES}3, 3, 2, 4). Received: sources=(0, 2).",
        ),
        (
            compact_caps(grid=(3, 3, 8), share="type"),
            (9, 4),
            f'`share="type"` {SPATIAL}',
        ),
        (CONSTELLATION(), (8, 8, 2, 3), "ConstellationCaps takes places"),
        (
            TemplateDecoder((9, 20, 1)),
            (4, 4, 2),
            "Images must have a whole number of pixels for each place",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_inputs_that_do_not_fit_are_refused(layer, shape, said):
    with refused(said):
        layer(keras.Input(shape))


@pytest.mark.parametrize(
    ("layer", "poses", "activations"),
    [
        (ClassCaps(3, 4), (6, 4, 8), (4, 6)),
        (ClassCaps(3, 4), (6, 4, 8), (6, 4, 1)),
        (ConvCaps(3, 4, 3), (6, 3, 3, 2, 8), (3, 3, 6)),
    ],
)
def test_activations_of_another_shape_are_refused(layer, poses, activations):
    with refused("`activations` must have the shape of the poses without its"):
        layer(np.zeros(poses, "float32"), np.zeros(activations, "float32"))
