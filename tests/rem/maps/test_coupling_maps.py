"""Maps of the couplings towards any class."""

import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, images_of
from tests.rem.maps.test_explanation import shown_by
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.rem.maps.explanation import saliency_map


def test_maps_of_any_class_are_those_of_its_couplings(model):
    images = images_of(model, 5)
    shown = rem.capsule_outputs(model)(images)
    poses = shown_by(model, "primary_caps", images)
    grid = poses.shape[:-1]
    activations = np.linalg.norm(poses, axis=-1)
    couplings = np.asarray(shown["couplings"])
    classes = [2, 0, 1, 1, 0]
    towards = couplings[np.arange(5), :, classes].reshape(grid)
    fields = rem.receptive_fields(model)
    expected = saliency_map(
        activations, towards, (8, 8), centres=fields.centres
    )
    maps = rem.coupling_maps(model, images, classes, batch_size=2)
    np.testing.assert_allclose(maps, expected, atol=SUMS)
    stretched = rem.coupling_maps(
        model, images, classes, weight_by_activation=False, align="grid"
    )
    expected = saliency_map(np.ones(grid), towards, (8, 8))
    np.testing.assert_allclose(stretched, expected, atol=SUMS)


def test_maps_of_the_predicted_class_are_the_explanation(model):
    images = images_of(model, 5)
    explained = rem.explanation(model)(images)
    for classes in (None, np.asarray(explained["classes"])):
        maps = rem.coupling_maps(model, images, classes)
        np.testing.assert_allclose(maps, explained["saliency"], atol=SUMS)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([0], r"one class for each of 5 images. Received: .* shape \(1,\)"),
        ([0, 1, 2, 3, 0], r"must be in \[0, 2\]. Received: 0 to 3"),
        ([0, 1, 2, 0.5, 0], "must be whole numbers"),
    ],
    ids=["too few", "unknown", "not whole"],
)
def test_classes_that_do_not_fit_are_refused(model, classes, message):
    with pytest.raises(ValueError, match=message):
        rem.coupling_maps(model, images_of(model, 5), classes)


def test_maps_need_positions():
    flat = SMALL_NETWORKS["multilayer_capsnet"]()
    with pytest.raises(ValueError, match="where they have none. See"):
        rem.coupling_maps(flat, images_of(flat, 1), [0])
