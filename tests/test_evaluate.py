"""Coupling models, T-score, evaluation and its report."""

import json

import keras
import numpy as np
import pytest

import tfcaps
from tests.golden import load
from tests.networks import tiny_capsnet
from tfcaps import rem
from tfcaps.ops import dequantize, quantize


@pytest.fixture
def model():
    return tiny_capsnet(4, filters=6, primary_dim=8, primary_kernel_size=4)


@pytest.fixture
def images(rng):
    return rng.random((23, 8, 8, 1), dtype=np.float32)


def sharpen(model):
    """Makes votes long, so that couplings differ from the uniform ones."""
    transformation = model.get_layer("class_caps").transformation
    transformation.assign(30.0 * transformation)


def test_t_score_is_that_of_the_reference():
    golden = load("09_rem_dictionary")
    score = np.mean(rem.t_score(golden["couplings"]))
    assert score == pytest.approx(float(golden["t_score"]), abs=1e-5)


def test_t_score_limits():
    uniform = np.full((2, 5, 4), 0.25, "float32")
    np.testing.assert_allclose(rem.t_score(uniform), 0.0, atol=1e-6)
    tree = np.eye(4, dtype="float32")[np.newaxis]
    np.testing.assert_allclose(rem.t_score(tree), 1.0, atol=1e-6)
    np.testing.assert_allclose(rem.t_score(np.ones((2, 3, 1))), 1.0)


def test_capsule_outputs_shares_weights_and_shows_couplings(model, images):
    outputs = rem.capsule_outputs(model)
    sharpen(model)
    shown = outputs.predict(images, verbose=0)
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(shown["lengths"], expected, atol=1e-6)
    np.testing.assert_allclose(
        np.linalg.norm(shown["poses"], axis=-1), expected, atol=1e-6
    )
    assert shown["couplings"].shape == (23, 8, 4)
    np.testing.assert_allclose(shown["couplings"].sum(-1), 1.0, atol=1e-6)


def test_capsule_outputs_of_a_sequential_model_that_ends_in_poses(images):
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            tfcaps.layers.PrimaryCaps(2, 4, 4, strides=2),
            tfcaps.layers.ClassCaps(3, 4),
        ]
    )
    shown = rem.capsule_outputs(model).predict(images, verbose=0)
    poses = model.predict(images, verbose=0)
    np.testing.assert_allclose(shown["poses"], poses, atol=1e-6)
    lengths = np.linalg.norm(poses, axis=-1)
    np.testing.assert_allclose(shown["lengths"], lengths, atol=1e-6)


