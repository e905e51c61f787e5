"""ConvCaps3D: routing over all types and positions."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients, with_weights
from tests.networks import built
from tests.tolerance import assert_close
from tfcaps.layers import ConvCaps3D
from tfcaps.routing import DynamicRouting


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
def test_layer_equals_the_public_implementation(iterations):
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


def test_gradients_equal_those_of_the_public_implementation():
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
def test_layer_routes_to_all_positions_as_the_loops(bias, rng):
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


def test_bias_is_float32_in_half_precision():
    layer = ConvCaps3D(2, 4, dtype="mixed_float16")
    layer.build((None, 4, 4, 2, 3))
    seen = []
    layer._weights = lambda parents: seen.append(layer.bias.dtype) or {}
    layer(np.zeros((1, 4, 4, 2, 3), "float16"))
    assert [keras.backend.standardize_dtype(d) for d in seen] == ["float32"]
