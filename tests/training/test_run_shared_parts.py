"""Runs whose network begins with the parts that classes share."""

import keras
import numpy as np
import pytest

from cli import UserError
from tests.test_shared_parts import SIDE, symbols
from tests.training.test_run import command, metrics
from training import networks
from training.datasets import Data, load
from training.images import Images, Split

_FLAGS = (
    "--model constellation_capsnet --shared-parts --bare --rem --force "
    "--epochs 3 --rem-epochs 1 --batch-size 16"
).split()


@pytest.mark.slow
def test_a_run_begins_with_them_and_keeps_them(tmp_path):
    images, labels, _ = symbols()
    pixels = (255 * np.clip(images, 0, 1)).astype("uint8")
    half = len(labels) // 2
    path = tmp_path / "data.npz"
    np.savez(
        path,
        x_train=pixels[:half],
        y_train=labels[:half],
        x_test=pixels[half:],
        y_test=labels[half:],
    )
    out = tmp_path / "run"
    assert command("--dataset", path, *_FLAGS, "--out", out) == 0
    parts = load(str(path), validation=0.1).shared_parts
    begun = parts.network((SIDE, SIDE, 1), 6).get_layer("class_caps")
    for name in ("baseline", "model"):
        network = keras.models.load_model(out / f"{name}.keras")
        layer = network.get_layer("class_caps")
        np.testing.assert_array_equal(layer.slots, begun.slots)
        apart = np.asarray(layer.shifts - begun.shifts)[begun.slots == 1]
        assert 0 < np.abs(apart).max() < 3.0  # moved by gradients alone
        assert float(network.get_layer("part_caps").hardness) == 1.0
    losses = [row["loss"] for row in metrics(out)]
    assert losses[-1] < 0.7 * losses[0]


def test_what_has_no_shared_parts_is_said():
    pixels = np.zeros((4, 16, 16, 1), np.uint8)
    pixels[:, 6:9, 6:9] = 255
    part = Split(Images(pixels), np.array([0, 0, 1, 1]))
    plain = Data("squares", part, part, part, ("a", "b"))
    with pytest.raises(UserError, match="--shared-parts does not fit squares"):
        _ = plain.shared_parts


@pytest.mark.parametrize(
    ("name", "more"),
    [("dr_capsnet", {}), ("constellation_capsnet", {"part_types": 3})],
)
def test_other_networks_take_none(name, more):
    with pytest.raises(UserError, match="is for --model constellation_capsnet"):
        networks.build(name, (16, 16, 1), 2, shared=object(), **more)
