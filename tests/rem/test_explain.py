"""What `rem.explain` says of images, and what it draws and writes."""

import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.networks import tiny_capsnet
from tests.parts.test_network import images_of, small
from tests.refusals import assert_refused
from tfcaps import rem, viz

IMAGES, LABELS, _ = images_of(3)


@pytest.fixture(scope="module")
def explained():
    keras.utils.set_random_seed(0)
    model = small()
    # One type is active, and where a class has it.
    parts, classes = (
        model.get_layer(name) for name in ("part_caps", "class_caps")
    )
    parts.nothing_conv.bias.assign([-9.0])
    parts.conv.bias.assign([9.0, 0.0])
    classes.blueprint.assign(0.0 * classes.blueprint)
    return rem.explain(
        model, IMAGES, labels=[0, 1, None], class_names=["up", "down"]
    )


def test_it_says_what_the_functions_beneath_it_say(explained):
    trees = explained.trees
    assert explained.lengths.shape == (3, 3, 2)
    np.testing.assert_allclose(explained.lengths[:, 0], trees.lengths)
    assert trees.in_tree.any() and explained.parts.shape[0] == 2
    paragraphs = str(explained).splitlines()
    assert len(paragraphs) == 3
    for k, (text, record) in enumerate(
        zip(paragraphs, explained.records, strict=True)
    ):
        assert text.startswith(f"image {k}: class {record['class']}, length ")
        assert text.count(" at x ") == len(record["leaves"]) == trees.leaves[k]
    assert "(right)" in paragraphs[0] or "(WRONG)" in paragraphs[0]
    assert "(" not in paragraphs[2].split(";")[0]


@pytest.mark.slow
def test_it_draws_shows_and_writes(explained, tmp_path, monkeypatch):
    paths = explained.save(tmp_path / "why.png")
    assert [path.name for path in paths] == [f"why-{k}.png" for k in (1, 2, 3)]
    assert all(path.is_file() for path in paths)
    shown = []
    notebook = SimpleNamespace(
        get_ipython=lambda: 1, display=SimpleNamespace(display=shown.append)
    )
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    explained.show()
    assert [type(drawing) for drawing in shown] == 3 * [viz.Drawing]
    monkeypatch.setitem(sys.modules, "IPython", None)
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "show", lambda: shown.append("window"))
    shown[0].show()
    assert shown[-1] == "window"
    pyplot.close("all")


def test_what_does_not_fit_is_refused():
    assert_refused(
        lambda: rem.explain(small(), IMAGES, labels=[0]),
        "one label for each image",
    )
    images = np.zeros((2, 8, 8, 1), "float32")
    explained = rem.explain(tiny_capsnet(), images)
    if not explained.trees.has_places:
        assert_refused(explained.draw, "without places cannot be drawn")
