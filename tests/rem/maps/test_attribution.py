"""Maps of what moves a class: known answers, limits and errors."""

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, images_of, tiny_capsnet
from tests.tolerance import SUMS, assert_all_equal
from tfcaps.rem.maps.attribution import (
    ClassGradients,
    _windows,
    filled,
    grad_cam,
    integrated_gradients,
    occlusion,
    with_full_gradients,
)
from tfcaps.routing import DynamicRouting


@pytest.fixture(scope="module")
def linear():
    """Scores `w_j . x + b_j` of images of 4x6 pixels and two channels."""
    keras.utils.set_random_seed(0)
    images = keras.Input((4, 6, 2))
    scores = keras.layers.Dense(3, bias_initializer="uniform")
    return keras.Model(images, scores(keras.layers.Flatten()(images)))


def lengths_of(model, images):
    return np.asarray(model(images))


def weights_of(linear):
    """Returns `[j, h, w, c]`."""
    return np.array(linear.layers[-1].kernel).T.reshape(3, 4, 6, 2)


# -------------------------------------------------------- integrated gradients


def test_integrated_gradients_of_a_linear_model_are_weights_times_pixels(
    linear,
):
    images = images_of(linear, 5)
    classes = np.array([0, 1, 2, 2, 0])
    base = np.full((4, 6, 2), 0.3, np.float32)
    base[1, 2] = 0.9
    maps = integrated_gradients(linear, images, classes, steps=3, baseline=base)
    weights = weights_of(linear)[classes]
    expected = np.sum((images - base) * weights, axis=-1)
    np.testing.assert_allclose(maps, expected, atol=1e-5)
    assert maps.dtype == np.float32 and maps.min() < 0


def test_classes_are_the_predicted_ones_by_default(linear):
    images = images_of(linear, 20)
    predicted = np.argmax(lengths_of(linear, images), axis=-1)
    assert len(set(predicted)) > 1
    for attribute in (integrated_gradients, occlusion):
        np.testing.assert_array_equal(
            attribute(linear, images), attribute(linear, images, predicted)
        )


def test_integrated_gradients_sum_to_the_difference(capsnet):
    images = images_of(capsnet, 5)
    classes = np.array([0, 1, 2, 0, 1])
    rows = np.arange(5)
    full = lengths_of(capsnet, images)[rows, classes]
    empty = lengths_of(capsnet, np.zeros_like(images))[rows, classes]
    maps = integrated_gradients(capsnet, images, classes, steps=256)
    # Each ReLU is a kink on the way, which the sum may miss by 1/256.
    np.testing.assert_allclose(
        np.sum(maps, axis=(1, 2)), full - empty, atol=5e-3 * np.abs(full).max()
    )


def test_gradients_go_through_couplings_that_were_trained_as_constants(capsnet):
    images, rows = images_of(capsnet, 21), np.arange(21)
    classes = rows % 3
    constant, through = (
        ClassGradients(keras.Model([m.input], {"lengths": m.output}))
        for m in (capsnet, with_full_gradients(capsnet))
    )
    (outputs, last), (same, full) = (
        gradients([images], classes) for gradients in (constant, through)
    )
    np.testing.assert_allclose(outputs["lengths"], same["lengths"], atol=SUMS)
    step = 2e-4 * np.random.default_rng(2).normal(size=images.shape)
    step = step.astype(np.float32)
    beyond, before = (
        lengths_of(capsnet, images + sign * step)[rows, classes]
        for sign in (1, -1)
    )
    slopes = (beyond - before) / 2
    # The median, as a few steps lead over the kink of a ReLU.
    errors = [
        np.median(np.abs(np.sum(g * step, axis=(1, 2, 3)) / slopes - 1))
        for g in (last, full)
    ]
    assert errors[1] < 0.01 < 0.05 < errors[0], errors


def test_layers_that_are_differentiated_fully_are_shared():
    model = tiny_capsnet(routing=DynamicRouting(gradient="full"))
    copy = with_full_gradients(model)
    pairs = zip(model.layers[1:], copy.layers[1:], strict=True)
    assert all(a is b for a, b in pairs)
    last = with_full_gradients(tiny_capsnet()).get_layer("class_caps")
    assert last.routing.gradient == "full"


