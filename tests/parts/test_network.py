"""The network of parts, what it is trained on, and what sets its blueprint."""

import keras
import numpy as np
import pytest
from keras import ops

import tfcaps
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tests.refusals import assert_refused, refused
from tests.tolerance import assert_all_equal, assert_close
from tfcaps import rem
from tfcaps.callbacks import BlueprintEstimation, HardenParts
from tfcaps.models import constellation_capsnet
from tfcaps.parts import ConstellationModel, estimation
from tfcaps.parts.split_merge import Occurrences

SMALL = SMALL_NETWORKS["constellation_capsnet"]
# Which of two parts stands above the other tells two classes.
PARTS = np.array(
    [
        [[0, 0, 0], [1, 1, 1], [0, 0, 0]],  # a bar
        [[1, 0, 1], [0, 1, 0], [1, 0, 1]],  # a cross
    ],
    "float32",
)


def images_of(count, seed=0):
    """Returns images 16x16 of two classes, labels, and where the parts are."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = 0.05 * rng.uniform(size=(count, 16, 16, 1))
    first = rng.integers(2, [9, 14], size=(count, 1, 2))
    lower = labels[:, None] != np.arange(2)
    places = first + 6 * np.stack([lower, 0 * lower], axis=-1)
    for n, part in np.ndindex(count, 2):
        row, column = places[n, part]
        window = slice(row - 1, row + 2), slice(column - 1, column + 2)
        images[n, *window, 0] += PARTS[part]
    return np.minimum(images, 1.0).astype("float32"), labels, places


def small():
    return constellation_capsnet((16, 16, 1), 2, 2, window=3, filters=(4,))


def begun(network, images, labels, epochs=3, **settings):
    """Returns the schedule of a training that begins."""
    schedule = BlueprintEstimation(images, labels, epochs, **settings)
    schedule.set_model(network)
    schedule.on_train_begin()
    return schedule


def fit(model, images, labels, rate, epochs, callbacks=(), **options):
    """Trains it; returns the last loss."""
    model.compile(keras.optimizers.Adam(rate), jit_compile=False, **options)
    options = {"epochs": epochs, "verbose": 0, "callbacks": [*callbacks]}
    return model.fit(images, labels, 32, **options).history["loss"][-1]


def trained(seed):
    keras.utils.set_random_seed(seed)
    images, labels, _ = images_of(512)
    network = constellation_capsnet((16, 16, 1), 2, 2, window=3, filters=(8, 8))
    schedule = BlueprintEstimation(widths=(4.0, 1.5))
    loss = fit(network, images, labels, 0.01, 6, [schedule])
    return loss, network


@pytest.mark.slow
def test_types_become_parts_that_no_label_names():
    _, network = min(map(trained, range(3)), key=lambda done: done[0])
    images, labels, places = images_of(200, seed=1)
    found = tfcaps.rem.trees(network, images)
    assert np.mean(found.predicted == labels) > 0.97
    # Parts are six pixels apart, and children stand on every second pixel.
    kinds = np.tile([0, 1], (len(images), 1))
    masks = rem.PartMasks(places, kinds=kinds, reach=3.5)
    named = rem.named_parts(found, masks)
    assert named.information > 0.9 and named.found_once > 0.9
    # In the further training of a network alone types are drawn anew.
    plain = rem.classifier(network)
    again = ConstellationModel(plain.input, plain.output)
    again.compile(keras.optimizers.SGD(0.0))
    again.fit(images, labels, verbose=0)
    drawn, meant = (
        np.reshape(each.decoder.pictures, (-1, 2)).T
        for each in (again, network)
    )
    assert np.diag(np.corrcoef(drawn, meant)[:2, 2:]).min() > 0.6


def test_places_are_those_of_the_convolutions():
    settings = {"filters": (8, 8), "kernel_size": 3, "strides": (2, 2)}
    network = constellation_capsnet((32, 32, 1), 5, 7, **settings)
    for name in ("part_caps", "class_caps"):
        layer = network.get_layer(name)
        assert (layer.stride, layer.offset) == (4.0, (3.0, 3.0))
    assert network.decoder.size == 21  # as the window of five places


def test_outputs_are_what_is_trained():
    network = SMALL()
    training = network.learner()
    images = np.zeros((2, 12, 12, 1), "float32")
    shapes = {k: tuple(v.shape) for k, v in training(images).items()}
    assert shapes == {
        "lengths": (2, 3),
        "features": (2, 6, 6, 4),
        "presence": (2, 6, 6, 4),
        "evidence": (2, 3),
        "reconstruction": (2, 12, 12, 1),
    }
    shared = {id(w) for w in network.weights}
    assert shared <= {id(w) for w in training.weights}


@pytest.mark.parametrize(
    ("known", "are_set", "moved", "merged", "split"),
    [
        (0.0, False, [0, 1, 2, 3], [1, 2], [1]),
        # Where classes are not told yet, types are neither merged nor split.
        (1.1, False, [0, 1, 2, 3], [], []),
        # Nothing else is done where they have just been set.
        (0.0, True, [0, 3], [], []),
    ],
)
def test_the_schedule_narrows_hardens_moves_merges_and_splits(
    monkeypatch, known, are_set, moved, merged, split
):
    steps = {name: [] for name in ("_move", "_merge_types", "_split_types")}
    for name, done in steps.items():
        step = getattr(BlueprintEstimation, name)

        def noted(self, *given, step=step, done=done):
            done.append(epoch)
            return step(self, *given)

        monkeypatch.setattr(BlueprintEstimation, name, noted)
    monkeypatch.setattr(estimation, "_KNOWN", known)
    monkeypatch.setattr(BlueprintEstimation, "_set_kinds", lambda *_: are_set)
    images, labels, _ = images_of(32)
    network = small()
    network.get_layer("part_caps").nothing_conv.bias.assign([-8.0])
    schedule = begun(
        network, images, labels, epochs=5, widths=(4.0, 1.5), hard=0.5
    )
    classes = network.get_layer("class_caps")
    places = [np.array(classes.blueprint)]
    widths, hard = [], []
    for epoch in range(5):
        schedule.on_epoch_begin(epoch)
        widths.append(float(np.exp(classes.log_width)))
        hard.append(float(network.get_layer("part_caps").hardness))
        schedule.on_epoch_end(epoch)
        places.append(np.array(classes.blueprint))
    # It narrows for 0.6 of the epochs.
    done = [min(1.0, epoch / (0.6 * 4)) for epoch in range(5)]
    assert widths == pytest.approx([4 * (1.5 / 4) ** share for share in done])
    assert hard == [0.0, 0.0, 1.0, 1.0, 1.0]
    # What is changed must be learnt before the end.
    assert list(steps.values()) == [moved, merged, split]
    assert np.abs(places[1] - places[0]).max() > 0.05
    assert_close(places[-1], places[-2])


def test_a_type_moves_to_where_it_is_found():
    images, labels, _ = images_of(64)
    network = small()
    schedule = begun(network, images, labels)
    layer = network.get_layer("class_caps")
    layer.blueprint.assign(np.zeros(layer.blueprint.shape))
    active = np.zeros((64, 8, 8, 2), "float32")
    cells = np.full((64, 2), 4)
    active[:, 1, 6, 0] = 1.0  # type 0 is 3 cells above, 2 to the right
    active[:, 5, 2, 1] = 1.0
    schedule._move(Occurrences(active, cells, labels))
    moved = [[[-6, 4]] * 2, [[2, -4]] * 2]
    assert_close(np.asarray(layer.shifts), moved, atol=1e-4)
    half = active * [1, 0]  # and nothing: a class keeps the slots that it had
    for seen, kept in ((half, [1, 0]), (0 * half, [1, 0]), (active, [1, 1])):
        schedule._keep_slots(Occurrences(seen, cells, labels))
        np.testing.assert_array_equal(layer.slots, np.outer(kept, [1, 1]))


test_what_does_not_fit_is_refused = refused(
    """
