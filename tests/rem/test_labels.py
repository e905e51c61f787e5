"""How labels are read: indices, soft ones, several classes, none, and one."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.networks import tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import rem, viz
from tfcaps.losses import MarginLoss
from tfcaps.rem.labels import class_of_each, rightly_told

CLASSES = np.array([2, 0, 1, 3, 2])
ONE_HOT = np.eye(4)[CLASSES]


@pytest.fixture
def model():
    return tiny_capsnet(4, filters=6, primary_dim=8, primary_kernel_size=4)


@pytest.fixture
def images(rng):
    return rng.random((20, 8, 8, 1), dtype=np.float32)


SOFT = {
    "smoothed": 0.9 * ONE_HOT + 0.025,
    "mixed": 0.6 * ONE_HOT + 0.4 * np.roll(ONE_HOT, 1, axis=0),
    "rounded": (0.7 * ONE_HOT + 0.075).astype("float16"),
    "bool": ONE_HOT.astype(bool),
    "column": CLASSES[:, None],
    "float": CLASSES.astype("float32"),
}


@pytest.mark.parametrize("name", SOFT)
def test_labels_of_one_class_are_read(name):
    np.testing.assert_array_equal(class_of_each(SOFT[name], 4), CLASSES)


def test_a_teacher_of_1000_classes_is_read(rng):
    logits = rng.normal(size=(50, 1000))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for kind in ("float64", "float32", "float16"):
        found = class_of_each(shares.astype(kind), 1000)
        np.testing.assert_array_equal(found, shares.astype(kind).argmax(axis=1))
    uniform = class_of_each(np.full((1, 1000), 1e-3), 1000)
    assert uniform.tolist() == [0]  # not an image of no class


def test_of_several_classes_the_longest_capsule_counts():
    labels = [[1, 0, 1], [0, 1, 1], [0, 1, 0]]
    lengths = np.array([[0.2, 0.9, 0.3], [0.9, 0.4, 0.1], [0.9, 0.1, 0.8]])
    assert class_of_each(labels, 3, lengths).tolist() == [2, 1, 1]
    with pytest.raises(ValueError, match="one class here.*a row with 2 ones"):
        class_of_each(labels, 3)


def test_zeros_and_minus_one_are_no_class():
    assert class_of_each([[0, 0], [0, 1]], 2).tolist() == [-1, 1]
    assert class_of_each([-1, 1], 2).tolist() == [-1, 1]


@pytest.mark.parametrize(
    "there", [[1, 0, 1], [True, False, True], [0.95, 0.05, 1.0]]
)
def test_one_class_is_there_or_not(there):
    for labels in (np.array(there), np.array(there)[:, None]):
        assert class_of_each(labels, 1).tolist() == [0, -1, 0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0.95, 0.05, 0.05]], "must sum to 1.*which sums to 1.05"),
        ([[2.0, 0.0, 0.0]], "must sum to 1.*sums to 2"),
        ([[1.5, -0.5, 0.0]], "must sum to 1, for one class"),
        ([["a", "b", "c"]], "must be numbers.*np.unique.*Received: .*'a'"),
        (["cat"], "must be numbers.*'cat'"),
        ([None], "must be numbers.*Received: None"),
        ([np.nan], "must be finite. Received: 1 num"),
        ([[0.5, np.nan, 0.5]], "must be finite"),
        ([3], r"in \[0, 2\]. Received: 3 to 3"),
        ([-2], r"in \[0, 2\]. Received: -2"),
        ([0.5], "whole numbers"),
        ([[1, 0]], r"for 3 classes. Received: labels of the shape \(1, 2\)"),
        ([[[1]]], r"Received: labels of the shape \(1, 1, 1\)"),
    ],
)
def test_other_labels_are_asked_about(labels, message):
    with pytest.raises(ValueError, match=message):
        class_of_each(labels, 3)


def test_presence_beyond_one_is_asked_about():
    with pytest.raises(ValueError, match="1 where it is there.*0 to 3"):
        class_of_each([0, 3], 1)


def test_images_of_no_class_are_not_told_right_or_wrong():
    lengths = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.1]])
    assert rightly_told(np.array([0, 1, -1]), lengths).tolist() == [True, False]
    presence = rightly_told(
        np.array([0, -1, -1]), np.array([[0.9], [0.8], [0]])
    )
    assert presence.tolist() == [True, False, True]


def test_images_of_no_class_are_left_out_and_said(model, images):
    labels = np.arange(20) % 4
    expected = rem.evaluate(model, (images[5:], labels[5:]))
    rows = np.eye(4)[labels]
    rows[:5] = 0
    labels[:5] = -1
    evaluator = rem.Evaluator(model)
    for given in (rows, labels):
        report = evaluator.run((images, given), batch_size=10)
        assert report.without_class == 5
        assert "images of no class" in str(report)
        assert report.accuracy == expected.accuracy
        assert report.dictionary.num_samples.sum() == 15
        assert report.entropy_bits == expected.entropy_bits
    assert "images of no class" not in str(expected)
    with pytest.raises(ValueError, match="Received: 20 images of no class"):
        rem.evaluate(model, (images, np.zeros((20, 4))))


def test_one_capsule_learns_whether_its_class_is_there(rng):
    there = np.arange(20) % 2 == 0
    children = rng.normal(size=(20, 4, 3)).astype("float32")
    children[there] += 2.0
    inputs = keras.Input((4, 3))
    poses = tfcaps.layers.ClassCaps(1, 8)(inputs)
    model = keras.Model(inputs, tfcaps.layers.Length()(poses))
    model.compile(keras.optimizers.Adam(0.1), MarginLoss())
    model.fit(children, there, epochs=12, verbose=0)
    lengths = model.predict(children, verbose=0)[:, 0]
    assert lengths[there].mean() > 0.6 > 0.4 > lengths[~there].mean()
    evaluator = rem.Evaluator(model)
    for labels in (there, there.astype(int), there[:, None].astype(float)):
        report = evaluator.run((children, labels))
        assert report.accuracy == np.mean((lengths > 0.5) == there) > 0.8
        assert report.without_class == 10


def test_figures_name_the_class_of_a_label(rng):
    images = rng.random((2, 8, 8, 1))
    maps = {"gradients": rng.random((2, 8, 8))}
    shown = {
        "network": {
            "lengths": np.eye(3)[:2],
            "classes": np.arange(2),
            "saliency": maps["gradients"],
        }
    }
    for labels in ([2, 1], np.eye(3)[[2, 1]], [2.0, 1.0]):
        drawing = viz.saliency(
            images, shown, labels=labels, class_names=list("abc")
        )
        titles = [axes.get_title() for axes in drawing.figure.axes[:2]]
        assert titles == ["c", "b"]
        drawing = viz.saliency(
            images, maps, labels=labels, class_names=list("abc")
        )
        assert drawing.figure.axes[0].get_title() == "c"
    # The last class has no index -1.
    for draw in (
        lambda: viz.saliency(images, shown, labels=[-1, 1]),
        lambda: viz.saliency(images, maps, labels=[-1, 1]),
    ):
        with pytest.raises(ValueError, match="Received: -1 for 1 images"):
            draw()


def test_a_decoder_sees_the_capsule_of_the_largest_label():
    decoder = tfcaps.layers.Decoder((8, 8, 1))
    poses = np.random.default_rng(0).random((2, 3, 4)).astype("float32")
    hard = decoder(poses, labels=np.array([0, 2]), training=True)
    soft = np.array([[0.8, 0.1, 0.1], [0.3, 0.3, 0.4]], "float32")
    found = decoder(poses, labels=soft, training=True)
    np.testing.assert_allclose(found, hard, atol=SUMS)
