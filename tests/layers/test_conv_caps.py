"""Convolutions of capsules: the primary ones, ConvCaps, ConvCaps3D."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients, with_weights
from tests.networks import built
from tests.registry import ALL
from tests.tolerance import assert_all_close, assert_close
from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    ConvCaps,
    ConvCaps3D,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.routing import DynamicRouting, EMRouting


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("name", ["a", "b"])
def test_conv_caps_equals_the_public_implementation(name, iterations):
    golden, at = load(f"06_conv_capsules_{name}"), f"iter{iterations}"
    children, weights, bias = (
        golden[k] for k in ("input_poses", "weights", "bias")
    )
    sizes = *bias.shape, int(golden["kernel"]), int(golden["stride"])
    layer = ConvCaps(*sizes, routing=iterations)
    built(layer, children.shape, [weights, bias])
    names = ("poses", "activations", "couplings")
    outputs = dict(zip(names, layer(children, **ALL), strict=True))
    assert_golden(golden, f"{{}}_{at}", **outputs)
    _, ([matrices], children) = value_and_gradients(
        with_weights(layer, [layer.transformation]),
        [weights],
        children,
        upstream=golden["upstream"],
    )
    gradients = {"input": children, "weights": matrices}
    assert_golden(golden, f"grad_{{}}_last_only_{at}", 2e-4, **gradients)


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("name", ["a", "b"])
def test_em_conv_caps_equals_the_public_implementation(name, iterations):
    golden = load(f"07_em_conv_{name}")
    children = golden["input_poses"]
    children = children.reshape(*children.shape[:4], 16)
    routing = EMRouting(iterations, float(golden["final_lambda_f64"]))
    kernel, stride = int(golden["kernel"]), int(golden["stride"])
    parents = len(golden["beta_u"])
    layer = ConvCaps(parents, 16, kernel, stride, "valid", routing, matrix=True)
    weights = [golden[w] for w in ("weights", "beta_u", "beta_a")]
    built(layer, children.shape, weights)
    poses, active, shares = layer(children, golden["input_activations"], **ALL)
    poses = np.reshape(poses, golden[f"poses_iter{iterations}"].shape)
    outputs = {"poses": poses, "activations": active}
    assert_golden(golden, f"{{}}_iter{iterations}", 5e-5, **outputs)
    if iterations == 3:
        assert_golden(golden, "{}_iter3", 5e-5, assignments=shares)


@pytest.mark.parametrize(
    ("routing", "matrix", "strides"),
    [
        (2, False, (1, 2)),
        ("scaled_distance", False, (1, 2)),
        ("self_attention", False, (1, 2)),
        (3, True, (1, 2)),
        # Windows of EM compete for children: these share none.
        (EMRouting(3, inverse_temperature=0.1), True, (3, 2)),
    ],
    ids=["dynamic", "scaled_distance", "self_attention", "matrix", "em"],
)
def test_each_window_is_class_caps(routing, matrix, strides, rng):
    poses = rng.normal(size=(2, 6, 5, 2, 4)).astype("float32")
    activations = rng.uniform(0.1, 0.9, size=(2, 6, 5, 2)).astype("float32")
    settings = {"routing": routing, "matrix": matrix}
    conv = built(ConvCaps(3, 4, (3, 2), strides, **settings), poses.shape, rng)
    matrices, *others = conv.get_weights()
    matrices = matrices.reshape(12, *matrices.shape[3:])
    full = built(ClassCaps(3, 4, **settings), (2, 12, 4), [matrices, *others])
    corners = np.ndindex(3 // strides[0] + 1, 2)
    corners = [(strides[0] * y, strides[1] * x) for y, x in corners]

    def windows_of(maps):
        """Returns the children of all windows, as a batch."""
        cut = [maps[:, y : y + 3, x : x + 2] for y, x in corners]
        return np.concatenate([x.reshape(2, 12, *x.shape[4:]) for x in cut])

    for given in ((poses, activations), (poses,)):
        outputs = conv(*given, **ALL)
        expected = full(*map(windows_of, given), **ALL)
        for output, wanted in zip(outputs, expected, strict=True):
            shape = (2, len(corners), *wanted.shape[1:])
            output = np.reshape(output, shape).swapaxes(0, 1)
            assert_close(output.reshape(wanted.shape), wanted, atol=1e-5)


@pytest.mark.parametrize("routing", [2, EMRouting(2, 0.1)], ids=["", "em"])
@pytest.mark.parametrize(
    ("kernel", "strides", "rows", "columns"),
    [((2, 4), 1, (0, 1), (1, 2)), ((3, 3), (2, 3), (1, 1), (0, 0))],
)
def test_same_padding_is_zeros_around_the_map(
    kernel, strides, rows, columns, routing, rng
):
    poses = rng.normal(size=(2, 5, 6, 2, 4)).astype("float32")
    activations = rng.uniform(0.1, 0.9, size=(2, 5, 6, 2)).astype("float32")
    same, valid = (
        ConvCaps(3, 4, kernel, strides, padding, routing, matrix=True)
        for padding in ("same", "valid")
    )
    built(same, poses.shape, rng)
    edges = [(0, 0), rows, columns, (0, 0)]
    padded = np.pad(poses, [*edges, (0, 0)]), np.pad(activations, edges)
    built(valid, padded[0].shape, same.get_weights())
    outputs, expected = (
        layer(*given, return_activations=True)
        for layer, given in ((same, (poses, activations)), (valid, padded))
    )
    assert_all_close(outputs, expected, atol=1e-5)


# ConvCaps3D routes over all types and positions.


def kernel_of(weights):
    """Turns a kernel `[k, rows, columns, j, d]` into that of our layer."""
    merged = np.transpose(weights, (1, 2, 0, 3, 4))
    return merged.reshape(*merged.shape[:3], -1)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_conv_caps_3d_equals_the_public_implementation(iterations):
    golden, at = load("08_deepcaps_conv3d"), f"iter{iterations}"
    routing = DynamicRouting(iterations, gradient="full")
    layer = ConvCaps3D(5, 6, routing=routing, squash="map")
    children, bias = golden["input_poses"], golden["bias"]
    kernel = kernel_of(golden["weights"])
    built(layer, children.shape, [bias, kernel])
    poses, couplings = layer(children, return_couplings=True)
    assert_golden(golden, f"{{}}_{at}", couplings=couplings)
    assert_golden(golden, f"{{}}_intended_{at}", poses=poses)
    # The published layer reads channels-last data as channels-first.
    batch, rows, columns, types, dim = children.shape
    scrambled = children.reshape(batch, types, dim, rows, columns)
    poses = layer(scrambled.transpose(0, 3, 4, 1, 2))
    assert_golden(golden, f"{{}}_as_published_{at}", poses=poses)
    if iterations == 3:
        _, ([kernel, bias], children) = value_and_gradients(
            with_weights(layer, [layer.conv.kernel, layer.bias]),
            [kernel, bias],
            children,
            upstream=golden["upstream"],
        )
        name = "grad_{}_through_iter3"
        assert_golden(golden, name, 1e-4, input=children, bias=bias)
        wanted = kernel_of(golden[name.format("weights")])
        assert_close(kernel, wanted, atol=1e-4)


def test_depth_and_bias_of_votes_equal_the_other_implementation():
    golden = load("08_deepcaps_conv3d_rem_port")
    children, bias = golden["input_poses"], golden["bias"].reshape(-1)
    layer = ConvCaps3D(5, 8, routing=3, bias="votes", depth=3)
    built(layer, children.shape, [kernel_of(golden["weights"]), bias])
    poses, couplings = layer(children, return_couplings=True)
    assert_golden(golden, "{}_iter3", poses=poses, couplings=couplings)
    _, (gradient,) = value_and_gradients(
        layer, children, upstream=golden["upstream"]
    )
    assert_golden(golden, "grad_{}_last_only_iter3", input=gradient)
    assert not np.any(gradient[..., 3:])


@pytest.mark.parametrize("bias", ["routing", "votes", None])
def test_conv_caps_3d_routes_to_all_positions_as_the_reference(bias, rng):
    children = rng.normal(size=(2, 3, 4, 2, 3)).astype("float32")
    layer = ConvCaps3D(2, 4, routing=2, bias=bias)
    built(layer, children.shape, rng)
    poses, couplings = layer(children, return_couplings=True)
    # [b, t, h * w * j, d]
    votes = np.stack([layer.conv(children[:, :, :, t]) for t in (0, 1)], axis=1)
    votes = votes.reshape(2, 2, 3 * 4 * 2, 4)
    added = 0.0
    if bias == "routing":
        added = np.tile(layer.bias.numpy(), (12, 1))
    expected, _, shares = reference.route(layer.routing, votes, bias=added)
    assert_close(poses, expected.reshape(2, 3, 4, 2, 4), atol=1e-5)
    shares = shares.reshape(2, 2, 3, 4, 2)
    assert_close(couplings, np.moveaxis(shares, 1, 3), atol=1e-5)


def test_first_biases_are_those_of_the_publications_and_float32():
    shape = (None, 4, 4, 2, 3)
    layer = built(ConvCaps3D(2, 3, bias="votes"), shape, None)
    np.testing.assert_allclose(layer.conv.bias, np.zeros(6))
    layer = built(ConvCaps3D(2, 4, dtype="mixed_float16"), shape, None)
    np.testing.assert_allclose(layer.bias, np.full((2, 4), 0.1))
    seen = []
    layer._weights = lambda positions: seen.append(layer.bias.dtype) or {}
    layer(np.zeros((1, 4, 4, 2, 3), "float16"))
    assert [keras.backend.standardize_dtype(d) for d in seen] == ["float32"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"padding": "same"}, {"strides": (2, 1), "padding": "same"}],
    ids=["valid", "same", "same-strides"],
)
def test_primary_caps_is_a_squashed_convolution(settings, rng):
    images = rng.normal(size=(2, 7, 8, 3)).astype("float32")
    layer = PrimaryCaps(2, 4, 3, **settings)
    poses = np.asarray(layer(images))
    conv = keras.layers.Conv2D(8, 3, **settings)
    built(conv, images.shape, layer.get_weights())
    features = np.asarray(conv(images))
    features = features.reshape(*features.shape[:3], 2, 4)
    assert_close(poses, reference.squash(features))


@pytest.mark.parametrize("form", ["", "_strided"], ids=["whole", "strided"])
def test_depthwise_primary_caps_equal_the_public_implementation(form):
    golden = load("05_depthwise_primary_caps")
    images, kernel = golden[f"images{form}"], golden[f"kernel{form}"]
    strides = int(golden.get(f"stride{form}", 1))
    layer = PrimaryCaps(
        6, 4, len(kernel), strides, depthwise=True, squash="efficient"
    )
    built(layer, images.shape, [kernel[..., None], golden["conv_bias"]])
    expected = golden[f"poses{form}"]
    assert_close(np.reshape(layer(images), expected.shape), expected, atol=1e-5)


@pytest.mark.parametrize("strides", [1, 2])
def test_capsule_conv_equals_the_public_implementation(strides):
    golden = load("08_deepcaps_conv2dcaps")
    children, weights = golden["input_poses"], golden["weights"]
    layer = CapsuleConv2D(4, 5, strides=strides)
    built(layer, children.shape, [weights.reshape(3, 3, 12, 20)])
    assert_golden(golden, f"{{}}_stride{strides}", poses=layer(children))


def test_capsule_conv_can_have_the_settings_of_primary_caps(rng):
    children = rng.normal(size=(2, 5, 6, 2, 3)).astype("float32")
    settings = {"padding": "valid", "use_bias": True, "squash": "efficient"}
    layer = built(CapsuleConv2D(2, 4, 2, **settings), children.shape, rng)
    features = np.asarray(layer.conv(children.reshape(2, 5, 6, 6)))
    expected = reference.efficient_squash(features.reshape(2, 4, 5, 2, 4))
    assert_close(layer(children), expected)
    assert_close(Squash("efficient")(features.reshape(2, 4, 5, 2, 4)), expected)


def test_first_kernels_are_as_large_as_those_of_deepcaps():
    """As Keras 2 made kernels of six axes."""
    shape = (None, 4, 4, 16, 8)
    kernel = np.asarray(built(CapsuleConv2D(32, 8), shape, None).conv.kernel)
    limit = np.sqrt(6 / (2 * np.sqrt(3 * 3 * 16 * 8 * 32 * 8)))
    assert 0.99 * limit < np.max(np.abs(kernel)) <= limit
    assert np.std(kernel) == pytest.approx(limit / np.sqrt(3), rel=0.02)


def test_primary_matrix_caps_is_two_convolutions(rng):
    features = rng.normal(size=(2, 5, 6, 3)).astype("float32")
    layer = PrimaryMatrixCaps(2, 4)
    poses, activations = layer(features)
    expected = np.asarray(layer.pose_conv(features)).reshape(2, 5, 6, 2, 4)
    assert_close(poses, expected)
    logits = np.asarray(layer.activation_conv(features))
    assert_close(activations, 1 / (1 + np.exp(-logits)))