def test_quantized_model_has_the_weights_but_few_couplings(model, images):
    sharpen(model)
    quantized = rem.quantize_couplings(model, 5)
    for mine, theirs in zip(model.weights, quantized.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    plain = rem.capsule_outputs(model).predict(images, verbose=0)
    rounded = rem.capsule_outputs(quantized).predict(images, verbose=0)
    codes = quantize(plain["couplings"], 5)
    np.testing.assert_allclose(rounded["couplings"], dequantize(codes, 5))
    assert np.abs(plain["lengths"] - rounded["lengths"]).max() > 1e-4


def test_quantized_model_can_be_saved(model, images, tmp_path):
    quantized = rem.quantize_couplings(model, 11)
    quantized.save(tmp_path / "quantized.keras")
    loaded = keras.models.load_model(tmp_path / "quantized.keras")
    assert loaded.get_layer("class_caps").routing.levels == 11
    np.testing.assert_allclose(
        loaded.predict(images, verbose=0),
        quantized.predict(images, verbose=0),
        atol=1e-6,
    )


def test_evaluate_equals_a_computation_by_hand(model, images):
    sharpen(model)
    labels = np.arange(23) % 4
    report = rem.evaluate(model, (images, labels), levels=6, batch_size=5)
    plain = rem.capsule_outputs(model).predict(images, verbose=0)
    quantized = rem.quantize_couplings(model, 6).predict(images, verbose=0)
    predicted = quantized.argmax(-1)
    codes = np.asarray(quantize(plain["couplings"], 6))
    keys = codes[np.arange(23), :, predicted]
    trees = rem.CouplingDictionary(4)
    trees.update(keys, predicted)
    assert report.accuracy == np.mean(plain["lengths"].argmax(-1) == labels)
    assert report.accuracy_quantized == np.mean(predicted == labels)
    assert report.entropy_bits == pytest.approx(trees.entropy_bits.mean())
    assert report.dictionary.num_samples.sum() == 23
    np.testing.assert_array_equal(report.dictionary.num_keys, trees.num_keys)
    uniform = int(quantize(0.25, 6))
    assert report.nonuniform_share == np.mean(keys != uniform) > 0
    assert report.t_score == pytest.approx(
        float(np.mean(rem.t_score(plain["couplings"]))), abs=1e-6
    )
    assert report.total_parameters == model.count_params()


def test_every_form_of_a_data_set_gives_the_same(model, images):
    sharpen(model)
    labels = np.arange(23) % 4
    one_hot = np.eye(4)[labels]
    parts = [slice(start, start + 6) for start in range(0, 23, 6)]
    dataset = [(images[part], labels[part]) for part in parts]
    reports = [
        rem.evaluate(model, (images, labels)),
        rem.evaluate(model, (images, one_hot)),
        rem.evaluate(model, (images, labels[:, np.newaxis])),
        rem.evaluate(model, dataset),
    ]
    first, *others = (report.to_dict() for report in reports)
    for other in others:
        # A sum of float32 scores, which depends on the size of the batches.
        assert other.pop("t_score") == pytest.approx(first["t_score"], abs=1e-6)
        assert other == {k: v for k, v in first.items() if k != "t_score"}


def test_evaluator_follows_the_weights(model, images):
    evaluator = rem.Evaluator(model)
    labels = np.zeros(23, int)
    before = evaluator.run((images, labels))
    sharpen(model)
    after = evaluator.run((images, labels))
    fresh = rem.evaluate(model, (images, labels))
    assert after.t_score > before.t_score
    assert after.to_dict() == fresh.to_dict()


def test_report_prints_saves_and_warns_of_trivial_trees(
    model, images, tmp_path
):
    transformation = model.get_layer("class_caps").transformation
    transformation.assign(0.0 * transformation)
    report = rem.evaluate(model, (images, np.zeros(23, int)))
    assert report.trivial and report.entropy_bits == 0.0
    text = str(report)
    assert "The trees are trivial: 0.0 % of the codes differ" in text
    assert "0.00 of at most" in text
    report.save(tmp_path / "rem.json")
    saved = json.loads((tmp_path / "rem.json").read_text())
    assert saved == json.loads(json.dumps(report.to_dict()))
    assert saved["per_class"]["num_keys"] == report.dictionary.num_keys.tolist()
    nonzero = sum(np.count_nonzero(w) for w in model.get_weights())
    assert saved["nonzero_parameters"] == nonzero < saved["total_parameters"]


@pytest.mark.parametrize(
    ("nonuniform_share", "score", "trivial"),
    [(0.5, 0.2, False), (0.001, 0.2, True), (0.5, 0.001, True)],
)
def test_trees_are_trivial_if_either_measure_is_low(
    nonuniform_share, score, trivial
):
    report = rem.Report(
        levels=11,
        accuracy=0.9,
        accuracy_quantized=0.9,
        nonuniform_share=nonuniform_share,
        t_score=score,
        sparsity=0.8,
        nonzero_parameters=1,
        total_parameters=5,
        dictionary=rem.CouplingDictionary(2),
    )
    assert report.trivial == trivial
    assert ("not trivial" in report.verdict) != trivial


def test_wrong_input_is_an_error(model, images):
    labels = np.zeros(23, int)
    with pytest.raises(ValueError, match=r"`levels` must be in \[2, 256\]"):
        rem.evaluate(model, (images, labels), levels=1)
    with pytest.raises(ValueError, match="There must be one label for each"):
        rem.evaluate(model, (images, labels[:-1]))
    with pytest.raises(ValueError, match=r"Labels must be in \[0, 3\]"):
        rem.evaluate(model, (images, labels + 4))
    with pytest.raises(ValueError, match="The data set has no samples"):
        rem.evaluate(model, [])
    with pytest.raises(ValueError, match="must be .images, labels. or an iter"):
        rem.evaluate(model, 3)
    with pytest.raises(ValueError, match="has no routed capsule layer"):
        rem.evaluate(keras.Sequential([keras.Input((3,))]), (images, labels))
