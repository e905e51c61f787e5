"""ConvCaps3D: routing over all types and positions."""

import functools

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.tolerance import assert_all_close, assert_close
from tfcaps.layers import ConvCaps3D
from tfcaps.routing import DynamicRouting


@functools.cache
def golden_3d(name="08_deepcaps_conv3d"):
    return load(name)


def kernel_of(weights):
    """Turns a kernel `[k, rows, columns, j, d]` into that of our layer."""
    merged = np.transpose(weights, (1, 2, 0, 3, 4))
    return merged.reshape(*merged.shape[:3], -1)


def deepcaps_layer(iterations):
    golden = golden_3d()
    routing = DynamicRouting(iterations, gradient="full")
    layer = ConvCaps3D(5, 6, routing=routing, squash="map")
    layer.build((None, *golden["input_poses"].shape[1:]))
    layer.set_weights([golden["bias"], kernel_of(golden["weights"])])
    return layer


def rem_layer():
    golden = golden_3d("08_deepcaps_conv3d_rem_port")
    layer = ConvCaps3D(5, 8, routing=3, bias="votes", depth=3)
    layer.build((None, *golden["input_poses"].shape[1:]))
    layer.set_weights(
        [kernel_of(golden["weights"]), golden["bias"].reshape(-1)]
    )
    return layer


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
    golden, layer = golden_3d(), deepcaps_layer(iterations)
    children = golden["input_poses"]
    poses, couplings = layer(children, return_couplings=True)
    assert_close(poses, golden[f"poses_intended_iter{iterations}"], atol=1e-5)
    assert_close(couplings, golden[f"couplings_iter{iterations}"], atol=1e-5)
    # The published layer reads channels-last data as channels-first.
    batch, rows, columns, types, dim = children.shape
    scrambled = children.reshape(batch, types, dim, rows, columns)
    scrambled = scrambled.transpose(0, 3, 4, 1, 2)
    assert_close(
        layer(scrambled),
        golden[f"poses_as_published_iter{iterations}"],
        atol=1e-5,
    )


def test_gradients_equal_those_of_the_public_implementation():
    golden, layer = golden_3d(), deepcaps_layer(3)

    def call(children, kernel, bias):
        weights = [(layer.conv.kernel, kernel), (layer.bias, bias)]
        with keras.StatelessScope(state_mapping=weights):
            return layer(children)

    _, gradients = value_and_gradients(
        call,
        golden["input_poses"],
        kernel_of(golden["weights"]),
        golden["bias"],
        upstream=golden["upstream"],
    )
    expected = {
        name: golden[f"grad_{name}_through_iter3"]
        for name in ("input", "weights", "bias")
    }
    expected["weights"] = kernel_of(expected["weights"])
    assert_all_close(gradients, expected.values(), atol=1e-4)


def test_depth_and_bias_of_votes_equal_the_other_implementation():
    golden, layer = golden_3d("08_deepcaps_conv3d_rem_port"), rem_layer()
    poses, couplings = layer(golden["input_poses"], return_couplings=True)
    assert_close(poses, golden["poses_iter3"], atol=1e-5)
    assert_close(couplings, golden["couplings_iter3"], atol=1e-5)
    _, (gradient,) = value_and_gradients(
        layer, golden["input_poses"], upstream=golden["upstream"]
    )
    wanted = golden["grad_input_last_only_iter3"]
    assert_close(gradient, wanted, atol=1e-5)
    assert not np.any(gradient[..., 3:])


@pytest.mark.parametrize("bias", ["routing", "votes", None])
def test_layer_routes_to_all_positions_as_the_loops(bias, rng):
    children = rng.normal(size=(2, 3, 4, 2, 3)).astype("float32")
    layer = ConvCaps3D(2, 4, (2, 3), "valid", routing=2, bias=bias)
    layer.build(children.shape)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
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
