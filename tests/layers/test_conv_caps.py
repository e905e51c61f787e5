"""ConvCaps: windows of children, each of them routed; and ConvCaps3D."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients, with_weights
from tests.networks import built
from tests.reference_windows import Windows, routed_windows, window_votes
from tests.tolerance import assert_close
from tfcaps.layers import ClassCaps, ConvCaps, ConvCaps3D
from tfcaps.routing import DynamicRouting, EMRouting

ALL = {"return_activations": True, "return_couplings": True}


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


@pytest.mark.parametrize("share_types", [False, True])
@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [
        ((2, 3), (1, 1), "valid"),
        ((3, 2), (1, 2), "same"),
        ((3, 3), (2, 3), "same"),
        ((1, 2), (3, 3), "valid"),
        ((2, 2), (3, 4), "same"),
    ],
    ids=str,
)
def test_conv_caps_equals_the_loops(kernel, strides, padding, share_types, rng):
    poses = rng.normal(size=(2, 5, 6, 2, 3)).astype("float32")
    matrices = kernel if share_types else (*kernel, 2)
    transformation = rng.normal(size=(*matrices, 4, 3, 5)).astype("float32")
    bias = rng.normal(size=(4, 5)).astype("float32")
    settings = {"routing": 2, "share_types": share_types}
    layer = ConvCaps(4, 5, kernel, strides, padding, **settings)
    built(layer, poses.shape, [transformation, bias])
    windows = Windows(5, 6, kernel, strides, padding)
    votes = window_votes(
        poses, transformation, windows, share_types=share_types
    )
    expected, shares = routed_windows(
        votes, lambda v: reference.dynamic_routing(v, bias, iterations=2)
    )
    outputs = layer(poses, return_couplings=True)
    assert_close(outputs[0], expected, atol=1e-5)
    assert_close(outputs[1], shares, atol=1e-5)
    assert tuple(layer.compute_output_shape(poses.shape)) == expected.shape


def test_children_without_activation_outside_of_the_map(rng):
    """Padding has no activation, so EM routing leaves it out."""
    poses = rng.normal(size=(1, 1, 1, 2, 4)).astype("float32")
    activations = np.ones((1, 1, 1, 2), "float32")
    layer = ConvCaps(3, 4, 3, padding="same", routing="em", matrix=True)
    means, _, shares = layer(poses, activations, **ALL)
    center = layer.transformation.numpy()[1:2, 1:2]
    whole = ConvCaps(3, 4, 1, routing="em", matrix=True)
    built(whole, poses.shape, [center, *layer.get_weights()[1:]])
    expected, _, middle = whole(poses, activations, **ALL)
    assert_close(means, expected, atol=1e-5)
    assert_close(shares[:, :, :, 1:2, 1:2], middle, atol=1e-5)


@pytest.mark.parametrize(
    ("routing", "matrix"),
    [
        (3, False),
        (3, True),
        ("scaled_distance", False),
        ("self_attention", False),
        (EMRouting(3, inverse_temperature=0.1), True),
    ],
    ids=["dynamic", "matrix", "scaled_distance", "self_attention", "em"],
)
def test_window_of_the_whole_map_is_class_caps(routing, matrix, rng):
    poses = rng.normal(size=(2, 3, 2, 2, 4)).astype("float32")
    activations = rng.uniform(0.1, 0.9, size=(2, 3, 2, 2)).astype("float32")
    settings = {"routing": routing, "matrix": matrix}
    conv = built(ConvCaps(3, 4, (3, 2), **settings), poses.shape, rng)
    matrices, *others = conv.get_weights()
    matrices = matrices.reshape(12, *matrices.shape[3:])
    full = built(ClassCaps(3, 4, **settings), poses.shape, [matrices, *others])
    outputs = conv(poses, activations, **ALL)
    expected = full(poses, activations, **ALL)
    for output, wanted in zip(outputs, expected, strict=True):
        assert_close(np.reshape(output, wanted.shape), wanted, atol=1e-5)


def test_activations_default_to_the_lengths_of_the_poses(rng):
    poses = rng.normal(size=(1, 3, 3, 2, 4)).astype("float32")
    layer = ConvCaps(3, 4, 2, routing="scaled_distance")
    expected = layer(poses, np.linalg.norm(poses, axis=-1))
    assert_close(layer(poses), expected)
    shorter = layer(poses, 0.1 * np.linalg.norm(poses, axis=-1))
    assert np.max(np.abs(shorter - expected)) > 1e-3


def test_numpy_integers_are_sizes():
    layer = ConvCaps(3, 4, np.int64(3), (np.int32(2), 1))
    assert layer.kernel_size == (3, 3) and layer.strides == (2, 1)


# ConvCaps3D routes over all types and positions.


def kernel_of(weights):
    """Turns a kernel `[k, rows, columns, j, d]` into that of our layer."""
    merged = np.transpose(weights, (1, 2, 0, 3, 4))
    return merged.reshape(*merged.shape[:3], -1)


def deepcaps_layer(golden, iterations):
    routing = DynamicRouting(iterations, gradient="full")
    layer = ConvCaps3D(5, 6, routing=routing, squash="map")
    weights = [golden["bias"], kernel_of(golden["weights"])]
    return built(layer, golden["input_poses"].shape, weights)


def votes_of(layer, children):
    """Returns votes `[b, h, w, t, j, d]` by the layer's convolution."""
    depth = layer.conv.get_weights()[0].shape[2]
    votes = [
        layer.conv(children[:, :, :, t, :depth])
        for t in range(children.shape[3])
    ]
    votes = np.stack(votes, axis=3)
    return votes.reshape(*votes.shape[:4], layer.num_types, layer.dim)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_conv_caps_3d_equals_the_public_implementation(iterations):
    golden, at = load("08_deepcaps_conv3d"), f"iter{iterations}"
    layer, children = deepcaps_layer(golden, iterations), golden["input_poses"]
    poses, couplings = layer(children, return_couplings=True)
    assert_golden(golden, f"{{}}_{at}", couplings=couplings)
    assert_golden(golden, f"{{}}_intended_{at}", poses=poses)
    # The published layer reads channels-last data as channels-first.
    batch, rows, columns, types, dim = children.shape
    scrambled = children.reshape(batch, types, dim, rows, columns)
    poses = layer(scrambled.transpose(0, 3, 4, 1, 2))
    assert_golden(golden, f"{{}}_as_published_{at}", poses=poses)


