"""Settings of data sets, of what is in a folder, and of `--recipe paper`."""

import dataclasses
import json

import pytest
from PIL import Image

import tfcaps
from tests.nightly import nightly
from tests.pictures import KINDS, write_shapes
from tests.training.test_run import command, metrics, tiny_data
from training import configs, datasets, defaults, devices, recipes, train
from training.batches import Batches
from training.folder import RunFolder
from training.run import make_parser
from training.starting import open_folder


def write_empty(folder, count, size):
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for number in range(count // 2):
            Image.new("L", size).save(folder / name / f"{number}.png")
    return str(folder)


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        # Four fifths are for training: 32 in 2 steps of 16.
        (40, (50, 70), (16, 1100, 32, defaults.PICTURES)),
        (40, (64, 64), (16, 1100, None, defaults.PICTURES)),
        (40, (300, 200), (16, 1100, 64, defaults.PHOTOS)),
        # 800 in 25 steps of 32.
        (1000, (32, 32), (32, 88, None, defaults.PICTURES)),
        # 4,000 in 63 steps of 64.
        pytest.param(
            *(5000, (16, 16), (64, 35, None, defaults.PICTURES)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_steps_batches_and_size_follow_from_the_pictures(
    tmp_path, count, size, expected
):
    config = defaults.load(write_empty(tmp_path / "even", count, size))
    assert expected == (
        config.batch_size, config.epochs, config.resize, config.model,
    )  # fmt: skip
    assert config.measured and not config.balanced
    assert config.counterfactual_necessity > 0


@pytest.mark.parametrize(
    ("size", "model", "expected"),
    [
        ((300, 200), None, "body_plan_capsnet"),
        ((300, 200), "constellation_capsnet", "constellation_capsnet"),
        ((100, 100), None, "constellation_capsnet"),
    ],
)
def test_large_photos_on_a_backbone_are_seen_through_windows(
    tmp_path, size, model, expected
):
    folder = write_empty(tmp_path / "photos", 20, size)
    config = defaults.load(folder, model, "MobileNetV2")
    assert (config.model, config.resize) == (expected, 128)


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


@pytest.mark.slow
def test_a_plan_tells_what_is_done_with_pictures(tmp_path):
    write_shapes(tmp_path / "shapes", dict.fromkeys(KINDS, 10), seed=1)
    (tmp_path / "shapes" / "ring" / "1.png").write_bytes(b"broken")
    flags = ("--dataset", tmp_path / "shapes", "--dry-run", "--skip-broken")
    printed = command(*flags, "--out", tmp_path / "run", "--epochs", 3)
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
    command(*flags, "--out", tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "rem.json").read_text("utf-8"))
    for model in saved["models"].values():
        assert model["accuracy_quantized"] >= 0.95


_USES_TREES = {
    "counterfactual_weights": (1.0, 1.0),
    "coupling_share": 0.385,
    "pruning_begin": 0.2,
    "pruning_end": 0.8,
}
_PHOTOS = {"model": "parts_capsnet_photos", "resize": 64, "measured": True}


@pytest.mark.parametrize(
    ("dataset", "model", "expected"),
    [
        ("figures", None, {"model": "constellation_capsnet", "epochs": 6}),
        ("figures", "parts_capsnet", {"coupling_types": True, "epochs": 20}),
        ("imagenette_128px", None, {**_PHOTOS, "epochs": 42}),
        ("cats_vs_dogs", None, {**_PHOTOS, "epochs": 17}),
        # Of other networks the protocol's, as in the paper's tables.
        ("cats_vs_dogs", "efficient_conv_capsnet", {"resize": 128}),
        ("affnist", "deepcaps_rem", {"min_accuracy": 0.5, "shift": 6}),
        ("mnist", None, {**_USES_TREES, "mean": (0.1307,)}),
        ("mine.npz", "dr_capsnet_small", _USES_TREES),
        ("digits", None, {**_USES_TREES, "epochs": 120}),
        ("mnist", "efficient_capsnet", {"counterfactual_weights": (0.0, 0.0)}),
        ("mnist", "efficient_capsnet", {"pruning_begin": 0.0}),
    ],
)
def test_settings_follow_from_the_data_set_and_the_network(
    dataset, model, expected
):
    config = defaults.load(dataset, model)
    assert {name: getattr(config, name) for name in expected} == expected
    published = recipes.applied("paper", config)
    assert not any(published.counterfactual_weights)
    assert not any(published.coupling_weights)
    assert published.min_accuracy == config.min_accuracy


@pytest.mark.parametrize(
    ("dataset", "changes", "in_use"),
    [
        ("figures", {}, "final_sparsity pruning_begin pruning_end"),
        ("figures", {"rem": False}, ""),
        (
            "digits",
            {"pruning": "iterative", "coupling_crowding": 0.0},
            "final_sparsity max_searches min_accuracy coupling_spread "
            "coupling_polarization coupling_crowding coupling_types "
            "counterfactual_necessity counterfactual_sufficiency coupling_ramp",
        ),
        (
            "digits",
            {**recipes.TRAINING["paper"], "pruning": "none"},
            "decay_factor decay_targets coupling_spread coupling_polarization "
            "coupling_crowding counterfactual_necessity "
            "counterfactual_sufficiency",
        ),
    ],
)
def test_settings_that_change_nothing_are_told(dataset, changes, in_use):
    config = dataclasses.replace(
        defaults.load(dataset), **{"rem": True, **changes}
    )
    of_rem = [*configs.SETTINGS][[*configs.SETTINGS].index("final_sparsity") :]
    of_rem.remove("decay")
    assert [n for n in of_rem if config.uses(n)] == in_use.split()


_PAPER = recipes.TRAINING["paper"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--recipe paper --epochs 2", _PAPER | {"epochs": 2}),
        # Nothing is left of the short REM of figures.
        (
            "--recipe paper --dataset figures",
            _PAPER | {"rem_epochs": None, "warm_start": False},
        ),
        # No limit of the recipe is a target.
        ("--recipe paper --pruning snip", {"final_sparsity": 0.8}),
        (
            "--recipe paper --pruning snip --final-sparsity 0.5",
            {"final_sparsity": 0.5},
        ),
        # Zero is a setting.
        (
            "--decay 0 --final-sparsity 0 --seed 0",
            {"decay": 0, "final_sparsity": 0, "epochs": 120, "rem": True},
        ),
    ],
)
def test_flags_change_settings(tmp_path, flags, expected):
    flags = f"--rem --dataset digits --out {tmp_path / 'run'} {flags}"
    config = open_folder(make_parser().parse_args(flags.split())).config
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.slow
def test_the_baseline_is_that_of_the_lowest_validation_loss(tmp_path):
    path = tiny_data(tmp_path / "tiny.npz")
    config = configs.Config(
        dataset=path,
        batch_size=8,
        epochs=91,
        learning_rate=0.5,  # so that the loss goes up and down
        learning_rate_decay=1.0,
        patience=2,
    )
    folder = RunFolder(tmp_path / "run", config)
    folder.create()
    data = datasets.load(path, None, validation=config.validation)
    strategy = devices.make_strategy("none")
    model = train.train_model("baseline", data, folder, strategy)
    kept = (folder.path / "validation-baseline.json").read_text()
    losses = json.loads(kept)
    model.compile(loss=tfcaps.losses.MarginLoss(), jit_compile=False)
    loss, *_ = model.evaluate(Batches(*data.validation, 8), verbose=0)
    assert min(losses) < losses[-1] and len(losses) < 91
    assert loss == pytest.approx(min(losses), rel=1e-4)
    # The last epoch is measured, also where it was not known before.
    assert metrics(folder.path)[-1]["epoch"] == len(losses) - 1
    assert not list(folder.path.glob("*best-*"))
