"""T-scores of the children that pruning has left a vote."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.networks import tiny_capsnet
from tfcaps import rem


@pytest.fixture
def half_pruned():
    """A network with long votes, half of whose children are silent."""
    model = tiny_capsnet(4, filters=6, primary_dim=8, primary_kernel_size=4)
    layer = model.get_layer("class_caps")
    matrices = 30.0 * keras.ops.convert_to_numpy(layer.transformation)
    matrices[: len(matrices) // 2] = 0.0
    layer.transformation.assign(matrices)
    return model


@pytest.fixture
def data(rng):
    return rng.random((23, 8, 8, 1), dtype=np.float32), np.zeros(23, int)


def test_children_without_a_vote_are_not_left(half_pruned, data):
    report = rem.evaluate(half_pruned, data)
    children = report.dictionary.key_length
    assert report.voting_children == children - children // 2
    # Those without a vote are uniform.
    share = report.voting_children / children
    assert report.t_score == pytest.approx(share * report.t_score_voting)
    assert report.t_score_voting > 0.0
    compacted = rem.evaluate(rem.compact(half_pruned), data)
    assert compacted.voting_children == report.voting_children
    assert compacted.t_score == pytest.approx(report.t_score)
    assert compacted.t_score_voting == pytest.approx(report.t_score_voting)


def test_the_children_left_tell_whether_trees_are_clear(half_pruned, data):
    measured = rem.evaluate(half_pruned, data)
    report = dataclasses.replace(
        measured, nonuniform_share=0.5, t_score=0.005, t_score_voting=0.3
    )
    assert not report.trivial
    left = measured.voting_children
    assert f"T-score of the {left} children left" in str(report)
    report = dataclasses.replace(report, t_score_voting=0.005)
    assert report.trivial
    assert "children left" not in str(report)
