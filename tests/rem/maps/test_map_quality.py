"""Measures of maps: loops, Xplique's numbers, limits and errors.

`golden/12_xplique_maps.npz` holds images `[4, 12, 12, 2]`, weights of the small
network below, a random map for each image, and what Xplique 2.0.2 makes of them
on TensorFlow 2.21, image by image: `Deletion` and `Insertion` (16 steps),
`MuFidelity` (60 subsets of 5 of 5x5 cells, those that `random_subsets` draws
with the seed 3 in the place of its own), `IntegratedGradients` (400 steps, sum
over channels), `Occlusion` (patches and strides of 3) and `GradCAM`.
"""

import keras
import numpy as np
import pytest

from tests import golden
from tests.networks import images_of
from tests.tolerance import SUMS
from tfcaps.rem.maps.attribution import (
    grad_cam,
    integrated_gradients,
    occlusion,
)
from tfcaps.rem.maps.map_quality import (
    mu_fidelity,
    pixel_deletion,
    pixel_insertion,
    pointing,
    random_subsets,
    relevance_mass,
)


@pytest.fixture(scope="module")
def xplique():
    return golden.load("12_xplique_maps")


@pytest.fixture(scope="module")
def network(xplique):
    images = keras.Input((12, 12, 2))
    x = keras.layers.Conv2D(
        4, 3, padding="same", activation="relu", data_format="channels_last"
    )(images)
    x = keras.layers.Flatten()(x)
    model = keras.Model(images, keras.layers.Dense(3, "sigmoid")(x))
    model.set_weights([xplique[f"weights_{k}"] for k in range(4)])
    return model


def linear_model(weights):
    """Returns a score `w . x` of images of one channel, and one of `-w . x`."""
    images = keras.Input((*weights.shape, 1))
    scores = keras.layers.Dense(2, use_bias=False)
    model = keras.Model(images, scores(keras.layers.Flatten()(images)))
    both = np.stack([weights, -weights], axis=-1)
    scores.kernel.assign(both.reshape(-1, 2))
    return model


def maps_of(images, seed=2):
    return np.random.default_rng(seed).normal(size=images.shape[:3])


# --------------------------------------------------------------- against masks


def test_relevance_mass_and_pointing_by_a_loop(rng):
    maps = rng.normal(size=(6, 7, 9))
    masks = rng.random((6, 7, 9)) > 0.97
    masks[:, 3, 4] = True
    for margin in (0, 1, 3):
        mass = relevance_mass(maps, masks, margin=margin)
        points = pointing(maps, masks, margin=margin)
        for k in range(6):
            on, total = 0.0, 0.0
            highest, hit = -np.inf, None
            for row in range(7):
                for column in range(9):
                    near = any(
                        masks[k, r, c]
                        for r in range(7)
                        for c in range(9)
                        if max(abs(r - row), abs(c - column)) <= margin
                    )
                    value = maps[k, row, column]
                    total += max(value, 0.0)
                    on += max(value, 0.0) * near
                    if value > highest:
                        highest, hit = value, near
            np.testing.assert_allclose(mass[k], on / total)
            assert points[k] == hit


def test_pixels_that_are_equally_high_share_an_image():
    maps = np.zeros((2, 2, 4))
    maps[0, 0, :] = 1.0  # four of which one is on the mask
    maps[1] = -3.0  # as high everywhere
    masks = np.zeros((2, 2, 4), bool)
    masks[:, 0, 0] = True
    np.testing.assert_allclose(pointing(maps, masks, margin=0), [1 / 4, 1 / 8])
    # A map without anything positive counts as one that is equal everywhere.
    np.testing.assert_allclose(
        relevance_mass(maps, masks, margin=0), [1 / 4, 1 / 8]
    )


def test_bad_masks_are_errors(rng):
    maps, masks = rng.random((3, 4, 4)), np.ones((3, 4, 4), bool)
    with pytest.raises(ValueError, match=r"shape \[n, h, w\].*\(3, 4, 4\) and"):
        relevance_mass(maps, masks[:2])
    with pytest.raises(ValueError, match="float64"):
        pointing(maps, maps)
    with pytest.raises(ValueError, match="`margin` must be at least 0.*-1"):
        pointing(maps, masks, margin=-1)
    masks[1] = False
    with pytest.raises(
        ValueError, match="none in 1 of 3, the first of them at"
    ):
        pointing(maps, masks)
    masks[1] = True
    maps[2, 1, 0] = np.nan
    with pytest.raises(ValueError, match=r"must be finite.*at \[2, 1, 0\]"):
        relevance_mass(maps, masks)


# ------------------------------------------------------------ against Xplique


def test_deletion_and_insertion_are_those_of_xplique(network, xplique):
    images, maps = xplique["images"], xplique["maps"]
    classes = xplique["classes"]
    full = np.asarray(network(images))[np.arange(4), classes]
    for name, measure, fill in (
        ("deletion", pixel_deletion, 0.0),
        ("insertion", pixel_insertion, 0.0),
        ("deletion_grey", pixel_deletion, 0.5),
    ):
        areas = measure(
            network, images, maps, classes=classes, steps=16, fill=fill
        )
        np.testing.assert_allclose(areas * full, xplique[name], atol=SUMS)


def test_mu_fidelity_is_that_of_xplique(network, xplique):
    found = mu_fidelity(
        network,
        xplique["images"],
        xplique["maps"],
        classes=xplique["classes"],
        grid_size=5,
        num_subsets=60,
        seed=3,
    )
    # Two drops that differ by rounding may change places.
    np.testing.assert_allclose(found, xplique["mu_fidelity"], atol=2e-3)


