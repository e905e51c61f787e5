"""Whether a run says of trees of several layers that they are used."""

import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights
from tfcaps import rem
from training import parts, summary
from training.image_data import Images, Split


def data_for(model, count=12):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, *model.input_shape[1:]), np.uint8)
    labels = np.eye(3, dtype="float32")[np.arange(count) % 3]
    return Split(Images(pixels), labels)


@pytest.mark.parametrize(
    ("name", "settings", "layers"),
    [
        (
            "multilayer_capsnet",
            {"capsules": (4, 3, 3)},
            ["hidden_caps2", "hidden_caps1"],
        ),
        ("gamma_capsnet", {}, ["hidden_caps"]),
        ("em_capsnet", {}, []),  # below are windows
        ("dr_capsnet", {}, []),
    ],
)
def test_trees_go_down_through_fully_connected_layers(
    name, settings, layers, monkeypatch
):
    asked = []
    measured = rem.faithfulness

    def faithfulness(model, data, **settings):
        asked.append(settings["layer"])
        return measured(model, data, draws=1, **settings)

    monkeypatch.setattr(rem, "faithfulness", faithfulness)
    model = SMALL_NETWORKS[name](**settings)
    _, deeper = parts.used("rem", model, data_for(model))
    assert asked == [None, *layers]
    assert list(deeper) == layers


def test_a_report_says_how_large_and_how_necessary_deep_trees_are(capsys):
    model = draw_weights(
        SMALL_NETWORKS["gamma_capsnet"](), 0, hidden_caps=2.0, class_caps=2.0
    )
    split = data_for(model)
    used, deeper = parts.used("rem", model, split)
    found = rem.faithfulness(
        model, (split.images[:], split.labels), layer="hidden_caps"
    )
    assert 0 < found.size < 1
    assert deeper["hidden_caps"]["size"] == pytest.approx(found.size)
    assert deeper["hidden_caps"]["necessity"] == pytest.approx(found.necessity)
    said = " ".join(capsys.readouterr().out.split())
    assert "down to the children of hidden_caps" in said
    assert used.verdict in said
    (sentence,) = summary.sentences({"rem": {"trees_down_to": deeper}})
    assert f"children of hidden_caps has {found.size:.1%} of them" in sentence
    assert (
        f"{found.necessity['zero']:.1%} of the images lose their class"
        in sentence
    )
