"""What a network looked at: explanations, maps of couplings."""

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, images_of, sharpened, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import models, rem
from tfcaps.layers import ClassCaps, PrimaryCaps
from tfcaps.rem.maps import saliency_map
from training.devices import dtype_policy


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return sharpened(tiny_capsnet(primary_types=3))


def shown_by(model, layer, images):
    inside = keras.Model(model.inputs, model.get_layer(layer).output)
    return keras.tree.map_structure(np.asarray, inside([images]))


def towards_predicted(model, images):
    """Returns the classes, and the couplings `[b, i]` towards them."""
    shown = rem.capsule_outputs(model)(images)
    classes = np.argmax(np.asarray(shown["lengths"]), axis=-1)
    couplings = np.asarray(shown["couplings"])
    return classes, couplings[np.arange(len(classes)), :, classes]


def mean_over_types(model, images, layer="primary_caps", silent=()):
    """Returns activation times coupling with the predicted class, `[b, h, w]`.

    Children of the numbers `silent` count nothing.
    """
    _, couplings = towards_predicted(model, images)
    lengths = np.linalg.norm(shown_by(model, layer, images), axis=-1)
    votes = ~np.isin(np.arange(couplings.shape[1]), silent)
    products = lengths * (couplings * votes).reshape(lengths.shape)
    return np.mean(products, axis=-1)


def tents(grid, places, side):
    """Returns the map `[b, side, side]` in which each child is a tent.

    A tent is 1 at the centre of the child's field, and 0 at the next centre or
    as far from it as that would be.
    """
    step = places[1] - places[0]
    apart = np.abs(np.arange(side) - places[:, np.newaxis])
    heights = np.maximum(0.0, 1.0 - apart / step)
    return np.einsum("bmn,my,nx->byx", grid, heights, heights)


def test_classes_are_the_longest_and_couplings_those_towards_them(model):
    images = images_of(model, 30)
    explanation = rem.explanation(model)
    shown = explanation(images)
    classes, couplings = towards_predicted(model, images)
    assert len(set(classes)) > 1
    np.testing.assert_array_equal(shown["classes"], classes)
    assert keras.backend.standardize_dtype(shown["classes"].dtype) == "int32"
    np.testing.assert_allclose(shown["lengths"], model(images), atol=SUMS)
    np.testing.assert_allclose(shown["couplings"], couplings, atol=SUMS)
    poses = shown_by(model, "class_caps", images)
    np.testing.assert_allclose(shown["poses"], poses, atol=SUMS)
    ours = {id(weight) for weight in model.weights}
    assert {id(weight) for weight in explanation.weights} == ours


@pytest.mark.parametrize(
    ("share", "zero", "silent"),
    [
        (None, (), ()),
        (None, (0, 4, 5, 11), (0, 4, 5, 11)),
        ("type", (1,), (1, 4, 7, 10)),
    ],
    ids=["all vote", "silent children", "silent type"],
)
def test_saliency_is_that_of_the_children_that_vote(share, zero, silent):
    keras.utils.set_random_seed(0)
    model = sharpened(tiny_capsnet(primary_types=3, share=share))
    weight = model.get_layer("class_caps").transformation
    matrices = np.array(weight)
    matrices[list(zero)] = 0.0
    weight.assign(matrices)
    images = images_of(model, 5)
    places = np.array([2.0, 4.0])  # of 5x5 pixels in steps of two
    grid = mean_over_types(model, images, silent=silent)
    saliency = rem.explanation(model)(images)["saliency"]
    np.testing.assert_allclose(saliency, tents(grid, places, 8), atol=SUMS)
    trees, fields = rem.trees(model, images), rem.receptive_fields(model)
    maps = saliency_map(trees.activations, trees.towards, fields)
    np.testing.assert_allclose(maps, saliency, atol=SUMS)


def test_rows_and_columns_are_not_exchanged():
    images = keras.Input((5, 9, 2))
    children = PrimaryCaps(2, 4, 3, name="children")(images)
    model = keras.Model(images, ClassCaps(3, 4, name="class_caps")(children))
    data = images_of(sharpened(model), 5)
    grid = mean_over_types(model, data, "children")
    assert grid.shape == (5, 3, 7)
    # Windows of 3x3 in steps of one: each child looks at a pixel of its own.
    inner = rem.explanation(model)(data)["saliency"]
    expected = np.pad(grid, [(0, 0), (1, 1), (1, 1)])
    np.testing.assert_allclose(inner, expected, atol=SUMS)


@pytest.mark.parametrize("name", ["efficient_capsnet", "deepcaps"])
def test_children_of_one_position_or_none_have_no_saliency(name):
    outputs = rem.explanation(SMALL_NETWORKS[name]()).output
    assert set(outputs) == {"lengths", "classes", "couplings", "poses"}


def test_half_precision_is_explained_in_float32():
    with dtype_policy("mixed_float16"):
        model = sharpened(tiny_capsnet())
        shown = rem.explanation(model)(images_of(model, 5))
    dtypes = {
        name: keras.backend.standardize_dtype(output.dtype)
        for name, output in shown.items()
    }
    assert dtypes.pop("classes") == "int32"
    assert dtypes.pop("poses") == "float16"
    assert set(dtypes.values()) == {"float32"}
    _, couplings = towards_predicted(model, images_of(model, 5))
    np.testing.assert_allclose(shown["couplings"], couplings, atol=SUMS)


def test_blueprints_are_the_shifts_of_the_types_that_a_class_has():
    network = models.constellation_capsnet((16, 16, 1), 3, num_types=2)
    layer = network.get_layer("class_caps")
    shifts = np.arange(12.0).reshape(2, 3, 2)
    layer.blueprint.assign(shifts / layer.side)
    layer.slots.assign([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    found = rem.blueprints(network)
    np.testing.assert_allclose(found[0], shifts[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found[1, 1], shifts[1, 1], rtol=1e-6)
    assert np.isnan(found[1, 0]).all() and np.isnan(found[2, 1]).all()
    assert rem.blueprints(tiny_capsnet()) is None
