"""The trees of images as arrays, and what their leaves lie on."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from tests.networks import draw_weights, outputs_of, tiny_capsnet
from tests.tolerance import SUMS, assert_close
from tfcaps import rem
from tfcaps.layers import ClassCaps, ConvCaps, Length, PrimaryCaps
from tfcaps.ops import quantize

IMAGES = np.random.default_rng(3).random((13, 8, 8, 1), dtype=np.float32)
LABELS = np.arange(13) % 3


@pytest.fixture(scope="module")
def model():
    return draw_weights(tiny_capsnet(), 4, class_caps=3.0)


@pytest.fixture(scope="module")
def found(model):
    return rem.trees(model, IMAGES, batch_size=5)


def test_trees_are_what_the_couplings_say(model, found):
    shown = outputs_of(rem.capsule_outputs(model), IMAGES)
    np.testing.assert_allclose(found.lengths, shown["lengths"], atol=SUMS)
    np.testing.assert_allclose(found.couplings, shown["couplings"], atol=SUMS)
    classes = shown["lengths"].argmax(axis=-1)
    np.testing.assert_array_equal(found.predicted, classes)
    towards = shown["couplings"][np.arange(13), :, classes]
    np.testing.assert_allclose(found.towards, towards, atol=SUMS)
    np.testing.assert_array_equal(found.in_tree, towards > 1 / 3)
    np.testing.assert_array_equal(found.codes, quantize(towards, 11))
    assert found.codes.dtype == np.uint8
    assert found.couplings.dtype == found.towards.dtype == np.float32
    assert len(found) == 13


def test_activations_are_those_of_children_that_vote(model):
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    layer = copy.get_layer("class_caps")
    matrices = np.array(layer.transformation)
    matrices[[1, 6]] = 0.0
    layer.transformation.assign(matrices)
    primary = keras.Model(copy.input, copy.get_layer("primary_caps").output)
    poses = outputs_of(primary, IMAGES).reshape(13, 8, 4)
    lengths = np.linalg.norm(poses, axis=-1)
    lengths[:, [1, 6]] = 0.0
    found = rem.trees(copy, IMAGES)
    np.testing.assert_allclose(found.activations, lengths, atol=1e-5)


def test_types_and_places_are_those_of_the_grid(model, found):
    fields = rem.receptive_fields(model)
    assert fields.grid == (2, 2, 2)
    assert found.types.tolist() == [0, 1] * 4 and found.num_types == 2
    assert found.has_places and found.places.shape == (13, 8, 2)
    np.testing.assert_array_equal(found.places[7], fields.child_centres)
    assert found.places.strides[0] == 0  # shared by all images
    per_type = [found.in_tree[:, t::2].any(axis=1) for t in range(2)]
    np.testing.assert_array_equal(found.slots, np.stack(per_type, axis=1))
    np.testing.assert_array_equal(found.leaves, found.in_tree.sum(axis=1))
    assert 0 < found.slots.mean() < 1


def test_some_of_the_images_can_be_taken(found):
    some = found[[2, 5]]
    assert len(some) == 2 and some.types is found.types
    np.testing.assert_array_equal(some.couplings, found.couplings[[2, 5]])
    np.testing.assert_array_equal(found[1:].leaves, found.leaves[1:])


def test_every_form_of_data_and_batch_gives_the_same(model, found):
    batches = [(IMAGES[:4], LABELS[:4]), (IMAGES[4:], LABELS[4:])]
    for images in ((IMAGES, LABELS), batches, ops.convert_to_tensor(IMAGES)):
        other = rem.trees(model, images, batch_size=3)
        np.testing.assert_allclose(other.towards, found.towards, atol=SUMS)
        np.testing.assert_array_equal(other.in_tree, found.in_tree)
    sizes = [len(part) for part in rem.iter_trees(model, IMAGES, batch_size=5)]
    assert sizes == [5, 5, 3]


def test_a_routing_that_rounds_has_the_rounded_threshold(model):
    found = rem.trees(rem.quantize_couplings(model, 4), IMAGES)
    other = rem.trees(model, IMAGES, 4)
    np.testing.assert_array_equal(other.couplings, found.couplings)
    np.testing.assert_array_equal(other.codes, np.round(3 * found.towards))
    assert other.codes.max() == 3 and found.codes.max() == 3
    rounded = np.round(found.couplings * 3) / 3
    np.testing.assert_allclose(found.couplings, rounded, atol=SUMS)
    np.testing.assert_array_equal(found.in_tree, found.towards > 0.5)


def test_children_in_a_row_have_types_of_their_own_and_no_place():
    images = keras.Input((8, 4), name="images")
    model = keras.Model(images, Length()(ClassCaps(3, 4)(images)))
    found = rem.trees(model, IMAGES[:, :, :4, 0])
    assert found.types.tolist() == list(range(8))
    assert np.isnan(found.places).all() and not found.has_places
    np.testing.assert_array_equal(found.slots, found.in_tree)


class PlacedCaps(ClassCaps):
    """Class capsules whose children say where they are."""

    def child_places(self, inputs):
        children = ops.shape(inputs)[1] * inputs.shape[2] * inputs.shape[3]
        return ops.reshape(inputs[..., :2], (-1, children, 2))


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_layer_may_say_where_its_children_are(batch_size):
    images = keras.Input((8, 8, 1), name="images")
    primary = PrimaryCaps(2, 4, 4, strides=2)
    poses = primary(images)
    model = keras.Model(images, Length()(PlacedCaps(3, 4)(poses)))
    found = rem.trees(model, IMAGES[:6], batch_size=batch_size)
    wanted = np.asarray(primary(IMAGES[:6]))[..., :2].reshape(6, -1, 2)
    np.testing.assert_allclose(found.places, wanted, atol=SUMS)
    assert np.ptp(found.places, axis=0).max() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": 1}, "`levels` must be at least 2, and whole"),
        ({"levels": 257}, r"must be in \[2, 256\].* Received: levels=257"),
        ({"mode": "up"}, "`mode`"),
        ({"images": IMAGES[:0]}, "data set has no samples"),
        ({"images": []}, "data set has no samples"),
        ({"images": 3}, r"must be \(images, labels\) or an iterable"),
    ],
)
def test_what_does_not_fit_is_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        rem.trees(**{"model": model, "images": IMAGES, **arguments})


def test_trees_need_classes():
    images = keras.Input((8, 8, 1), name="images")
    poses = ConvCaps(2, 4, 3)(PrimaryCaps(2, 4, 4, strides=2)(images))
    model = keras.Model(images, Length()(poses))
    with pytest.raises(ValueError, match="Trees need class capsules"):
        rem.trees(model, IMAGES)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((6, 8, 8, 2)).astype("float32")


@pytest.fixture(scope="module")
def trees(images):
    return rem.trees(tiny_capsnet(), images[..., :1])


def by_loops(images, trees, window):
    half = window // 2
    seen = {}
    for n, i in zip(*np.nonzero(trees.in_tree), strict=True):
        row, column = np.rint(trees.places[n, i]).astype(int)
        for y in range(window):
            for x in range(window):
                at = (row + y - half, column + x - half)
                if 0 <= at[0] < 8 and 0 <= at[1] < 8:
                    key = (trees.types[i], y, x)
                    seen.setdefault(key, []).append(images[n][at])
    found = np.zeros((trees.num_types, window, window, images.shape[-1]))
    for key, pixels in seen.items():
        found[key] = np.mean(pixels, axis=0)
    return found


@pytest.mark.parametrize("window", [1, 5, 11])
def test_they_are_the_means_of_windows(images, trees, window):
    found = rem.part_pictures(images, trees, window)
    assert found.dtype == np.float32
    assert_close(found, by_loops(images, trees, window))


def test_a_type_in_no_tree_is_not_known(images, trees):
    only = trees.in_tree & (trees.types == 0)
    found = rem.part_pictures(images, dataclasses.replace(trees, in_tree=only))
    assert np.isnan(found[1]).all() and np.isfinite(found[0]).all()


def test_mistakes_are_named(images, trees):
    with pytest.raises(ValueError, match="`window` must be odd"):
        rem.part_pictures(images, trees, 4)
    with pytest.raises(ValueError, match="one tree for each image"):
        rem.part_pictures(images[:2], trees)
    nowhere = dataclasses.replace(trees, places=np.full((6, 8, 2), np.nan))
    with pytest.raises(ValueError, match="have no places"):
        rem.part_pictures(images, nowhere)
