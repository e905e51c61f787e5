"""Maps of several methods, measured side by side."""

import json

import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, images_of
from tests.rem.maps.test_map_quality import maps_of
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.rem.maps.map_quality import (
    attribution_maps,
    compare_maps,
    mu_fidelity,
    pixel_deletion,
    pixel_insertion,
    pointing,
    relevance_mass,
)

METHODS = [
    "couplings", "integrated gradients", "Grad-CAM", "occlusion", "random",
]  # fmt: skip


@pytest.fixture(scope="module")
def compared(capsnet):
    images = images_of(capsnet, 6)
    masks = np.zeros((6, 8, 8), bool)
    masks[:, 2:4, 3] = True
    result = compare_maps(capsnet, images, masks, num_subsets=10, margin=1)
    return images, masks, result


def test_a_comparison_has_every_measure_of_every_method(capsnet, compared):
    images, masks, result = compared
    assert list(result.measures) == METHODS and result.num_images == 6
    maps = attribution_maps(capsnet, images)
    assert list(maps) == METHODS
    for name in ("couplings", "integrated gradients"):
        own = maps[name]
        given = capsnet, images, own
        expected = {
            "relevance_mass": relevance_mass(own, masks, margin=1),
            "pointing": pointing(own, masks, margin=1),
            "deletion": pixel_deletion(*given),
            "insertion": pixel_insertion(*given),
            "mu_fidelity": mu_fidelity(*given, num_subsets=10),
        }
        assert list(result.measures[name]) == list(expected)
        for measure, values in expected.items():
            np.testing.assert_allclose(
                result.measures[name][measure], values.mean(), atol=1e-5
            )


def test_our_map_is_that_of_the_explanation(capsnet):
    images = images_of(capsnet, 4)
    maps = attribution_maps(capsnet, images)
    expected = rem.explanation(capsnet)(images)["saliency"]
    np.testing.assert_allclose(maps["couplings"], expected, atol=SUMS)
    assert maps["random"].std() > 0.2


def test_a_comparison_prints_and_saves(compared, tmp_path):
    *_, result = compared
    lines = str(result).splitlines()
    assert lines[0].split() == [
        "map", "relevance", "mass", "pointing", "deletion", "insertion",
        "MuFidelity",
    ]  # fmt: skip
    assert lines[2].startswith("integrated gradients")
    assert lines[-1] == "means over 6 images"
    assert f"{result.measures['occlusion']['deletion']:.3f}" in lines[4]
    result.save(tmp_path / "maps.json")
    assert json.loads((tmp_path / "maps.json").read_text()) == result.to_dict()
    assert result.to_dict()["settings"]["num_subsets"] == 10


def test_maps_of_other_methods_can_be_compared(capsnet):
    images = images_of(capsnet, 4)
    maps = {"mine": maps_of(images), "zero": np.zeros(images.shape[:3])}
    result = compare_maps(capsnet, images, maps=maps, num_subsets=5)
    assert list(result.measures) == ["mine", "zero"]
    assert list(result.measures["zero"]) == [
        "deletion", "insertion", "mu_fidelity",
    ]  # fmt: skip
    assert result.measures["zero"]["mu_fidelity"] == 0
    with pytest.raises(ValueError, match="at least one method"):
        compare_maps(capsnet, images, maps={})


def test_networks_without_positions_have_no_map_of_couplings():
    model = SMALL_NETWORKS["multilayer_capsnet"]()
    maps = attribution_maps(model, images_of(model, 1), steps=2)
    assert list(maps) == METHODS[1:]