# -------------------------------------------------------------------- Grad-CAM


def test_grad_cam_by_hand_where_nothing_is_enlarged():
    images = keras.Input((3, 4, 2))
    features = keras.layers.Conv2D(
        2, 1, name="features", use_bias=False, data_format="channels_last"
    )
    x = keras.layers.Flatten()(features(images))
    head = keras.layers.Dense(2, use_bias=False)
    model = keras.Model(images, head(x))
    features.kernel.assign(np.eye(2)[None, None])  # features are the image
    shown = images_of(model, 3) - 0.5
    kernel = np.array(head.kernel).reshape(3, 4, 2, 2)
    maps = grad_cam(model, shown, [1, 0, 1])
    for image, j, found in zip(shown, (1, 0, 1), maps, strict=True):
        expected = np.zeros((3, 4))
        for c in range(2):
            expected += kernel[..., c, j].mean() * image[..., c]
        np.testing.assert_allclose(found, np.maximum(expected, 0), atol=SUMS)
    assert (maps == 0).any() and (maps > 0).any()


def test_grad_cam_is_drawn_where_features_look():
    images = keras.Input((7, 7, 1))
    # A window of three pixels that moves by two: centres at 1, 3 and 5.
    features = keras.layers.Conv2D(
        1, 3, 2, name="features", data_format="channels_last"
    )
    x = keras.layers.Flatten()(features(images))
    model = keras.Model(images, keras.layers.Dense(2, use_bias=False)(x))
    middle = np.zeros((3, 3, 1, 1))
    middle[1, 1] = 1.0
    features.kernel.assign(middle)
    model.layers[-1].kernel.assign(np.ones((9, 2)))
    shown = np.zeros((1, 7, 7, 1), np.float32)
    shown[0, 3, 5] = 1.0
    (found,) = grad_cam(model, shown)
    along = np.array([0, 0, 0.5, 1, 0.5, 0, 0])
    across = np.array([0, 0, 0, 0, 0.5, 1, 0.5])
    np.testing.assert_allclose(found, np.outer(along, across), atol=SUMS)


def test_grad_cam_sees_features_that_another_path_leads_past():
    images = keras.Input((5, 5, 1))
    features = keras.layers.Conv2D(
        1, 1, name="features", data_format="channels_last"
    )(images)
    both = keras.layers.Concatenate()(
        [keras.layers.Flatten()(features), keras.layers.Flatten()(images)]
    )
    scores = keras.layers.Dense(2, kernel_initializer="ones")(both)
    model = keras.Model(images, scores)
    model.get_layer("features").kernel.assign([[[[2.0]]]])
    shown = images_of(model, 2)
    maps = grad_cam(model, shown, layer="features")
    np.testing.assert_allclose(maps, 2.0 * shown[..., 0], atol=SUMS)


# ------------------------------------------------------------------- occlusion


def test_occlusion_of_a_linear_model_by_a_loop(linear):
    images = images_of(linear, 3)
    classes = [2, 0, 1]
    maps = occlusion(
        linear, images, classes, size=(2, 3), stride=(1, 2), fill=0.25
    )
    sums = np.sum((images - 0.25) * weights_of(linear)[classes], axis=-1)
    for drop, found in zip(sums, maps, strict=True):
        total, count = np.zeros((2, 4, 6))
        for row in (0, 1, 2):
            for column in (0, 2, 3):  # the last one ends with the image
                window = slice(row, row + 2), slice(column, column + 3)
                total[window] += drop[window].sum()
                count[window] += 1
        np.testing.assert_allclose(found, total / count, atol=1e-5)


def test_windows_are_an_eighth_of_the_image_and_overlap_by_half():
    windows = _windows((24, 32), None, None)
    rows, columns = (np.any(windows, axis=axis).sum(-1) for axis in (2, 1))
    assert set(rows) == {3} and set(columns) == {4}
    # A stride of 1 over 22 places, and of 2 over 15.
    assert len(windows) == 22 * 15
    assert np.all(np.any(windows, axis=0))


