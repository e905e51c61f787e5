"""Parts of drawn animals, whose places are known and told to nobody."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.tolerance import assert_close
from tfcaps import graphs
from tfcaps.models import body_plan_capsnet
from tfcaps.models.windows import at_size, two_maps, windows_of
from tfcaps.parts import body_plan
from tfcaps.parts.body_plan_caps import frame_of
from tfcaps.parts.body_plan_model import _reduced
from tfcaps.rem.evaluation.pixels import _KnownWindows

SIDE, STEP = 80, 8
# Where parts of an animal that faces right stand, and their colours.
PARTS = np.array([(-9.0, 14.0), (0.0, 0.0), (-3.0, -14.0), (9.0, 2.0)])
COLOURS = np.array([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)], "f4")


def animals(count, seed):
    """Draws animals whose heads tell their class, and says where parts are."""
    draw = np.random.default_rng(seed)
    images = draw.uniform(0, 0.15, (count, SIDE, SIDE, 3)).astype("f4")
    labels = np.arange(count) % 2
    facing = draw.choice([-1.0, 1.0], count)
    centres = draw.uniform(34, 46, (count, 2))
    places = PARTS * np.stack([np.ones(count), facing], -1)[:, None]
    places = places + centres[:, None]
    rows, columns = np.indices((SIDE, SIDE))
    for k in range(count):
        for part, (row, column) in enumerate(places[k]):
            near = (rows - row) ** 2 + (columns - column) ** 2 < 36
            images[k, near] = COLOURS[part]
            if part == 0 and labels[k]:  # a bright cap
                images[k, near & (rows < row)] = (1, 0, 1)
    return images, labels, places, facing


def backbone(side=SIDE, step=STEP):
    """Returns a network whose maps tell colours."""
    images = keras.Input((side, side, 3))
    fine = keras.layers.AveragePooling2D(step // 2)(images)
    wide = keras.layers.Conv2D(12, 1, activation="relu")(fine)
    deep = keras.layers.AveragePooling2D(2)(wide)
    model = keras.Model(images, deep)
    kernel = np.random.default_rng(0).normal(size=(1, 1, 3, 12))
    kernel[..., :3] = np.eye(3)
    model.layers[2].set_weights([kernel, np.zeros(12)])
    return model


@pytest.fixture(scope="module")
def fitted():
    images, labels, _, _ = animals(160, 0)
    model = body_plan_capsnet((SIDE, SIDE, 3), 2, backbone(), 4, plans=2)
    history = model.fit(images, labels, batch_size=40, verbose=0)
    return model, history


def test_a_window_s_features_do_not_change_with_what_is_around_it(rng):
    layer = windows_of(backbone(), 0.3, (SIDE, SIDE, 3))
    assert (layer.window, layer.step, layer.grid) == (24, 8, (10, 10))
    image = rng.uniform(size=(1, SIDE, SIDE, 3)).astype("f4")
    other = rng.uniform(size=image.shape).astype("f4")
    low, high = 5 * STEP - 8, 5 * STEP + 16  # the window of place 5
    other[:, low:high, low:high] = image[:, low:high, low:high]
    before, after = np.array(layer(image)), np.array(layer(other))
    assert_close(after[:, 5, 5], before[:, 5, 5], atol=1e-6)
    assert np.abs(after[:, 4, 4] - before[:, 4, 4]).max() > 1e-3


def test_a_copy_of_another_size_has_the_weights_and_the_nested_maps():
    images = keras.Input((SIDE, SIDE, 3))
    nested = keras.Model(images, backbone()(2 * images))
    small = at_size(two_maps(nested), (24, 24))
    x = np.random.default_rng(1).uniform(size=(1, SIDE, SIDE, 3)).astype("f4")
    deep, fine = two_maps(nested)(x)
    assert_close(deep, nested(x), atol=1e-6)
    assert fine.shape == (1, 20, 20, 12)
    assert_close(small(x[:, :24, :24])[0], deep[:, :3, :3], atol=1e-5)


@pytest.mark.parametrize("turned", [1.0, -1.0])
def test_the_frame_is_that_in_which_parts_agree(turned):
    plan = (PARTS / 10)[None].astype("f4")
    places = PARTS * (2.0, 2.0 * turned) + (30.0, 50.0)
    places[3] = (0.0, 0.0)  # is not there
    frame = frame_of(
        places[None].astype("f4"),
        np.array([[1, 1, 1, 0]], "f4"),
        np.concatenate([plan[:, ::-1], plan]),
        np.full((2, 4), 0.1, "f4"),
    )
    assert_close(frame.place, [[30.0, 50.0]], atol=1e-2)
    assert_close(frame.size, [20.0], atol=1e-2)
    assert (float(frame.facing[0]), int(frame.plan[0])) == (turned, 1)
    expected = np.array((9.0, 2.0)) * (2.0, 2.0 * turned) + (30.0, 50.0)
    assert_close(frame.parts[0, 3], expected, atol=1e-2)


@pytest.mark.parametrize("columns", [50, 20])
def test_the_logistic_regression_is_that_of_its_gradient(columns, rng):
    x, labels = rng.normal(size=(30, columns)), rng.integers(3, size=30)
    found = body_plan.logistic(x, labels, 3, (1.0, 2.0))
    for (weights, bias), strength in zip(found, (1.0, 2.0), strict=True):
        odds = np.exp(x @ weights + bias)
        slope = odds / odds.sum(axis=1, keepdims=True) - np.eye(3)[labels]
        slope = x.T @ slope + weights / strength
        assert_close(slope, np.zeros((columns, 3)), atol=2e-2)


def test_few_points_have_few_clusters():
    points = np.stack([np.arange(60) % 5, np.zeros(60)], -1)
    centres = body_plan.clusters(points.reshape(2, 30, 2), 120, 0)
    assert_close(np.sort(centres[:, 0]), np.arange(5))


def test_the_layer_tells_what_the_network_of_places_told(rng):
    model = body_plan_capsnet((SIDE, SIDE, 3), 2, backbone(), 4)
    parts = model.get_layer("part_caps")
    assert (parts.ratio, parts.margin, parts.coarse) == (2, 1, 12)
    maps = rng.normal(size=(6, 10, 10, 12 + 16 * 12)).astype("f4")
    reductions, seen = _reduced(maps, np.arange(6), parts)
    x = seen.at(np.arange(6), np.tile(np.arange(400), (6, 1)))
    flat = x.reshape(-1, x.shape[-1])
    types = np.eye(5)[(flat[:, 15] > 0) + 2 * (flat[:, 40] > 0)]
    network = body_plan.network(flat, types, parts.units, 4, 0)
    model._take_network(network, reductions)
    expected = body_plan.predicted(network, x)[..., :4]
    assert expected.std() > 0.1
    poses, _ = parts(maps)
    told = np.array(poses[..., 2]).reshape(expected.shape)
    assert_close(told, expected, atol=1e-2)  # features are halves


def test_fit_finds_classes_parts_and_which_way_they_face(fitted):
    model, history = fitted
    images, labels, places, facing = animals(60, 1)
    assert history.history["val_accuracy"][0] > 0.9
    assert np.mean(model.predict(images, verbose=0).argmax(1) == labels) > 0.95
    trees = tfcaps.rem.trees(model, images)
    found = tfcaps.rem.keypoints(trees, places)
    assert found.information > 0.7
    assert found.covered > 0.9
    poses = tfcaps.rem.capsule_outputs(model).predict(images, verbose=0)[
        "poses"
    ]
    same = np.mean(np.sign(poses[:, 0, 3]) == facing)
    assert max(same, 1 - same) > 0.9
    assert np.abs(poses[:, 0, :2] - places.mean(axis=1)).mean() < 6
    assert model.report["form"].startswith(("one body plan", "two plans"))


@pytest.mark.parametrize("noise", [7, None], ids=["nearly", "quite"])
def test_parts_that_stand_anywhere_have_no_plan(fitted, noise, rng):
    model, _ = fitted
    places = rng.uniform(0, SIDE, (200, 4, 2))
    if noise:
        places = 40 + PARTS + rng.normal(0, noise, places.shape)
    active, held = np.ones((200, 4)), np.arange(200) % 4 == 0
    copy = keras.models.clone_model(model)
    copy._estimate_plans(places, active, np.ones(200), held, 0)
    assert copy.report["plans"] == 0
    assert copy.report["form"].startswith("no body plan")


def test_a_tree_s_sum_is_the_answer_and_it_is_said(fitted):
    model, _ = fitted
    images, *_ = animals(4, 2)
    text = str(
        tfcaps.rem.explain(model, images, class_names=["dull", "capped"])
    )
    assert " says capped by " in text
    layer = model.get_layer("class_caps")
    trees = tfcaps.rem.trees(model, images)
    assert_close(layer.stated(np.array([0.0, 0.5])), [0.0, layer.orphan])
    assert trees.leaves.min() > 0


def test_leaves_are_made_by_their_windows(fitted):
    model, _ = fitted
    images, *_ = animals(12, 3)
    found = tfcaps.rem.pixel_faithfulness(model, images, ceiling=2)
    assert min(found.local_truth.values()) > 0.9
    assert found.local
    assert found.prediction["grey"] > 0.3


def test_windows_that_are_known_are_not_looked_at_again(fitted):
    model, _ = fitted
    layer = model.get_layer("backbone")
    known = _KnownWindows(graphs.cut(model, layer)[0], layer)
    images = animals(2, 5)[0]
    assert_close(known(images), layer(images), atol=1e-5)
    before = len(known._known)
    images[0, :20, :20] = 0.5
    assert_close(known(images), layer(images), atol=1e-5)
    assert 0 < len(known._known) - before < 25


def test_a_saved_network_and_an_exported_one_say_the_same(fitted, tmp_path):
    model, _ = fitted
    images, *_ = animals(3, 4)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.report == model.report
    expected = model.predict(images, verbose=0)
    assert_close(loaded.predict(images, verbose=0), expected, atol=1e-6)
    assert not loaded.get_layer("backbone").trainable_weights
    # It is compared with the network before it appears.
    made = tfcaps.export.save(loaded, tmp_path / "net", formats=("onnx",))
    assert any(made.rglob("*.onnx"))


@pytest.mark.slow
def test_a_backbone_within_another_is_exported(tmp_path):
    images = keras.Input((SIDE, SIDE, 3))
    nested = keras.Model(images, backbone()(images))
    model = body_plan_capsnet((SIDE, SIDE, 3), 2, nested, 4)
    made = tfcaps.export.save(model, tmp_path / "net", formats=("onnx",))
    assert any(made.rglob("*.onnx"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0] * 5, "one label for each image"),
        (None, "and 0 labels"),
        ([2] * 12, "below 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    model = body_plan_capsnet((SIDE, SIDE, 3), 2, backbone(), 4)
    with pytest.raises(ValueError, match=message):
        model.fit(np.zeros((12, SIDE, SIDE, 3), "f4"), labels)


def test_features_of_another_backbone_are_refused(tmp_path):
    for name in ("local", "deep", "middle"):
        np.save(tmp_path / f"{name}.npy", np.zeros((12, 1, 1, 1), "f2"))
    (tmp_path / "images").write_text("12")
    model = body_plan_capsnet((SIDE, SIDE, 3), 2, backbone(), 4)
    with pytest.raises(ValueError, match="same images, windows and backbone"):
        model.maps(np.zeros((12, SIDE, SIDE, 3), "f4"), tmp_path)


def test_a_backbone_without_a_map_is_refused():
    head = keras.Sequential([backbone(), keras.layers.GlobalMaxPooling2D()])
    head.build((None, SIDE, SIDE, 3))
    with pytest.raises(ValueError, match="leave out its top"):
        body_plan_capsnet((SIDE, SIDE, 3), 2, head)
