"""What a network looked at: couplings of the predicted class, saliency."""

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, images_of, sharpened, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import models, rem
from tfcaps.layers import ClassCaps, ConvCaps, Length, PrimaryCaps
from tfcaps.rem.maps.explanation import saliency_map
from training.devices import dtype_policy

# Two to four pixels, as half of a pixel lies beyond the outer centres.
TWICE = np.array([[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]])


def shown_by(model, layer, images):
    """Returns the outputs of a layer inside of a model."""
    inside = keras.Model(model.input, model.get_layer(layer).output)
    return keras.tree.map_structure(np.asarray, inside(images))


def towards_predicted(model, images):
    """Returns the classes, and the couplings `[b, i]` towards them."""
    shown = rem.capsule_outputs(model)(images)
    classes = np.argmax(np.asarray(shown["lengths"]), axis=-1)
    couplings = np.asarray(shown["couplings"])
    return classes, couplings[np.arange(len(classes)), :, classes]


def enlarged(grid, side):
    """Returns `[b, 2, 2]` as `[b, side, side]`."""
    centres = (np.arange(side) + 0.5) * 2.0 / side - 0.5
    second = np.clip(centres, 0.0, 1.0)
    rows = np.stack([1.0 - second, second], axis=1)
    return rows @ grid @ rows.T


@pytest.fixture(scope="module")
def em_model():
    keras.utils.set_random_seed(0)
    settings = {"filters": 4, "primary_types": 2, "conv_types": (2, 3)}
    return models.em_capsnet((17, 17, 1), 3, **settings)


def test_saliency_is_the_mean_over_types_where_nothing_is_enlarged(rng):
    activations = rng.random((3, 4, 5, 6))
    couplings = rng.random((3, 4, 5, 6))
    expected = np.mean(activations * couplings, axis=-1)
    saliency = saliency_map(activations, couplings, (4, 5))
    np.testing.assert_allclose(saliency, expected, atol=SUMS)


def test_saliency_of_two_by_two_positions_by_hand():
    activations = np.array([[[[1.0, 1.0], [0.5, 0.5]], [[0, 0], [1.0, 0]]]])
    couplings = np.array([[[[0.5, 0.3], [0.2, 0.6]], [[1, 1], [0.4, 0.9]]]])
    grid = np.array([[0.4, 0.2], [0.0, 0.2]])
    saliency = saliency_map(activations, couplings, (4, 4))
    np.testing.assert_allclose(saliency[0], TWICE @ grid @ TWICE.T, atol=SUMS)
    np.testing.assert_allclose(saliency[0, 0], [0.4, 0.35, 0.25, 0.2])


def test_constant_map_stays_constant():
    halves = np.full((1, 2, 3, 4), 0.5)
    saliency = saliency_map(halves, halves, (9, 7))
    np.testing.assert_allclose(saliency, np.full((1, 9, 7), 0.25))


def tents(grid, centres, image_shape):
    """Returns the map `[b, rows, columns]` in which each child is a tent.

    A tent is 1 at the centre of the child's field and falls to 0 at the next
    centre of the grid, or as far from it as the one before.
    """

    def slope(distance, before, after):
        return max(
            0.0, 1.0 - abs(distance) / (after if distance > 0 else before)
        )

    saliency = np.zeros((len(grid), *image_shape))
    h, w = grid.shape[1:]
    for m in range(h):
        for n in range(w):
            row, column = centres[m, n]
            up = centres[m, n, 0] - centres[m - 1, n, 0] if m else None
            down = centres[m + 1, n, 0] - row if m + 1 < h else up
            left = centres[m, n, 1] - centres[m, n - 1, 1] if n else None
            right = centres[m, n + 1, 1] - column if n + 1 < w else left
            for y in range(image_shape[0]):
                for x in range(image_shape[1]):
                    height = slope(y - row, up or down, down)
                    height *= slope(x - column, left or right, right)
                    saliency[:, y, x] += grid[:, m, n] * height
    return saliency


