"""ClassCaps, of vectors and of matrices, and weights drawn at random."""

import itertools

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients, with_weights
from tests.networks import SMALL_NETWORKS, built
from tests.registry import ALL
from tests.tolerance import assert_all_close, assert_close
from tfcaps.layers import ClassCaps, Length, PrimaryMatrixCaps
from tfcaps.routing import DynamicRouting, EMRouting, ScaledDistanceRouting

# File, routing, names of outputs and of gradients.
PUBLIC = [
    ("06_dense_capsules", 3, "{}_iter3", None),
    *(
        (
            "02_dense_dynamic_autograd",
            DynamicRouting(n, gradient="full"),
            f"{{}}_iter{n}",
            f"grad_{{}}_through_iter{n}",
        )
        for n in (1, 3)
    ),
    *(
        (
            "04_sda_gamma_repo",
            ScaledDistanceRouting(n, "batch"),
            f"{{}}_iter{n}",
            f"grad_{{}}_through_iter{n}",
        )
        for n in (1, 2, 3)
    ),
    ("05_self_attention_fccaps", "self_attention", "{}", "grad_{}"),
]


@pytest.mark.parametrize(("file", "routing", "outputs", "gradients"), PUBLIC)
def test_class_caps_equals_the_public_implementation(
    file, routing, outputs, gradients
):
    golden = load(file)
    children, weights = golden["input_poses"], golden["weights"]
    layer = ClassCaps(weights.shape[1], weights.shape[3], routing)
    built(layer, children.shape, [weights, golden["bias"]])
    poses, couplings = layer(children, return_couplings=True)
    assert_golden(golden, outputs, poses=poses)
    name = "couplings"
    if routing == "self_attention":
        name = "couplings_before_bias"
    assert_golden(golden, outputs, **{name: couplings})
    if gradients:
        _, ((matrices, bias), children) = value_and_gradients(
            with_weights(layer, layer.trainable_variables),
            [weights, golden["bias"]],
            children,
            upstream=golden["upstream"],
        )
        found = {"input": children, "weights": matrices, "bias": bias}
        assert_golden(golden, gradients, 2e-4, **found)
        return
    children = children.reshape(-1, 2, 3, 4, 4)  # where they stand is the same
    spatial = built(ClassCaps(6, 8), children.shape, layer.get_weights())
    assert_golden(golden, outputs, poses=spatial(children))
    assert_golden(golden, outputs, activations=Length()(poses))


@pytest.mark.parametrize("matrix", [False, True], ids=["vector", "matrix"])
@pytest.mark.parametrize("share", [None, "type", "all"], ids=str)
def test_class_caps_equals_the_reference(share, matrix, rng):
    children = rng.normal(size=(2, 2, 3, 2, 4)).astype("float32")
    layer = ClassCaps(6, 4, routing=2, share=share, matrix=matrix)
    built(layer, children.shape, rng)
    transformation, bias = layer.get_weights()
    if matrix:  # as vectors: a block for each row
        transformation = np.kron(np.eye(2), transformation)
    votes = reference.votes(children, transformation, share)
    expected = reference.route(layer.routing, votes, bias=bias)
    assert_all_close(layer(children, **ALL), expected, atol=1e-5)


@pytest.mark.parametrize("share", [None, "type", "all"], ids=str)
def test_coordinates_are_added_to_the_last_column(share, rng):
    """With no transformation the mean of votes is that of the coordinates."""
    rows, columns = 2, 3
    poses = rng.normal(size=(1, rows, columns, 2, 9)).astype("float32")
    activations = rng.uniform(size=(1, rows, columns, 2)).astype("float32")
    settings = {"matrix": True, "routing": EMRouting(1), "share": share}
    layer, plain = (
        ClassCaps(2, 9, coordinates=with_them, **settings)
        for with_them in (True, False)
    )
    built(layer, poses.shape, None)
    built(plain, poses.shape, layer.get_weights())
    added = np.asarray(layer(poses, activations) - plain(poses, activations))
    shares = activations[0].sum(axis=-1) / activations.sum()
    across = shares.sum(axis=0) @ (np.arange(columns) + 0.5) / columns
    down = shares.sum(axis=1) @ (np.arange(rows) + 0.5) / rows
    expected = [0, 0, across, 0, 0, down, 0, 0, 0]
    assert_close(added, [[expected] * 2], atol=1e-5)


def test_initial_weights_are_the_published_ones():
    layer = built(ClassCaps(10, 16), (None, 100, 8), None)
    transformation = layer.transformation.numpy()
    assert np.std(transformation) == pytest.approx(0.1, rel=0.02)
    # Not truncated at two standard deviations.
    assert np.max(np.abs(transformation)) > 0.3
    np.testing.assert_allclose(layer.bias, 0.1)
    layer = ClassCaps(10, 16, bias_initializer="zeros")
    assert not np.any(built(layer, (None, 5, 8), None).bias)


def test_no_weights_that_are_drawn_are_the_same_numbers():
    em = SMALL_NETWORKS["em_capsnet"](conv_types=(8, 8))
    layers = [
        em.get_layer(name)
        for name in ("conv_caps1", "conv_caps2", "class_caps")
    ]
    deepcaps = SMALL_NETWORKS["deepcaps"](variant="rem").get_layer("class_caps")
    matrix = built(PrimaryMatrixCaps(4), (None, 6, 6, 8), None)
    for weights in (
        [layer.transformation for layer in layers],
        [deepcaps.transformation, deepcaps.bias],
        [matrix.pose_conv.kernel, matrix.activation_conv.kernel],
    ):
        arrays = [keras.ops.convert_to_numpy(w).ravel() for w in weights]
        for one, other in itertools.combinations(arrays, 2):
            common = min(len(one), len(other))
            likeness = np.corrcoef(one[:common], other[:common])[0, 1]
            assert abs(likeness) < 0.99
