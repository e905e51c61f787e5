"""Weights of many zeros: stored small, the same when they are read."""

import numpy as np
import pytest
import tensorflow as tf

from export import session, sizes
from export.packed import PackedWeight, Weights, is_worth_packing
from export.saved_model import read_signatures
from export.signatures import write_saved_model
from tests.networks import tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import models, rem
from tfcaps.rem.pruning.masks import magnitude_masks
from training.devices import dtype_policy


def sparse(rng, shape, share=0.9, dtype="float32"):
    array = rng.normal(size=shape)
    return np.where(rng.random(shape) < share, 0, array).astype(dtype)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(1,), (8,), (3, 3, 5, 7), (9, 1000)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_packed_weight_is_the_weight(rng, shape, share, dtype):
    array = sparse(rng, shape, share, dtype)
    weight = PackedWeight(array)
    weight._initialize()
    assert weight.values.shape == (np.count_nonzero(array),)
    assert weight.bits.shape == (-(-array.size // 8),)
    np.testing.assert_array_equal(weight.read(), array)


@pytest.mark.parametrize(
    ("shape", "share", "expected"),
    [
        ((64, 64), 0.9, True),
        ((64, 64), 0.3, True),
        ((64, 64), 0.2, False),
        ((64, 63), 0.9, False),
    ],
)
def test_large_weights_of_many_zeros_are_packed(rng, shape, share, expected):
    assert is_worth_packing(sparse(rng, shape, share)) is expected


def pruned(rng, **settings):
    """A network whose larger weights are worth packing."""
    model = tiny_capsnet(filters=32, primary_types=8, **settings)
    for variable in model.trainable_variables:
        if variable.name in ("kernel", "transformation"):
            variable.assign(sparse(rng, variable.shape))
    return model


def ask(images, *folders):
    """Returns what each SavedModel answers."""
    requests = [
        session.Request(
            folder,
            read_signatures(folder)["serving_default"],
            {"images": images},
        )
        for folder in folders
    ]
    return [answer.outputs for answer in session.run(requests)]


def test_a_server_gets_the_same_from_packed_weights(rng, tmp_path):
    model = pruned(rng)
    images = rng.random((3, 8, 8, 1), dtype=np.float32)
    for packed in (True, False):
        write_saved_model(
            model,
            tmp_path / str(packed),
            "float32",
            packed=packed,
            names=["serving_default"],
        )
    small, plain = (
        (tmp_path / packed / "variables" / "variables.data-00000-of-00001")
        for packed in ("True", "False")
    )
    assert small.stat().st_size < 0.4 * plain.stat().st_size
    outputs = ask(images, tmp_path / "True", tmp_path / "False")
    for name in outputs[0]:
        np.testing.assert_array_equal(outputs[0][name], outputs[1][name])
    np.testing.assert_allclose(outputs[0]["lengths"], model(images), atol=SUMS)


def test_two_models_in_one_process_keep_their_own_weights(rng, tmp_path):
    images = rng.random((2, 8, 8, 1), dtype=np.float32)
    networks = [pruned(rng), pruned(rng)]
    for number, model in enumerate(networks):
        write_saved_model(
            model,
            tmp_path / str(number),
            "float32",
            names=["serving_default"],
        )
    loaded = [tf.saved_model.load(str(tmp_path / str(k))) for k in range(2)]
    for saved, model in zip(loaded, networks, strict=True):
        outputs = saved.signatures["serving_default"](tf.constant(images))
        np.testing.assert_allclose(outputs["lengths"], model(images), atol=SUMS)


def test_weights_of_a_mixed_model_are_cast_as_before(rng, tmp_path):
    with dtype_policy("mixed_bfloat16"):
        model = pruned(rng)
    outputs = rem.capsule_outputs(model, couplings=False)
    weights = Weights(outputs, packed=True)
    assert any(isinstance(w, PackedWeight) for w in weights._of.values())
    for weight in weights._of.values():
        if isinstance(weight, PackedWeight):
            weight._initialize()
    images = rng.random((2, 8, 8, 1), dtype=np.float32)
    came = weights.call(outputs, images)
    np.testing.assert_allclose(came["lengths"], model(images), atol=1e-3)


@pytest.mark.slow
def test_published_sparsity_takes_a_fifth_of_the_dense_size(rng, tmp_path):
    # DR-CapsNet of the paper, pruned to its sparsity on MNIST.
    model = models.dr_capsnet((28, 28, 1), 10)
    write_saved_model(model, tmp_path / "dense", "float32", packed=False)
    variables = [model.get_layer("conv").kernel]
    variables += [model.get_layer("primary_caps").conv.kernel]
    variables += [model.get_layer("class_caps").transformation]
    masks = magnitude_masks([np.array(v) for v in variables], 0.8553)
    for variable, mask in zip(variables, masks, strict=True):
        variable.assign(variable * mask)
    write_saved_model(rem.compact(model), tmp_path / "small", "float32")
    dense, small = (
        sizes._bytes(tmp_path / name)["gzip_bytes"]
        for name in ("dense", "small")
    )
    assert small < dense / 5
    images = rng.random((1, 28, 28, 1), dtype=np.float32)
    expected = rem.capsule_outputs(model)(images)
    [came] = ask(images, tmp_path / "small")
    for name in ("lengths", "poses"):
        np.testing.assert_allclose(came[name], expected[name], atol=SUMS)
