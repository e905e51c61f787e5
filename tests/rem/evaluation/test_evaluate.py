"""Coupling models, T-score, evaluation and its report."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from tests.golden import load
from tests.networks import (
    draw_weights,
    outputs_of,
    sequential_capsnet,
    sharpened,
    tiny_capsnet,
)
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.ops import quantize
from tfcaps.rem.evaluation.evaluate import t_scores_of_children


@pytest.fixture
def model():
    return tiny_capsnet(4, filters=6, primary_dim=8, primary_kernel_size=4)


@pytest.fixture
def images(rng):
    return rng.random((23, 8, 8, 1), dtype=np.float32)


def test_t_score_is_that_of_the_reference():
    golden = load("09_rem_dictionary")
    score = np.mean(t_scores_of_children(golden["couplings"]))
    assert score == pytest.approx(float(golden["t_score"]), abs=1e-5)


def test_t_score_limits():
    uniform = np.full((2, 5, 4), 0.25, "float32")
    np.testing.assert_allclose(t_scores_of_children(uniform), 0.0, atol=SUMS)
    tree = np.eye(4, dtype="float32")[np.newaxis]
    np.testing.assert_allclose(t_scores_of_children(tree), 1.0, atol=SUMS)
    np.testing.assert_allclose(t_scores_of_children(np.ones((2, 3, 1))), 1.0)


def test_capsule_outputs_of_a_sequential_model_that_ends_in_poses(images):
    model = sequential_capsnet()
    shown = outputs_of(rem.capsule_outputs(model), images)
    poses = outputs_of(model, images)
    np.testing.assert_allclose(shown["poses"], poses, atol=SUMS)
    lengths = np.linalg.norm(poses, axis=-1)
    np.testing.assert_allclose(shown["lengths"], lengths, atol=SUMS)


def test_evaluate_equals_a_computation_by_hand(model, images):
    draw_weights(model, 4, class_caps=3.0)
    labels = np.arange(23) % 4
    report = rem.evaluate(model, (images, labels), levels=6, batch_size=5)
    plain = outputs_of(rem.capsule_outputs(model), images)
    quantized = outputs_of(rem.quantize_couplings(model, 6), images)
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
        float(np.mean(t_scores_of_children(plain["couplings"]))), abs=SUMS
    )
    assert report.total_parameters == model.count_params()
    assert report.dictionary.summary() == trees.summary()
    assert report.majority_share == 6 / 23
    assert report.multiply_adds == rem.multiply_adds(model).total
    assert f"multiply-adds            {report.multiply_adds:,}" in str(report)


def test_evaluator_follows_the_weights(model, images):
    evaluator = rem.Evaluator(model)
    labels = np.zeros(23, int)
    before = evaluator.run((images, labels))
    sharpened(model)
    after = evaluator.run((images, labels))
    fresh = rem.evaluate(model, (images, labels))
    assert after.t_score > before.t_score
    assert after.to_dict() == fresh.to_dict()


def test_report_prints_saves_and_warns_of_trivial_trees(
    model, images, tmp_path
):
    transformation = model.get_layer("class_caps").transformation
    transformation.assign(0.0 * transformation)
    data = images, np.zeros(23, int)
    # Four classes at 3 levels: 1/4 is half way to the first level.
    assert rem.evaluate(model, data, 3).zero_layers == ["class_caps"]
    report = rem.evaluate(model, data)
    assert report.zero_layers == []
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


TELLS = "say more than their class: "


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "uses them was not measured."),
        ({"whole_share": 0.5, "zero_layers": ["hidden_caps"]}, TELLS),
        ({"nonuniform_share": 0.001}, "there is hardly any routing"),
        ({"t_score": 0.001}, "there is hardly any routing"),
        ({"whole_share": 0.51}, "51.0 % of the samples couple every child"),
        (
            {"zero_layers": ["class_caps"]},
            "trivial: all couplings are rounded to 0, 11 levels are too few.",
        ),
        # A T-score of children with a vote counts.
        ({"t_score": 0.005, "t_score_voting": 0.3}, TELLS),
        ({"t_score": 0.5, "t_score_voting": 0.005}, "hardly any routing"),
    ],
)
def test_trees_are_trivial_for_a_reason_that_is_told(changes, told, model):
    data = np.zeros((1, 8, 8, 1), "float32"), np.zeros(1, int)
    shares = {"nonuniform_share": 0.5, "whole_share": 0.1, "t_score": 0.2}
    others = {"accuracy_quantized": 0.9, "majority_share": 0.5}
    others["levels_per_layer"] = {"hidden_caps": 5, "class_caps": 11}
    told_of = {**shares, **others, "t_score_voting": None, **changes}
    report = dataclasses.replace(rem.evaluate(model, data), **told_of)
    assert told in report.verdict and report.empty is None
    assert report.trivial == ("trees are trivial" in report.verdict)
    assert report.trivial != ("say more" in told or "measured" in told)
    # Whether what says nothing is used need not be measured.
    assert ("was not measured" in report.verdict) != report.trivial


def test_children_without_a_vote_are_not_left(model, images):
    layer = model.get_layer("class_caps")
    matrices = 30.0 * keras.ops.convert_to_numpy(layer.transformation)
    matrices[: len(matrices) // 2] = 0.0
    layer.transformation.assign(matrices)
    data = images, np.zeros(23, int)
    report = rem.evaluate(model, data)
    children = report.dictionary.key_length
    assert report.voting_children == children - children // 2
    # Those without a vote are uniform.
    share = report.voting_children / children
    assert report.t_score == pytest.approx(share * report.t_score_voting)
    assert report.t_score_voting > 0.0
    compacted = rem.evaluate(rem.compact(model), data)
    assert compacted.voting_children == report.voting_children
    assert compacted.t_score == pytest.approx(report.t_score)
    assert compacted.t_score_voting == pytest.approx(report.t_score_voting)
    left = f"T-score of the {report.voting_children} children left"
    assert left in str(report)
