"""The paper's recipe in the main job: `--recipe paper`."""

import json

import pytest

import tfcaps
from tests.training.test_run import command, metrics, tiny_data
from training import configs, datasets, defaults, devices, presets, train
from training.batches import Batches
from training.folder import RunFolder
from training.run import make_parser
from training.starting import open_folder

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
def test_a_run_takes_the_recipe_for_ones_own_data(tmp_path, capsys):
    data = tiny_data(tmp_path / "tiny.npz")
    flags = ("--rem", "--recipe", "paper", "--dataset", data, "--bare")
    out = tmp_path / "run"
    assert command(*flags, "--epochs", 2, "--batch-size", 8, "--out", out) == 0
    config = json.loads((out / "config.json").read_text())
    wanted = {**_SETTINGS, "epochs": 2, "batch_size": 8}
    assert {name: config[name] for name in wanted} == wanted
    assert not list(out.glob("best-*")) and not list(out.glob(".best-*"))
    assert command("--resume", "--recipe", "paper", "--out", out) == 2
    assert "leave out --recipe" in capsys.readouterr().err


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
    assert presets.published(config, "gamma_capsnet").levels == (11, 6)
    assert presets.published(config).levels == 11


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