def test_children_are_drawn_at_the_centres_of_their_fields(rng):
    activations, couplings = rng.random((2, 2, 3, 4, 5))
    rows, columns = [1.0, 3.5, 5.0], [-1.0, 2.0, 4.5, 8.0]
    centres = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)
    saliency = saliency_map(activations, couplings, (8, 9), centres=centres)
    grid = np.mean(activations * couplings, axis=-1)
    expected = tents(grid, centres, (8, 9))
    np.testing.assert_allclose(saliency, expected, atol=SUMS)
    np.testing.assert_array_equal(saliency[:, 7], 0)
    stretched = saliency_map(
        activations, couplings, (8, 9), centres=centres, align="grid"
    )
    np.testing.assert_array_equal(
        stretched, saliency_map(activations, couplings, (8, 9))
    )


def test_one_row_of_children_is_drawn_over_all_rows(rng):
    activations, couplings = rng.random((2, 2, 1, 3, 5))
    centres = [[[4.0, 1.0], [4.0, 3.0], [4.0, 5.0]]]
    saliency = saliency_map(activations, couplings, (6, 7), centres=centres)
    row = np.mean(activations * couplings, axis=-1)[:, 0]
    between = (row[:, 1:] + row[:, :-1]) / 2
    for y in range(6):
        np.testing.assert_allclose(saliency[:, y, 1::2], row, atol=SUMS)
        np.testing.assert_allclose(saliency[:, y, 2:6:2], between, atol=SUMS)


def test_explanation_knows_the_centres_of_the_fields(model):
    images = images_of(model, 5)
    _, couplings = towards_predicted(model, images)
    lengths = np.linalg.norm(shown_by(model, "primary_caps", images), axis=-1)
    grid = np.mean(lengths * couplings.reshape(lengths.shape), axis=-1)
    places = np.array([2.0, 4.0])  # of 5x5 pixels in steps of two
    centres = np.stack(np.meshgrid(places, places, indexing="ij"), axis=-1)
    expected = tents(grid, centres, (8, 8))
    for explanation in (
        rem.explanation(model),
        rem.explanation(model, align="field"),
    ):
        saliency = explanation(images)["saliency"]
        np.testing.assert_allclose(saliency, expected, atol=SUMS)
    assert expected[:, 1].any() and not expected[:, [0, 6, 7]].any()


def test_centres_that_are_no_grid_are_an_error(model):
    halves = np.full((1, 2, 2, 3), 0.5)
    down = np.array([[[1, 1], [1, 3]], [[3, 1], [3, 3]]])
    for wrong in (down[:, ::-1], down[:1], down + [[[0], [1]], [[0], [0]]]):
        with pytest.raises(ValueError, match=r"`centres` must be \[2, 2, 2\]"):
            saliency_map(halves, halves, (5, 5), centres=wrong)
    for explain in (
        lambda: saliency_map(halves, halves, (5, 5), align="image"),
        lambda: rem.explanation(model, align="image"),
    ):
        with pytest.raises(ValueError, match="one of .* align='image'"):
            explain()


def test_classes_are_the_longest_and_couplings_those_towards_them(model):
    images = images_of(model, 30)
    shown = rem.explanation(model)(images)
    classes, couplings = towards_predicted(model, images)
    assert len(set(classes)) > 1
    np.testing.assert_array_equal(shown["classes"], classes)
    assert keras.backend.standardize_dtype(shown["classes"].dtype) == "int32"
    np.testing.assert_allclose(shown["lengths"], model(images), atol=SUMS)
    np.testing.assert_allclose(shown["couplings"], couplings, atol=SUMS)


def test_saliency_is_that_of_the_children_of_the_predicted_class(model):
    images = images_of(model, 5)
    _, couplings = towards_predicted(model, images)
    poses = shown_by(model, "primary_caps", images)
    lengths = np.linalg.norm(poses, axis=-1)
    grid = np.mean(lengths * couplings.reshape(lengths.shape), axis=-1)
    saliency = rem.explanation(model, align="grid")(images)["saliency"]
    np.testing.assert_allclose(saliency, enlarged(grid, 8), atol=SUMS)


