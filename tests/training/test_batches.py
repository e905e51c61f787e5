"""Batches: their order, and what happens to training images."""

import keras
import numpy as np
import pytest

from tests.backends import on_tensorflow
from tests.networks import tiny_capsnet
from tests.tolerance import SUMS
from tfcaps.graphs import children_grid
from training import train
from training.augmentation import Augmentation, warped
from training.batches import Batches, measured_at_once, stream
from training.images import Images

_EVERYTHING = Augmentation(
    shift=1,
    crop=6,
    flip=True,
    rotation=20.0,
    brightness=(0.5, 1.5),
    brightness_delta=0.2,
    contrast=(0.5, 1.5),
)


def some_images(count=40, channels=3):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 8, 8, channels), dtype=np.uint8)


def augmented(images, **settings):
    """Returns what one batch makes of images; its order is theirs."""
    augment = Augmentation(**settings)
    labels = np.arange(len(images))
    batches = Batches(Images(images), labels, len(images), augment=augment)
    return batches[0][0]


def test_batches_cover_every_image_once_in_an_order_of_the_epoch():
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    batches = Batches(Images(images), np.arange(10), 4, seed=1)
    seen = []
    for epoch in (0, 1, 0):
        batches.start_epoch(epoch)
        parts = [batches[k] for k in range(batches.num_batches)]
        assert [len(labels) for _, labels in parts] == [4, 4, 2]
        order = np.concatenate([labels for _, labels in parts])
        pixels = np.concatenate([images for images, _ in parts]).ravel()
        np.testing.assert_allclose(pixels, order / 255, rtol=1e-6)
        assert sorted(order) == list(range(10))
        seen.append(order.tolist())
    assert seen[0] == seen[2] != seen[1]
    unseeded = Batches(Images(images), np.arange(10), 4)
    labels = [unseeded[k][1].tolist() for k in range(3)]
    assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    few = Batches(Images(images), np.arange(10), 4, rows=np.array([7, 2]))
    assert few.num_batches == 1 and few[0][1].tolist() == [7, 2]


def test_shifts_move_images_and_bring_in_zeros():
    images = np.zeros((50, 5, 5, 1), np.float32)
    images[:, 2, 2] = 1.0
    moved = augmented(images, shift=1)
    np.testing.assert_array_equal(moved.sum(axis=(1, 2, 3)), 1.0)
    places = {tuple(np.argwhere(image)[0][:2]) for image in moved}
    assert places == {(r, c) for r in (1, 2, 3) for c in (1, 2, 3)}
    edges = augmented(np.ones_like(images), shift=1)
    assert {int(image.sum()) for image in edges} == {16, 20, 25}


def to_float(pixels):
    return pixels.astype(np.float32) / np.float32(255)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("convert", [np.asarray, to_float])
def test_augmentation_depends_on_seed_epoch_and_batch_alone(channels, convert):
    images = convert(some_images(channels=channels))
    before = images.copy()
    labels = np.arange(40) % 2

    def drawn(seed, epoch, index):
        batches = Batches(
            Images(images), labels, 20, seed=seed, augment=_EVERYTHING
        )
        batches.start_epoch(epoch)
        return batches[index][0]

    first = drawn(1, 2, 1)
    assert first.shape == (20, 6, 6, channels) and first.dtype == np.float32
    assert 0.0 <= first.min() < first.max() <= 1.0
    np.testing.assert_array_equal(first, drawn(1, 2, 1))
    for other in (drawn(2, 2, 1), drawn(1, 3, 1), drawn(1, 2, 0)):
        assert np.abs(first - other).max() > 0.1
    # Without a seed the order stays, but not what happens to the images.
    assert np.abs(drawn(None, 0, 0) - drawn(None, 1, 0)).max() > 0.1
    np.testing.assert_array_equal(images, before)