# ------------------------------------------------------------------------- all


METHODS = {
    "integrated_gradients": lambda *a, **k: integrated_gradients(
        *a, steps=3, **k
    ),
    "grad_cam": grad_cam,
    "occlusion": lambda *a, **k: occlusion(*a, size=4, **k),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@every_method
def test_maps_do_not_depend_on_the_batch(method, capsnet):
    images = images_of(capsnet, 7)
    whole = method(capsnet, images)
    assert whole.shape == (7, 8, 8) and whole.dtype == np.float32
    parts = method(capsnet, images, batch_size=5)
    np.testing.assert_allclose(whole, parts, atol=SUMS)
    alone = method(capsnet, images[3:4])
    np.testing.assert_allclose(whole[3:4], alone, atol=SUMS)


@every_method
@pytest.mark.parametrize("name", ["dr_capsnet", "gamma_capsnet"])
def test_every_method_has_maps_of_a_network(method, name):
    model = SMALL_NETWORKS[name]()
    images = images_of(model, 2)
    before = model.get_weights()
    maps = method(model, images)
    assert maps.shape == images.shape[:3] and np.all(np.isfinite(maps))
    assert_all_equal(before, model.get_weights())


@every_method
def test_poses_serve_as_well_as_lengths(method, capsnet):
    poses = keras.Model(capsnet.input, capsnet.get_layer("class_caps").output)
    images = images_of(capsnet, 2)
    np.testing.assert_allclose(
        method(poses, images), method(capsnet, images), atol=SUMS
    )


def test_filling():
    images = images_of(tiny_capsnet(), 2)
    assert np.all(filled(images, 0.5) == 0.5)
    blurred = filled(images, "blurred")
    assert blurred.shape == images.shape
    np.testing.assert_allclose(blurred.mean((1, 2)), images.mean((1, 2)), 0.1)
    assert np.all(blurred.std((1, 2)) < 0.3 * images.std((1, 2)))
    # Images do not run into one another.
    np.testing.assert_array_equal(blurred[:1], filled(images[:1], "blurred"))
    with pytest.raises(ValueError, match="or 'blurred'. Received: fill='grey'"):
        filled(images, "grey")


def test_bad_arguments_are_errors(linear, capsnet):
    images = images_of(linear, 5)
    with pytest.raises(ValueError, match="`steps` must be at least 1.*steps=0"):
        integrated_gradients(linear, images, steps=0)
    with pytest.raises(ValueError, match=r"not single.*shape \(4, 6, 2\)"):
        occlusion(linear, images[0])
    with pytest.raises(ValueError, match=r"of 5 images. Received.*shape \(2,"):
        occlusion(linear, images, [0, 1])
    with pytest.raises(ValueError, match=r"in \[0, 2\]. Received: 0 to 3"):
        occlusion(linear, images, [0, 1, 2, 3, 0])
    for bad in ({"size": 5}, {"size": 0}, {"size": 2, "stride": 3}):
        with pytest.raises(ValueError, match="from 1 to `size`. Received: si"):
            occlusion(linear, images, **bad)
    with pytest.raises(ValueError, match="no features.*Name a `layer`"):
        grad_cam(linear, images)
    anywhere = keras.Input((None, None, 1))
    x = keras.layers.Conv2D(2, 3, data_format="channels_last")(anywhere)
    x = keras.layers.GlobalAveragePooling2D(data_format="channels_last")(x)
    with pytest.raises(ValueError, match="a known size. Received: features"):
        grad_cam(keras.Model(anywhere, x), images_of(capsnet, 5))
    with pytest.raises(ValueError, match=r"c\]: conv. Received: layer='len"):
        grad_cam(capsnet, images_of(capsnet, 5), layer="lengths")


def test_gradients_on_another_backend_are_an_error(linear, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match="'torch'. Set KERAS_BACKEND"):
        ClassGradients(linear)
