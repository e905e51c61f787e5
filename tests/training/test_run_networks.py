"""The main job with every network, with decoders, and with other routings."""

import json

import keras
import numpy as np
import pytest

from cli import read_model
from tests.nightly import nightly
from tests.tolerance import assert_all_equal
from tests.training.test_run import command, metrics, tiny_data
from tfcaps import export as exporting
from tfcaps import rem
from training import models, results

# Sides of the smallest images that each network takes, and its variants too if
# nothing else is said.
SMALLEST = {
    "dr_capsnet_small": 3,
    "dr_capsnet": 17,
    "affine_capsnet": 17,
    "multilayer_capsnet": 9,
    "constellation_capsnet": 10,
    "parts_capsnet": 5,
    "parts_capsnet_pictures": 3,
    "parts_capsnet_photos": 3,
    "gamma_capsnet": 17,
    "efficient_capsnet": 11,
    "efficient_capsnet_smallnorb": 19,
    "efficient_conv_capsnet": 33,
    "deepcaps": 1,
    "em_capsnet": 13,
}


def smallest(name):
    return SMALLEST.get(name) or SMALLEST[models.MODELS[name].function]


# Nearly all train a network as the command does.
pytestmark = pytest.mark.slow


@pytest.fixture
def quick_export(monkeypatch):
    """Exports in this process."""

    def export(folder, to):
        model = read_model(folder / "model.keras")
        exporting.save(model, to / model.name, number=1)

    monkeypatch.setattr(results, "_export", export)


@nightly
@pytest.mark.parametrize("name", models.MODELS)
def test_every_network_runs_to_its_report_and_export(
    name, tmp_path, quick_export
):
    data = tiny_data(tmp_path / "tiny.npz", size=max(smallest(name), 8))
    out = tmp_path / "run"
    command(
        "--rem", "--model", name, "--dataset", data, "--epochs", 2,
        "--batch-size", 8, "--out", out,
    )  # fmt: skip
    assert (out / "report.html").is_file()
    assert list(out.glob("served/*/1/saved_model.pb"))
    reports = json.loads((out / "rem.json").read_text())["models"]
    assert reports["rem"]["sparsity"] == pytest.approx(0.8, abs=0.02)
    for row in metrics(out):
        assert np.isfinite(row["loss"])
        assert row["seconds_per_step"] > 0


@nightly
def test_decoder_is_trained_with_the_network_and_drawn(tmp_path):
    data = tiny_data(tmp_path / "tiny.npz")
    out = tmp_path / "run"
    flags = ("--dataset", data, "--epochs", 2, "--batch-size", 8)
    command(*flags, "--rem", "--decoder", "joint", "--out", out)
    with_decoder(out, "model")


def test_decoder_is_drawn_and_left_out_of_serving(finished):
    decoded = with_decoder(finished, "decoder")
    plain = keras.models.load_model(finished / "model.keras").get_weights()
    frozen = rem.classifier(decoded).get_weights()
    assert_all_equal(frozen, plain)


def with_decoder(run, name):
    """Returns the model that decodes, which a run left with its pictures."""
    names = {path.stem for path in (run / "figures").iterdir()}
    assert "reconstructions" in names
    decoded = keras.models.load_model(run / f"{name}.keras")
    images = np.zeros((2, 8, 8, 1), "float32")
    outputs = decoded.predict({"images": images, "labels": None}, verbose=0)
    assert outputs["reconstruction"].shape == images.shape
    # Pruning and its report are about the capsules.
    report = json.loads((run / "rem.json").read_text())["models"]["rem"]
    count = rem.classifier(decoded).count_params()
    assert report["total_parameters"] == count
    decoder_kernel = decoded.get_layer("reconstruction").get_weights()[0]
    assert np.mean(decoder_kernel == 0) < 0.01
    return decoded


@pytest.mark.parametrize(
    "routing",
    [
        "em",
        "regularized",
        *(
            pytest.param(name, marks=nightly)
            for name in ("scaled_distance", "self_attention", "uniform", "2")
        ),
    ],
)
def test_routing_replaces_the_network_s_own(routing, tmp_path):
    data = tiny_data(tmp_path / "tiny.npz")
    out = tmp_path / "run"
    flags = ("--bare", "--dataset", data, "--epochs", 2, "--out", out)
    command(*flags, "--routing", routing)
    layer = keras.models.load_model(out / "model.keras").get_layer("class_caps")
    config = layer.get_config()["routing"]
    name = "DynamicRouting" if routing == "2" else config["class_name"]
    assert config["class_name"].endswith(name)
    assert routing != "2" or config["config"]["iterations"] == 2
    if routing == "regularized":  # its coefficients are learnt
        coefficients = np.asarray(layer.coefficients)
        assert np.any(coefficients != coefficients[0, 0])