def test_saliency_of_couplings_alone_still_leaves_silent_children_out(model):
    weight = model.get_layer("class_caps").transformation
    before = np.array(weight)
    silent = np.isin(np.arange(12), [0, 7])
    weight.assign(np.where(silent[:, None, None, None], 0.0, before))
    images = images_of(model, 5)
    _, couplings = towards_predicted(model, images)
    alone = rem.explanation(model, weight_by_activation=False, align="grid")(
        images
    )
    weight.assign(before)
    grid = np.mean((couplings * ~silent).reshape(-1, 2, 2, 3), axis=-1)
    np.testing.assert_allclose(alone["saliency"], enlarged(grid, 8), atol=SUMS)


def test_rows_and_columns_are_not_exchanged():
    images = keras.Input((5, 9, 2))
    children = PrimaryCaps(2, 4, 3, name="children")(images)
    model = keras.Model(images, ClassCaps(3, 4, name="class_caps")(children))
    data = images_of(sharpened(model), 5)
    _, couplings = towards_predicted(model, data)
    lengths = np.linalg.norm(shown_by(model, "children", data), axis=-1)
    assert lengths.shape == (5, 3, 7, 2)
    couplings = couplings.reshape(lengths.shape)
    stretched = rem.explanation(model, align="grid")(data)["saliency"]
    expected = saliency_map(lengths, couplings, (5, 9))
    np.testing.assert_allclose(stretched, expected, atol=SUMS)
    # Windows of 3x3 in steps of one: each child looks at a pixel of its own.
    inner = rem.explanation(model)(data)["saliency"]
    grid = np.mean(lengths * couplings, axis=-1)
    expected = np.pad(grid, [(0, 0), (1, 1), (1, 1)])
    np.testing.assert_allclose(inner, expected, atol=SUMS)


def test_silent_children_count_nothing(model):
    weight = model.get_layer("class_caps").transformation
    before = np.array(weight)
    silent = np.isin(np.arange(12), [0, 4, 5, 11])
    weight.assign(np.where(silent[:, None, None, None], 0.0, before))
    images = images_of(model, 5)
    _, couplings = towards_predicted(model, images)
    saliency = rem.explanation(model, align="grid")(images)["saliency"]
    weight.assign(before)
    np.testing.assert_allclose(couplings[:, silent], 1 / 3, atol=SUMS)
    poses = shown_by(model, "primary_caps", images)
    active = np.linalg.norm(poses, axis=-1).reshape(-1, 12) * ~silent
    grid = np.mean((active * couplings).reshape(-1, 2, 2, 3), axis=-1)
    np.testing.assert_allclose(saliency, enlarged(grid, 8), atol=SUMS)


def test_silent_types_count_nothing_where_positions_share_matrices():
    model = sharpened(tiny_capsnet(primary_types=3, share="type"))
    weight = model.get_layer("class_caps").transformation
    silent = np.array([False, True, False])
    weight.assign(np.where(silent[:, None, None, None], 0.0, weight))
    images = images_of(model, 5)
    _, couplings = towards_predicted(model, images)
    poses = shown_by(model, "primary_caps", images)
    active = np.linalg.norm(poses, axis=-1) * ~silent
    grid = np.mean(active * couplings.reshape(active.shape), axis=-1)
    saliency = rem.explanation(model, align="grid")(images)["saliency"]
    np.testing.assert_allclose(saliency, enlarged(grid, 8), atol=SUMS)


@pytest.mark.parametrize("zero", [None, 1], ids=["all_vote", "one_zero"])
def test_em_counts_activations_of_every_child(zero, em_model):
    weight = em_model.get_layer("class_caps").transformation
    before = np.array(weight)
    if zero is not None:
        weight.assign(np.where(np.eye(3)[zero, :, None, None, None], 0, before))
    images = images_of(em_model, 5)
    classes, couplings = towards_predicted(em_model, images)
    shown = rem.explanation(em_model, align="grid")(images)
    _, activations = shown_by(em_model, "conv_caps2", images)
    weight.assign(before)
    np.testing.assert_array_equal(shown["classes"], classes)
    grid = np.mean(couplings.reshape(-1, 2, 2, 3) * activations, axis=-1)
    np.testing.assert_allclose(shown["saliency"], enlarged(grid, 17), atol=1e-5)


