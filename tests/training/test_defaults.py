"""Settings of data sets, of what is in a folder, and of `--recipe paper`."""

import json

import pytest
from PIL import Image

import tfcaps
from tests.nightly import nightly
from tests.pictures import KINDS, write_shapes
from tests.training.test_run import command, metrics, refused, tiny_data
from training import configs, datasets, defaults, devices, presets, train
from training.batches import Batches
from training.configs import Config
from training.folder import RunFolder
from training.run import make_parser
from training.starting import open_folder


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
        pytest.param(
            5000,
            (16, 16),
            {"batch_size": 64, "epochs": 35, "resize": None},
            marks=pytest.mark.slow,
        ),
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


_SETTINGS = {
    "pruning": "iterative",
    "final_sparsity": 0.999,
    "patience": 200,
    "learning_rate": 1e-3,
    "learning_rate_decay": 0.99,
    "decay": 1e-4,
    "decay_factor": 0.99,
    "decay_targets": ["transformations", "kernels"],
    "coupling_spread": 0.0,
    "coupling_polarization": 0.0,
    "coupling_crowding": 0.0,
}


@pytest.mark.slow
def test_a_run_takes_the_recipe_for_ones_own_data(tmp_path):
    data = tiny_data(tmp_path / "tiny.npz")
    flags = ("--rem", "--recipe", "paper", "--dataset", data, "--bare")
    out = tmp_path / "run"
    command(*flags, "--epochs", 2, "--batch-size", 8, "--out", out)
    config = json.loads((out / "config.json").read_text())
    wanted = {**_SETTINGS, "epochs": 2, "batch_size": 8}
    assert {name: config[name] for name in wanted} == wanted
    assert not list(out.glob("best-*")) and not list(out.glob(".best-*"))
    told = refused("--resume", "--recipe", "paper", "--out", out)
    assert "leave out --recipe" in told


@pytest.mark.parametrize("pruning", ["polynomial", "one_shot", "snip"])
def test_no_limit_of_the_recipe_is_a_target(tmp_path, pruning):
    out = tmp_path / "run"
    options = make_parser().parse_args(
        ["--rem", "--dataset", "digits", "--recipe", "paper"]
        + ["--pruning", pruning, "--out", str(out)]
    )
    assert open_folder(options).config.final_sparsity == 0.8
    options.final_sparsity = 0.5
    assert open_folder(options).config.final_sparsity == 0.5


def test_the_recipe_has_what_a_network_needs():
    config = defaults.load("affnist")
    deep = presets.published(config, "deepcaps_rem")
    assert deep.model == "deepcaps_rem" and deep.min_accuracy == 0.5
    assert presets.published(config, "gamma_capsnet").levels == "lowest"


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
    losses = [
        row["loss"]
        for row in json.loads(
            (folder.path / "validation-baseline.json").read_text()
        )
    ]
    model.compile(loss=tfcaps.losses.MarginLoss(), jit_compile=False)
    loss, *_ = model.evaluate(Batches(*data.validation, 8), verbose=0)
    assert min(losses) < losses[-1] and len(losses) < 91
    assert loss == pytest.approx(min(losses), rel=1e-4)
    # The last epoch is measured, also where it was not known before.
    assert metrics(folder.path)[-1]["epoch"] == len(losses) - 1
    assert not list(folder.path.glob("best-*"))