def test_crops_are_windows_of_every_place():
    images = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1).repeat(200, 0)
    cut = np.rint(255 * augmented(images, crop=3))
    assert cut.shape == (200, 3, 3, 1)
    corners = cut[:, 0, 0, 0]
    assert set(corners) == {0, 1, 4, 5}
    window = images[0, :3, :3]
    assert (cut - corners[:, None, None, None] == window).all()


def test_half_of_the_images_are_mirrored():
    images = some_images(400)
    flipped = augmented(images, flip=True)
    kept = (flipped == to_float(images)).all(axis=(1, 2, 3))
    mirrored = (flipped == to_float(images)[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (kept ^ mirrored).all()
    assert 150 < kept.sum() < 250  # 5 standard deviations


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_rotations_turn_around_the_middle_within_the_limit(channels):
    images = np.zeros((100, 21, 21, channels), np.uint8)
    images[:, 10, 10:] = 255  # from the middle to the right
    augment = Augmentation(rotation=30.0)
    turned = augment.move(images, np.random.default_rng(0))
    rows, columns = np.mgrid[:21, :21] - 10
    ink = turned[..., 0].astype(float)
    np.testing.assert_array_equal(ink, turned[..., -1])
    angles = np.degrees(
        np.arctan2((ink * rows).sum((1, 2)), (ink * columns).sum((1, 2)))
    )
    assert np.abs(angles).max() < 31.0
    assert angles.min() < -25.0 and angles.max() > 25.0
    floats = augment.move(to_float(images), np.random.default_rng(0))
    np.testing.assert_allclose(255 * floats, turned, atol=1.0)


@pytest.mark.parametrize(
    ("settings", "change", "low", "high"),
    [
        ({"brightness": (0.8, 1.2)}, np.multiply, 0.8, 1.2),
        ({"brightness_delta": 0.3}, np.add, -0.3, 0.3),
    ],
    ids=["factor", "delta"],
)
def test_brightness_is_that_of_a_whole_image(settings, change, low, high):
    images = np.full((200, 2, 2, 3), 0.5, np.float32)
    images[:, 0] = 0.9
    bright = augmented(images, **settings)
    drawn = bright[:, 1] - 0.5 if change is np.add else bright[:, 1] / 0.5
    assert np.ptp(drawn, axis=(1, 2)).max() == 0.0
    assert low <= drawn.min() < low + 0.02 and high - 0.02 < drawn.max()
    assert drawn.max() <= high
    wanted = np.minimum(change(images[:, 0], drawn), 1.0)
    np.testing.assert_allclose(bright[:, 0], wanted, rtol=1e-6)


def test_contrast_keeps_the_mean():
    images = np.full((200, 2, 2, 1), 0.4, np.float32)
    images[:, 0] = 0.6
    changed = augmented(images, contrast=(0.2, 1.8))
    np.testing.assert_allclose(changed.mean(axis=(1, 2, 3)), 0.5, rtol=1e-6)
    factors = (changed[:, 0, 0, 0] - 0.5) / 0.1
    assert 0.2 <= factors.min() < 0.25 and 1.75 < factors.max() <= 1.8001


def test_rare_classes_are_repeated_until_all_are_equally_frequent():
    labels = np.array([0] * 7 + [1] * 2 + [3])
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    batches = Batches(Images(images), labels, 4, seed=0, balanced=True)
    assert batches.num_batches == 6
    seen = np.concatenate([batches[k][1] for k in range(6)])
    np.testing.assert_array_equal(np.bincount(seen), [7, 7, 0, 7])
    shown = np.concatenate([batches[k][0] for k in range(6)]).ravel() * 255
    times = np.bincount(np.rint(shown).astype(int))
    assert times.tolist() == [1] * 7 + [4, 3, 7]


def test_images_are_warped_about_their_middle_and_keep_their_edges():
    images = np.zeros((3, 5, 7, 1), np.float32)
    images[:, 1, 2] = 1.0
    images[:, :, 6] = 0.5
    turned = [[-1.0, 0.0], [0.0, -1.0]]
    new = warped(
        images,
        np.array([np.eye(2), turned, np.eye(2)]),
        np.array([[0.0, 0.0], [0.0, 0.0], [-1.0, 3.0]]),
        (5, 7),
    )
    np.testing.assert_array_equal(new[0], images[0])
    np.testing.assert_allclose(new[1], images[1, ::-1, ::-1], atol=SUMS)
    moved = np.zeros((5, 7))
    moved[:, 3:] = 0.5  # the right edge, again and again
    np.testing.assert_allclose(new[2, ..., 0], moved, atol=SUMS)
    half = warped(images[:1], np.eye(2)[None], np.array([[0.5, 0.0]]), (5, 7))
    assert half[0, 1, 2, 0] == half[0, 0, 2, 0] == 0.5


@pytest.mark.parametrize(
    ("fill", "more", "outside"),
    [("black", {}, 0), ("edge", {}, 200), ("black", {"crop": 9}, 0)],
)
def test_zoom_shows_the_fill_beyond_the_edges(fill, more, outside):
    images = np.full((50, 9, 9, 1), 200, np.uint8)
    augment = Augmentation(zoom=(0.5, 0.6), rotation=10.0, fill=fill, **more)
    new = augment.move(images, np.random.default_rng(0))
    assert (new[:, 4, 4] == 200).all()
    assert (new[:, [0, -1]] == outside).all()
    # A side of 9 becomes 4.5 to 5.4.
    inside = (new == 200).sum(axis=(1, 2, 3))
    assert inside.min() >= 12 and (outside or inside.max() <= 5.4**2)


def named_batches():
    def arrange(images, labels):
        return {"images": images, "labels": labels}, {"lengths": labels}

    images = Images(np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1))
    return Batches(images, np.arange(10), 4, seed=1, arrange=arrange)


def seen(streamed):
    order = []
    for inputs, targets in streamed:
        images, labels = np.array(inputs["images"]), np.array(inputs["labels"])
        np.testing.assert_allclose(images.ravel(), labels / 255, rtol=1e-6)
        np.testing.assert_array_equal(labels, targets["lengths"])
        order.append(labels.tolist())
    return order


@on_tensorflow
def test_a_stream_has_the_batches_of_the_epoch_and_tunes_nothing():
    given = named_batches()
    streamed = stream(given)
    assert not streamed.options().autotune.enabled
    assert int(streamed.cardinality()) == given.num_batches == 3
    for epoch in (0, 1):
        given.start_epoch(epoch)
        expected = [given[k][0]["labels"].tolist() for k in range(3)]
        assert seen(streamed) == expected
    given.start_epoch(0)
    assert seen(streamed) != expected


def test_fit_draws_each_epoch_before_it_reads_it(monkeypatch):
    given = named_batches()
    read = []
    images = keras.Input((1, 1, 1), name="images")
    labels = keras.Input((), name="labels", dtype="int32")
    lengths = keras.layers.Dense(1, name="lengths")(images)
    model = keras.Model([images, labels], {"lengths": lengths})
    model.compile("sgd", {"lengths": "mse"})
    get = Batches.__getitem__

    def noted(self, index):
        read.append((self._epoch, index))
        return get(self, index)

    monkeypatch.setattr(Batches, "__getitem__", noted)
    read.clear()
    monkeypatch.setattr("training.train.progress", lambda: 0)
    train.fit(model, given, [], 3)
    each = [(epoch, index) for epoch in range(3) for index in range(3)]
    # Keras looks at the first batches of a `PyDataset`.
    assert read[-9:] == each


def test_fewer_images_are_measured_at_once_where_trees_are_large(monkeypatch):
    network = tiny_capsnet()
    assert measured_at_once(network) == 256
    children = np.prod(children_grid(network))
    for images, room in ((5, 5.5), (1, 0.5)):
        couplings = int(room * children * network.output_shape[-1])
        monkeypatch.setattr("training.batches._COUPLINGS", couplings)
        assert measured_at_once(network) == images
