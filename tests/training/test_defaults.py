"""The settings of data sets, and those that follow from what is in a folder."""

import json

import pytest
from PIL import Image

from tests.nightly import nightly
from tests.pictures import KINDS, write_shapes
from tests.training.test_run import command
from training import defaults, presets
from training.configs import Config


def write_empty(folder, count, size):
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for number in range(count // 2):
            Image.new("L", size).save(folder / name / f"{number}.png")


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        # Four fifths are for training: 32 in 2 steps of 16.
        (40, (50, 70), {"batch_size": 16, "epochs": 1100, "resize": 32}),
        (40, (64, 64), {"batch_size": 16, "epochs": 1100, "resize": None}),
        (40, (300, 200), {"batch_size": 16, "epochs": 1100, "resize": 64}),
        # 800 in 25 steps of 32.
        (1000, (32, 32), {"batch_size": 32, "epochs": 88, "resize": None}),
        # 4,000 in 63 steps of 64.
        (5000, (16, 16), {"batch_size": 64, "epochs": 35, "resize": None}),
    ],
)
def test_steps_batches_and_size_follow_from_the_pictures(
    tmp_path, count, size, expected
):
    write_empty(tmp_path, count, size)
    config = defaults.load(str(tmp_path))
    assert {name: getattr(config, name) for name in expected} == expected
    small = min(size) < 128
    assert config.model == (defaults.MODEL if small else defaults._PHOTOS)
    assert config.measured
    assert config.counterfactual_necessity > 0
    steps = -(-round(0.8 * count) // config.batch_size)
    assert config.epochs * steps >= 1500


def test_rare_classes_and_changes_follow_from_the_pictures(tmp_path):
    counts = {"bar": 4, "cross": 20, "ring": 40}
    write_shapes(tmp_path / "shapes", counts, seed=4)
    config = defaults.load(str(tmp_path / "shapes"))
    assert (config.balanced, config.flip, config.shift) == (True, True, 3)
    assert config.fill == "edge"
    # 0.8 * 3 * 40 pictures, with those that are repeated, in 6 steps of 16.
    assert config.epochs == 367
    text = defaults.about_pictures(config)
    assert "of about 6 steps of 16" in text
    assert "half are mirrored (--no-flip where sides tell classes)" in text
    assert "rare classes are seen more often (--no-balanced)" in text
    write_empty(tmp_path / "even", 40, (40, 40))
    assert not defaults.load(str(tmp_path / "even")).balanced


def test_other_networks_keep_their_losses_and_small_pictures_theirs(tmp_path):
    write_empty(tmp_path / "large", 40, (40, 40))
    other = defaults.load(str(tmp_path / "large"), "dr_capsnet_small")
    assert other.epochs == 1100 and not other.coupling_types
    assert other.sharpness_start is None
    assert any(other.counterfactual_weights)
    write_empty(tmp_path / "small", 40, (9, 30))
    assert defaults.load(str(tmp_path / "small")) == presets.with_losses(
        Config(dataset=str(tmp_path / "small"))
    )
    (tmp_path / "none").mkdir()
    assert defaults.load(str(tmp_path / "none")).epochs == Config().epochs


def test_a_plan_tells_what_is_done_with_pictures(tmp_path, capsys):
    write_shapes(tmp_path / "shapes", dict.fromkeys(KINDS, 10), seed=1)
    (tmp_path / "shapes" / "ring" / "1.png").write_bytes(b"broken")
    flags = ("--dataset", tmp_path / "shapes", "--dry-run", "--skip-broken")
    assert command(*flags, "--out", tmp_path / "run", "--epochs", 3) == 0
    printed = capsys.readouterr().out
    assert "left out  " in printed and "1.png is not a readable" in printed
    assert "pictures  29, sides of 4" in printed
    assert "pixels, resized to 32x32 (--resize); 3 epochs" in printed
    assert "of about 2 steps of 16" in printed
    assert "images of 32x32x3, 3 classes" in printed


@nightly
@pytest.mark.parametrize(
    ("counts", "sides"),
    [
        (dict.fromkeys(KINDS, 60), (40, 121)),
        ({"bar": 15, "ring": 15}, (40, 121)),
        ({"bar": 20, "cross": 20, "ring": 200}, (40, 121)),
        (dict.fromkeys(KINDS, 60), (160, 481)),
    ],
    ids=["few", "very few", "unbalanced", "large"],
)
def test_shapes_are_learnt_without_any_flag(tmp_path, counts, sides):
    write_shapes(tmp_path / "shapes", counts, seed=2, sides=sides)
    flags = ("--rem", "--dataset", tmp_path / "shapes", "--bare")
    assert command(*flags, "--out", tmp_path / "run") == 0
    saved = json.loads((tmp_path / "run" / "rem.json").read_text("utf-8"))
    for model in saved["models"].values():
        assert model["accuracy_quantized"] >= 0.95


_USES_TREES = {
    "counterfactual_weights": (1.0, 1.0),
    "coupling_share": 0.385,
    "pruning_begin": 0.2,
    "pruning_end": 0.8,
}
_PHOTOS = {"model": presets.PHOTOS, "resize": presets.PHOTO_SIDE}


@pytest.mark.parametrize(
    ("dataset", "model", "expected"),
    [
        ("imagenette_128px", None, _PHOTOS),
        ("cats_vs_dogs", None, _PHOTOS),
        # Of other networks the protocol's, as in the paper's tables.
        ("cats_vs_dogs", "efficient_conv_capsnet", {"resize": 128}),
        ("mnist", None, _USES_TREES),
        ("mine.npz", "dr_capsnet_small", _USES_TREES),
        ("digits", None, _USES_TREES),
        ("mnist", "efficient_capsnet", {"counterfactual_weights": (0.0, 0.0)}),
        ("mnist", "efficient_capsnet", {"pruning_begin": 0.0}),
    ],
)
def test_settings_follow_from_the_data_set_and_the_network(
    dataset, model, expected
):
    config = defaults.load(dataset, model)
    assert {name: getattr(config, name) for name in expected} == expected
    published = presets.published(config)
    assert not any(published.counterfactual_weights)
    assert not any(published.coupling_weights)
