"""ConvCaps: windows of children, each of them routed."""

import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients, with_weights
from tests.networks import built
from tests.reference_windows import Windows, routed_windows, window_votes
from tests.tolerance import assert_close
from tfcaps.layers import ClassCaps, ConvCaps
from tfcaps.routing import EMRouting

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
