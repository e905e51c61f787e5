"""Matrix capsules: PrimaryMatrixCaps, matrix votes, EM over windows."""

import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.networks import built
from tests.reference_windows import Windows, em_windows, window_votes
from tests.tolerance import assert_close
from tfcaps.layers import ClassCaps, ConvCaps, PrimaryMatrixCaps
from tfcaps.routing import EMRouting

ALL = {"return_activations": True, "return_couplings": True}


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("name", ["a", "b"])
def test_em_conv_caps_equals_the_public_implementation(name, iterations):
    golden = load(f"07_em_conv_{name}")
    children = golden["input_poses"]
    children = children.reshape(*children.shape[:4], 16)
    routing = EMRouting(iterations, float(golden["final_lambda_f64"]))
    sizes = (
        len(golden["beta_u"]),
        16,
        int(golden["kernel"]),
        int(golden["stride"]),
    )
    layer = ConvCaps(*sizes, routing=routing, matrix=True)
    weights = [golden[w] for w in ("weights", "beta_u", "beta_a")]
    built(layer, children.shape, weights)
    poses, active, shares = layer(children, golden["input_activations"], **ALL)
    poses = np.reshape(poses, golden[f"poses_iter{iterations}"].shape)
    outputs = {"poses": poses, "activations": active}
    assert_golden(golden, f"{{}}_iter{iterations}", 5e-5, **outputs)
    if iterations == 3:
        assert_golden(golden, "{}_iter3", 5e-5, assignments=shares)


@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [
        ((2, 3), (1, 1), "valid"),
        ((3, 2), (2, 1), "same"),
        # Children of the second row lie in no window.
        ((1, 2), (2, 3), "valid"),
    ],
    ids=str,
)
def test_em_conv_caps_equals_the_loops(kernel, strides, padding, rng):
    poses = rng.normal(size=(2, 4, 5, 2, 4)).astype("float32")
    activations = rng.uniform(0.1, 0.9, size=(2, 4, 5, 2)).astype("float32")
    routing = EMRouting(3, inverse_temperature=0.1)
    layer = ConvCaps(3, 4, kernel, strides, padding, routing, matrix=True)
    weights = built(layer, poses.shape, rng).get_weights()
    outputs = layer(poses, activations, **ALL)
    windows = Windows(4, 5, kernel, strides, padding)
    votes = window_votes(poses, weights[0], windows, rows=2)
    expected = em_windows(
        votes, activations, windows, *weights[1:], iterations=3, final=0.1
    )
    # Nobody reads the shares of what lies outside of the map.
    inside = np.zeros(expected[2].shape, bool)
    for place, child in windows:
        inside[:, *place] = child is not None
    poses, active, shares = map(np.asarray, outputs)
    assert_close(poses, expected[0], atol=1e-4)
    assert_close(active, expected[1], atol=1e-4)
    assert_close(shares * inside, expected[2], atol=1e-4)


def test_matrices_keep_dynamic_routing(rng):
    children = rng.normal(size=(2, 5, 9)).astype("float32")
    layer = ClassCaps(3, 9, routing=2, matrix=True)
    poses, couplings = layer(children, return_couplings=True)
    weight = layer.transformation.numpy()
    assert weight.shape == (5, 3, 3, 3)
    votes = np.einsum(
        "birk,ijkd->bijrd", children.reshape(2, 5, 3, 3), weight
    ).reshape(2, 5, 3, 9)
    expected = reference.dynamic_routing(votes, layer.bias.numpy(), 2)
    assert_close(poses, expected[0], atol=1e-5)
    assert_close(couplings, expected[1], atol=1e-5)


@pytest.mark.parametrize("share", [None, "type", "all"], ids=str)
def test_coordinates_are_added_to_the_last_column(share, rng):
    """With no transformation the mean of votes is that of the coordinates."""
    rows, columns, types = 2, 3, 2
    poses = rng.normal(size=(1, rows, columns, types, 9)).astype("float32")
    activations = rng.uniform(size=(1, rows, columns, types)).astype("float32")
    layer = ClassCaps(
        2,
        9,
        routing=EMRouting(1),
        share=share,
        matrix=True,
        coordinates=True,
        transformation_initializer="zeros",
    )
    means = np.asarray(layer(poses, activations)).reshape(2, 3, 3)
    expected = np.zeros((3, 3))
    for row, column, type_ in np.ndindex(rows, columns, types):
        share_of_child = activations[0, row, column, type_] / activations.sum()
        expected[0, 2] += share_of_child * (column + 0.5) / columns
        expected[1, 2] += share_of_child * (row + 0.5) / rows
    assert_close(means, [expected, expected], atol=1e-5)


def test_coordinates_are_added_to_the_votes_of_the_transformation(rng):
    poses = rng.normal(size=(1, 1, 1, 1, 4)).astype("float32")
    layer, plain = (
        ClassCaps(2, 4, routing="em", matrix=True, coordinates=c)
        for c in (True, False)
    )
    moved = np.asarray(layer(poses))
    plain.build(poses.shape)
    plain.set_weights(layer.get_weights())
    assert_close(moved - plain(poses), [[[0, 0.5, 0, 0.5]] * 2], atol=1e-5)


def test_primary_matrix_caps_is_two_convolutions(rng):
    features = rng.normal(size=(2, 5, 6, 3)).astype("float32")
    layer = PrimaryMatrixCaps(2, 4, 3, 2, "same")
    poses, activations = layer(features)
    assert poses.shape == (2, 3, 3, 2, 4)
    pose_conv, activation_conv = layer.pose_conv, layer.activation_conv
    assert pose_conv.get_weights()[0].shape == (3, 3, 3, 8)
    expected = np.asarray(pose_conv(features)).reshape(poses.shape)
    assert_close(poses, expected)
    logits = np.asarray(activation_conv(features))
    assert_close(activations, 1 / (1 + np.exp(-logits)))