def test_maps_are_those_of_xplique(network, xplique):
    images, classes = xplique["images"], xplique["classes"]
    covered = occlusion(network, images, classes, size=3, stride=3)
    np.testing.assert_allclose(covered, xplique["occlusion"], atol=SUMS)
    cam = grad_cam(network, images, classes)
    np.testing.assert_allclose(cam, xplique["grad_cam"], atol=SUMS)
    # Its rule is another one, and each ReLU is a kink on the way.
    maps = integrated_gradients(network, images, classes, steps=200)
    expected = xplique["integrated_gradients"]
    np.testing.assert_allclose(maps, expected, atol=4e-4)
    assert np.abs(expected).max() > 0.05


# ---------------------------------------------------------- against the network


def test_deletion_of_one_pixel_that_counts():
    weights = np.zeros((4, 4))
    weights[1, 2] = 1.0
    model, images = linear_model(weights), np.ones((1, 4, 4, 1))
    best, worst = weights[None], -weights[None]
    # Gone with the first of 16 pixels, or with the last.
    settings = {"steps": 16}
    for measure, map_, area in (
        (pixel_deletion, best, 1 / 32),
        (pixel_deletion, worst, 31 / 32),
        (pixel_insertion, best, 31 / 32),
        (pixel_insertion, worst, 1 / 32),
    ):
        found = measure(model, images, map_, **settings)
        np.testing.assert_allclose(found, [area], atol=SUMS)


def test_equal_pixels_go_in_a_random_order():
    weights = np.zeros((6, 6))
    weights[:3] = 1 / 18
    model, images = linear_model(weights), np.ones((200, 6, 6, 1))
    same = np.zeros((200, 6, 6))
    areas = pixel_deletion(model, images, same, steps=36)
    # Row by row it would be 0.25.
    np.testing.assert_allclose(areas.mean(), 0.5, atol=0.02)
    assert areas.std() > 0.01
    again = pixel_deletion(model, images, same, steps=36, seed=1)
    assert not np.allclose(areas, again)


def test_mu_fidelity_of_the_true_effects_is_1_and_of_none_is_0(rng):
    model = linear_model(rng.random((6, 6)))
    images = images_of(model, 4)
    effects = occlusion(model, images, size=1)
    for grid_size in (None, 3, 100):
        settings = {"grid_size": grid_size, "num_subsets": 50}
        right = mu_fidelity(model, images, effects, **settings)
        np.testing.assert_allclose(right, 1.0, atol=1e-3)
        wrong = mu_fidelity(model, images, -effects, **settings)
        np.testing.assert_allclose(wrong, -1.0, atol=1e-3)
        # All subsets have one size.
        same = np.full(effects.shape, 0.1, np.float32)
        assert not mu_fidelity(model, images, same, **settings).any()
    blank = np.zeros_like(images)
    assert not mu_fidelity(model, blank, effects, num_subsets=9).any()


def test_subsets_are_cells_of_one_size():
    subsets = random_subsets((12, 10), 5, 0.2, 40, 0)
    assert subsets.shape == (40, 12, 10) and subsets.dtype == bool
    # Where the centres of pixels lie: 2, 3, 2, 3, 2 rows, and 2 columns each.
    rows = np.split(subsets, np.cumsum([2, 3, 2, 3]), axis=1)
    sizes = np.zeros(40)
    for part in rows:
        assert np.all(part == part[:, :1])
        assert np.all(part[:, 0, ::2] == part[:, 0, 1::2])
        sizes += part[:, 0, ::2].sum(axis=1)
    assert set(sizes) == {5}
    assert len(np.unique(subsets, axis=0)) > 35
    assert random_subsets((4, 4), None, 0.01, 3, 0).sum() == 3


MEASURES = {
    "pixel_deletion": pixel_deletion,
    "pixel_insertion": pixel_insertion,
    "mu_fidelity": lambda *a, **k: mu_fidelity(*a, num_subsets=9, **k),
}
every_measure = pytest.mark.parametrize(
    "measure", MEASURES.values(), ids=MEASURES
)


@every_measure
def test_measures_do_not_depend_on_the_batch(measure, capsnet):
    images = images_of(capsnet, 5)
    maps = maps_of(images)
    whole = measure(capsnet, images, maps)
    assert whole.shape == (5,)
    parts = measure(capsnet, images, maps, batch_size=7)
    np.testing.assert_allclose(whole, parts, atol=1e-5)
    alone = measure(capsnet, images[:1], maps[:1])
    np.testing.assert_allclose(whole[:1], alone, atol=1e-5)


@every_measure
def test_maps_that_do_not_fit_are_errors(measure, capsnet):
    images = images_of(capsnet, 4)
    maps = maps_of(images)
    with pytest.raises(ValueError, match=r"\(4, 8, 8\). Received: \(4, 8\)"):
        measure(capsnet, images, maps[..., 0])
    maps[0, 0, 0] = np.inf
    with pytest.raises(ValueError, match=r"finite.*at \[0, 0, 0\]"):
        measure(capsnet, images, maps)
    with pytest.raises(ValueError, match=r"in \[0, 2\]. Received: 0 to 9"):
        measure(capsnet, images, maps, classes=[0, 9, 1, 2])


def test_settings_out_of_range_are_errors(capsnet):
    images = images_of(capsnet, 4)
    maps = maps_of(images)
    for bad, text in (
        ({"grid_size": 0}, "`grid_size` must be at least 1, or None"),
        ({"subset_share": 1.0}, r"`subset_share` must be in \(0, 1\).*1.0"),
        ({"num_subsets": 1}, "`num_subsets` must be at least 2.*1"),
    ):
        with pytest.raises(ValueError, match=text):
            mu_fidelity(capsnet, images, maps, **bad)
    with pytest.raises(ValueError, match="`steps` must be at least 1.*steps=0"):
        pixel_deletion(capsnet, images, maps, steps=0)