constellation_capsnet((8, 8, 1), 3)
    at least 10 rows
constellation_capsnet((32, 32, 1), 3, 300)
    `num_types` must not exceed the places
constellation_capsnet((32, 32, 1), 3, filters=())
constellation_capsnet((32, 32, 1), 5, 7, strides=(2,))
    `filters` must not be empty, and `strides` as many
model_of(tiny_capsnet())
    must have one `PartCaps`
begun(tiny_capsnet(), None, [])
    `tfcaps.parts.ConstellationModel`
""",
    constellation_capsnet=constellation_capsnet,
    model_of=lambda other: ConstellationModel(other.input, other.output),
    begun=begun,
    tiny_capsnet=tiny_capsnet,
)


def test_training_without_an_active_type_says_so(capsys):
    images, labels, _ = images_of(16)
    network = small()
    network.get_layer("part_caps").nothing_conv.bias.assign([80.0])
    schedule = begun(network, images, labels)
    before = network.get_weights()
    schedule.on_epoch_end(0)
    assert_all_equal(network.get_weights(), before)
    schedule.on_train_end()
    assert "No type of part is active" in capsys.readouterr().out


def on_pictures(**settings):
    """Returns one on a backbone that passes on images of four places."""
    features = keras.layers.AveragePooling2D(4, data_format="channels_last")
    images = keras.Input((32, 32, 3))
    backbone = keras.Model(images, features(images))
    return constellation_capsnet(None, 2, backbone=backbone, **settings)


def test_types_are_of_one_class_each():
    slots = on_pictures(num_types=5).get_layer("class_caps").slots
    np.testing.assert_array_equal(
        ops.convert_to_numpy(slots), [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]]
    )
    with pytest.raises(ValueError, match="at least as many as the classes, 2"):
        on_pictures(num_types=1)


def test_places_become_hard_after_a_share_of_the_training(rng):
    model, hard = on_pictures(num_types=2), []
    assert set(model.loss) == {"evidence", "presence"}
    layer = model.get_layer("part_caps")
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: hard.append(float(layer.hardness))
    )
    images = rng.random((8, 32, 32, 3), dtype=np.float32)
    callbacks = [HardenParts(0.35), note]
    labels, options = np.arange(8) % 2, {"loss": model.loss}
    fit(model, images, labels, 0.1, 4, callbacks, run_eagerly=True, **options)
    assert hard == [0.0, 0.0, 0.0, 1.0]
    assert_refused(lambda: HardenParts(1.5), "`share` must be from 0 to 1")
