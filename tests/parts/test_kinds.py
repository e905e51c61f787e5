"""Which parts classes have, and which of them are of one kind."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.parts.test_network import begun
from tests.tolerance import assert_close
from tfcaps.models import constellation_capsnet
from tfcaps.parts import estimation, kinds, without_spare_types
from training.datasets import figures


def found(rng, design, count=400, most=16, repeated=False):
    """Returns parts that are found from places a pixel off, and true ones."""
    (images, labels), masks = figures.draw(count, 3, design)
    middles = np.nanmean(masks.parts, axis=1)
    places = middles + rng.uniform(-1, 1, middles.shape)
    parts = kinds.find(
        images / 255.0, labels, places, 11, most=most, repeated=repeated
    )
    slots, better = parts.slots, parts.places
    assert parts.clear
    true = []
    for j, shift, _ in zip(*slots, strict=True):
        rows = np.flatnonzero((labels == j) & parts.fits)
        apart = masks.parts[rows] - (better[rows] + shift)[:, None]
        apart = np.linalg.norm(apart, axis=-1)
        nearest = np.nanargmin(apart, axis=1)
        assert np.median(np.nanmin(apart, axis=1)) < 2.2
        each = masks.kinds[rows][np.arange(len(rows)), nearest]
        assert len({*each.tolist()}) == 1  # of one class one part each
        true.append(each[0])
    return slots, np.array(true)


@pytest.mark.parametrize(
    ("design", "number"),
    [
        ("figures", 5),
        ("figures_of_four", 4),
        # A class has a kind twice, and slots are empty.
        pytest.param("figures_repeated", 4, marks=pytest.mark.slow),
    ],
)
def test_parts_are_found_and_those_of_one_kind(rng, design, number):
    repeated = design == "figures_repeated"
    slots, true = found(rng, design, repeated=repeated)
    assert_array_equal(np.bincount(slots.classes), [number] * 10)
    # Kinds and true ones tell each other.
    pairs = {*zip(slots.kinds.tolist(), true.tolist(), strict=True)}
    assert len(pairs) == len({*true}) == slots.kinds.max() + 1


def test_there_are_no_more_kinds_than_types(rng):
    slots, _ = found(rng, "figures", count=400, most=3, repeated=True)
    assert slots.kinds.max() + 1 == 3


def test_images_that_show_nothing_have_no_parts():
    images = np.ones((8, 12, 12, 1))
    parts = kinds.find(images, np.arange(8) % 2, np.full((8, 2), 6.0), 5)
    assert not len(parts.slots.kinds) and np.isfinite(parts.places).all()


def test_windows_are_read_between_pixels(rng):
    down, right = np.indices((9, 9))
    images = np.stack([2.0 * down + right, down - 3.0 * right])[..., None]
    around = kinds.windows(images, [(3.5, 4.25), (4.0, 5.5)], 3)[..., 0]
    away = np.arange(-1, 2)
    for seen, (by, then), (row, column) in zip(
        around, [(2, 1), (1, -3)], [(3.5, 4.25), (4.0, 5.5)], strict=True
    ):
        wanted = by * (row + away)[:, None] + then * (column + away)
        assert_close(seen, wanted)
    beyond = kinds.windows(np.ones((1, 5, 5, 2)), [(0.0, 99.0)], 5)
    assert beyond.shape == (1, 5, 5, 2) and not beyond.any()
    edge = kinds.windows(np.ones((1, 5, 5, 1)), [(0.0, 4.0)], 3)[0, ..., 0]
    assert_array_equal(edge, [[0, 0, 0], [1, 1, 0], [1, 1, 0]])


def test_discriminants_tell_groups(rng):
    groups = np.arange(600) % 3
    middles = np.array([[2.0, 0, 0], [0, 2.0, 0], [0, 0, 0]])
    features = middles[groups] + rng.normal(0, 0.5, (600, 3))
    kernel, bias = kinds.discriminants(features, groups)
    logits = features @ kernel + bias
    assert np.mean(logits.argmax(axis=1) == groups) > 0.95
    *_, second, first = np.sort(logits, axis=1).T
    assert np.median(first - second) == pytest.approx(2.0)  # not 5
    # Of groups that do not differ the larger one is likelier.
    _, bias = kinds.discriminants(np.ones((4, 2)), np.array([0, 1, 1, 1]))
    assert bias[1] - bias[0] == pytest.approx(np.log(3))


def test_types_become_the_kinds_that_images_show(monkeypatch):
    monkeypatch.setattr(estimation, "_TOLD", 0.0)  # by random features
    (images, labels), masks = figures.draw(400, 3)
    images = (images / 255.0).astype("float32")
    network = constellation_capsnet((32, 32, 1), 10, 8, filters=(4,))
    schedule = begun(network, images, labels, epochs=6)
    layer, parts = (
        network.get_layer(name) for name in ("class_caps", "part_caps")
    )
    seen, views = schedule._look(images, labels)
    middles = masks.parts.mean(axis=1)
    cells = np.rint((middles - layer.offset) / layer.stride).astype(int)
    found = seen._replace(cells=cells)
    assert not schedule._are_set
    width = float(layer.log_width)
    assert schedule._set_kinds(found, images, views.features)
    assert float(layer.log_width) == width
    assert schedule._are_set  # so that they are set once, after a break too
    has = np.array(layer.slots)
    assert_array_equal(has, np.outer(np.arange(8) < 5, np.ones(10)))
    design = figures.DESIGNS["figures"]
    places = np.array(design.slots) - np.mean(design.slots, axis=0)
    shifts = np.array(layer.shifts)[:5].swapaxes(0, 1)
    shifts -= shifts.mean(axis=1, keepdims=True)
    apart = np.linalg.norm(shifts[:, :, None] - places, axis=-1)
    assert apart.min(axis=-1).max() < 1.5
    names = np.array(design.figures)
    names = np.take_along_axis(names, apart.argmin(axis=-1), axis=1)
    assert (names == names[0]).all() and len({*names[0]}) == 5
    square, ring = (list(names[0]).index(kind) for kind in ("square", "ring"))
    middle = np.array(network.decoder.templates)[4:7, 4:7, 0].mean(axis=(0, 1))
    assert middle[square] > 2 * middle[ring] > 0
    assert_array_equal(np.array(parts.conv.bias) < -5000, np.arange(8) > 4)
    # Momentum moves what is spare on, and it is taken back.
    moved = parts.conv.kernel + np.full_like(parts.conv.kernel, 0.01)
    parts.conv.kernel.assign(moved)
    schedule.on_epoch_end(epoch=5)
    assert not np.array(parts.conv.kernel)[..., 5:].any()
    assert without_spare_types(network).get_layer("part_caps").num_types == 5


def test_types_that_tell_classes_less_are_taken_back(monkeypatch):
    (images, labels), _ = figures.draw(200, 3)
    images = (images / 255.0).astype("float32")
    network = constellation_capsnet((32, 32, 1), 10, 8, filters=(4,))
    schedule = begun(network, images, labels, epochs=6)
    before = [*map(np.array, network.get_weights())]
    templates = np.array(network.decoder.templates)
    seen, views = schedule._look(images, labels)
    told = iter([0.9, 0.8])  # before they are set, and then

    def look(images, labels):
        schedule._accuracy = next(told)

    monkeypatch.setattr(schedule, "_look", look)
    assert not schedule._set_kinds(seen, images, views.features)
    assert not schedule._are_set
    for weight, value in zip(network.get_weights(), before, strict=True):
        assert_array_equal(weight, value)
    assert_array_equal(network.decoder.templates, templates)