def test_its_gradients_equal_those_of_the_public_implementation():
    golden = load("08_deepcaps_conv3d")
    layer, kernel = deepcaps_layer(golden, 3), kernel_of(golden["weights"])
    _, ([kernel, bias], children) = value_and_gradients(
        with_weights(layer, [layer.conv.kernel, layer.bias]),
        [kernel, golden["bias"]],
        golden["input_poses"],
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
def test_conv_caps_3d_routes_to_all_positions_as_the_loops(bias, rng):
    children = rng.normal(size=(2, 3, 4, 2, 3)).astype("float32")
    layer = ConvCaps3D(2, 4, (2, 3), "valid", routing=2, bias=bias)
    built(layer, children.shape, rng)
    poses, couplings = layer(children, return_couplings=True)
    votes = votes_of(layer, children)
    # [b, h, w, t, j, d] -> [b, t, h * w * j, d]
    flat = np.moveaxis(votes, 3, 1).reshape(2, 2, 2 * 2 * 2, 4)
    added = np.zeros((8, 4))
    if bias == "routing":
        added = np.tile(layer.bias.numpy(), (4, 1))
    expected, shares = reference.dynamic_routing(flat, added, 2)
    assert_close(poses, expected.reshape(2, 2, 2, 2, 4), atol=1e-5)
    shares = shares.reshape(2, 2, 2, 2, 2)
    assert_close(couplings, np.moveaxis(shares, 1, 3), atol=1e-5)


def test_first_biases_are_those_of_the_publications():
    biases = []
    for kind in ("routing", "votes"):
        layer = ConvCaps3D(2, 3, bias=kind)
        layer.build((None, 4, 4, 2, 3))
        weights = {w.path.split("/")[-1]: w.numpy() for w in layer.weights}
        biases.append(weights["bias"])
    np.testing.assert_allclose(biases[0], np.full((2, 3), 0.1))
    np.testing.assert_allclose(biases[1], np.zeros(6))


def test_its_bias_is_float32_in_half_precision():
    layer = ConvCaps3D(2, 4, dtype="mixed_float16")
    layer.build((None, 4, 4, 2, 3))
    seen = []
    layer._weights = lambda parents: seen.append(layer.bias.dtype) or {}
    layer(np.zeros((1, 4, 4, 2, 3), "float16"))
    assert [keras.backend.standardize_dtype(d) for d in seen] == ["float32"]