@pytest.mark.parametrize("name", ["efficient_capsnet", "deepcaps"])
def test_children_of_one_position_or_none_have_no_saliency(name):
    explanation = rem.explanation(SMALL_NETWORKS[name]())
    assert list(explanation.output) == ["lengths", "classes", "couplings"]


def test_weights_are_shared(model):
    explanation = rem.explanation(model)
    assert explanation.name == model.name
    ours = {id(weight) for weight in model.weights}
    assert {id(weight) for weight in explanation.weights} == ours


def test_sequential_model_that_ends_in_poses():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            PrimaryCaps(2, 4, 5, strides=3, name="children"),
            ClassCaps(3, 4, name="class_caps"),
        ]
    )
    images = images_of(sharpened(model), 5)
    shown = rem.explanation(model, align="grid")(images)
    lengths = np.linalg.norm(model(images), axis=-1)
    np.testing.assert_allclose(shown["lengths"], lengths, atol=SUMS)
    np.testing.assert_array_equal(shown["classes"], lengths.argmax(-1))
    _, couplings = towards_predicted(model, images)
    active = np.linalg.norm(model.get_layer("children")(images), axis=-1)
    grid = np.mean(active * couplings.reshape(active.shape), axis=-1)
    np.testing.assert_allclose(shown["saliency"], enlarged(grid, 8), atol=SUMS)


def test_decoder_and_labels_are_left_out():
    model = tiny_capsnet(routing="regularized", decoder=True)
    explanation = rem.explanation(model)
    assert list(explanation.output) == [
        "lengths",
        "classes",
        "couplings",
        "saliency",
    ]
    assert "reconstruction" not in [layer.name for layer in explanation.layers]
    assert explanation.input.shape == (None, 8, 8, 1)


def test_half_precision_is_explained_in_float32():
    with dtype_policy("mixed_float16"):
        model = sharpened(tiny_capsnet())
        shown = rem.explanation(model)(images_of(model, 5))
    dtypes = {
        name: keras.backend.standardize_dtype(output.dtype)
        for name, output in shown.items()
    }
    assert dtypes.pop("classes") == "int32"
    assert set(dtypes.values()) == {"float32"}
    _, couplings = towards_predicted(model, images_of(model, 5))
    np.testing.assert_allclose(shown["couplings"], couplings, atol=SUMS)


def test_without_couplings_the_rest_is_the_same(model):
    images = images_of(model, 5)
    shown = rem.capsule_outputs(model)(images)
    rest = rem.capsule_outputs(model, couplings=False)(images)
    assert list(rest) == ["lengths", "poses"]
    for name, output in rest.items():
        np.testing.assert_allclose(output, shown[name], atol=SUMS)


def test_without_couplings_activations_are_lengths_too(em_model):
    images = images_of(em_model, 5)
    rest = rem.capsule_outputs(em_model, couplings=False)(images)
    poses, activations = shown_by(em_model, "class_caps", images)
    np.testing.assert_allclose(rest["lengths"], activations, atol=SUMS)
    np.testing.assert_allclose(rest["poses"], poses, atol=1e-5)


def test_network_without_class_capsules_is_an_error():
    images = keras.Input((8, 8, 1))
    children = PrimaryCaps(2, 4, 4, strides=2)(images)
    poses = keras.layers.Reshape((3, 4))(ConvCaps(3, 4, 3)(children))
    with pytest.raises(ValueError, match="is a ConvCaps, whose children diff"):
        rem.explanation(keras.Model(images, Length()(poses)))
    with pytest.raises(ValueError, match="has no routed capsule layer"):
        rem.explanation(keras.Model(images, keras.layers.Flatten()(images)))
