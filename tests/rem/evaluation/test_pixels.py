"""Whether trees are true of pixels, of networks of which it is known."""

import json

import keras
import numpy as np
import pytest
from keras import layers, ops

from tests.networks import of_capsules
from tests.refusals import refused
from tests.tolerance import assert_close
from tfcaps import rem
from tfcaps.layers import ClassCaps
from tfcaps.parts import ConstellationCaps, PartCaps
from tfcaps.rem.evaluation.pixels import _fills, _Windows

SIDE = 24


def images_of(count):
    """Returns images of two classes: which of two spots stands above.

    A third channel tells the class too, everywhere.
    """
    rng = np.random.default_rng(0)
    images = np.zeros((count, SIDE, SIDE, 3), "float32")
    for number, image in enumerate(images):
        row, column = rng.integers(1, 6), rng.integers(1, SIDE - 4)
        image[..., 2] = number % 2
        for part in range(2):
            top = row + 12 * (part != number % 2)
            image[top : top + 3, column : column + 3, part] = 0.5
            image[top + 1, column + 1, part] = rng.uniform(0.65, 1.0)
    return images


IMAGES = images_of(12)


def network(cheat=None):
    """Returns one that finds spots by hand-made weights.

    A cheating one finds nothing where the mean of the whole image is too low
    (`"mean"`), or has its answer from the third channel (`"beside"`).
    """
    images = keras.Input((SIDE, SIDE, 3), name="images")
    spots, rest = images[..., :2], images[..., 2:]
    seen = layers.MaxPooling2D(2)(spots)
    if cheat == "mean":
        there = ops.sigmoid(50.0 * (spots - 0.4))
        whole = ops.mean(there, axis=(1, 2, 3), keepdims=True)
        seen = seen * ops.sigmoid(3000.0 * (whole - 0.012))
    parts = PartCaps(2, window=3, stride=2, offset=(0.5, 0.5))
    classes = ConstellationCaps(2, stride=2, offset=(0.5, 0.5))
    poses, lengths = classes(*parts(seen), return_activations=True)
    if cheat == "beside":
        more = ops.mean(rest, axis=(1, 2)) - 0.5
        lengths = 0.01 * lengths + ops.sigmoid(
            20.0 * ops.concatenate([-more, more], axis=-1)
        )
    outputs = layers.Identity(name="lengths")(lengths)
    model = keras.Model(images, outputs)
    parts.conv.kernel.assign(10.0 * np.eye(2)[None, None])
    parts.nothing_conv.kernel.assign(np.zeros((1, 1, 2, 1)))
    parts.nothing_conv.bias.assign([5.5])
    shifts = np.array([[[-6, 0], [6, 0]], [[6, 0], [-6, 0]]], "float32")
    classes.blueprint.assign(shifts / classes.side)
    return model


def measure(cheat=None):
    return rem.pixel_faithfulness(
        network(cheat), IMAGES, window=0.25, ceiling=2
    )


@pytest.mark.slow
def test_leaves_of_local_parts_are_made_by_their_windows():
    found = measure()
    assert (found.samples, found.leaves) == (12, 24)
    assert set(found.local_truth.values()) == {1.0}
    assert max(found.local_truth_random.values()) < 0.3
    for fill in ("blur", "grey"):
        assert found.prediction[fill] > 0.5  # all state nearly the same
        assert found.completeness[fill] == 1.0
        assert found.change_random[fill] < 0.2
    # Of two classes without any evidence the first is the answer.
    assert found.change["grey"] == found.prediction_answers["grey"] == 0.5
    assert found.completeness_best == 1.0 and 0.5 <= found.change_best <= 1.0
    assert found.completeness_active == dict.fromkeys(found.change)
    assert 0.08 < found.area <= 2 * 0.25**2
    assert found.local and found.tell
    assert "The leaves are made by their windows (25 % of" in found.verdict
    assert json.loads(json.dumps(found.to_dict()))["local"] is True
    again = rem.faithfulness(network(), IMAGES, draws=1, pixels=True)
    assert again.pixels.window == 0.35 and again.pixels.local
    assert again.pixels.verdict in str(again) and again.saliency.specific
    assert again.to_dict()["pixels"]["local"] is True


@pytest.mark.slow
def test_leaves_that_need_the_whole_image_are_called_so():
    found = measure("mean")
    assert found.local_truth["blur"] == found.local_truth["grey"] == 0.0
    assert not found.local
    assert "not made by their windows (25 % of a side): when" in found.verdict


@pytest.mark.slow
def test_trees_beside_the_answer_are_called_so():
    found = measure("beside")
    assert found.local and not found.tell
    assert set(found.change.values()) == {0.0}
    assert found.verdict.endswith("they tell no more than random windows.")


def test_windows_are_those_of_pixels():
    trees = rem.trees(network(), IMAGES)
    windows = _Windows(trees, (SIDE, SIDE), 0.25)
    mask = windows.mask(np.array([[5.0, 0.0], [12.5, 20.0]]))
    expected = np.zeros((SIDE, SIDE), bool)
    expected[3:8, :3] = expected[10:16, 18:23] = True
    np.testing.assert_array_equal(mask, expected)
    asked = windows.leaves()
    assert trees.in_tree[tuple(asked.T)].all() and len(asked) == 24
    own, others = trees.places[tuple(asked.T)], windows.elsewhere(asked)
    assert np.abs(own - others).max(axis=1).min() >= 6
    assert [len(at) for at in windows.random()] == [2] * 12


def test_what_takes_the_place_of_pixels():
    fills = _fills(IMAGES)
    assert {x.shape for x in fills.values()} == {IMAGES.shape}
    for fill, image in zip(fills["other"], IMAGES, strict=True):
        assert not np.array_equal(fill, image)
        assert any(np.array_equal(fill, other) for other in IMAGES)
    assert_close(fills["grey"][3, 5, 7], IMAGES.mean((0, 1, 2)), atol=1e-6)
    assert fills["blur"][..., :2].max() < 0.3


test_what_cannot_be_measured_is_refused = refused(
    """
measure(window=1.0)
  `window` must be in (0, 1)
measure(ceiling=0)
  `ceiling`
rem.pixel_faithfulness(capsules, np.zeros((2, 8, 4)))
  children that have places
""",
    measure=lambda **x: rem.pixel_faithfulness(network(), IMAGES, **x),
    rem=rem,
    np=np,
    capsules=of_capsules(ClassCaps(3, 4), 8, 4),
)
