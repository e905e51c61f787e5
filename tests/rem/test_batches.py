"""One reader of data: what it takes, and what it says of the rest."""

import re
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.networks import tiny_capsnet
from tfcaps import rem
from tfcaps.layers import ClassCaps, Length
from tfcaps.losses import MarginLoss
from tfcaps.models.backbone import FrozenModel
from tfcaps.rem import batches
from tfcaps.rem.batches import batches_of, labelled_batches

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).random((8, 8, 8, 1), dtype=np.float32)
Y = np.arange(8) % 3
ONE_HOT = np.eye(3, dtype="float32")[Y]


@pytest.fixture(scope="module")
def model():
    return tiny_capsnet()


def read(data, model, **settings):
    pairs, count = labelled_batches(data, 3, model, **settings)
    images, labels = zip(*pairs, strict=True)
    assert count in (None, len(images))
    return np.concatenate(images), np.concatenate(labels)


class Repeated:
    """As a `tf.data.Dataset` after `repeat()`."""

    def cardinality(self):
        return -1

    def __iter__(self):
        while True:
            yield X, Y


class Endless(keras.utils.PyDataset):
    num_batches = None

    def __getitem__(self, index):
        return X, Y


class Epochs(keras.utils.PyDataset):
    num_batches = 2

    def __init__(self, *batches):
        super().__init__()
        self.calls, self.batches = [], batches

    def __getitem__(self, index):
        self.calls.append(index)
        return self.batches[index]

    def on_epoch_begin(self):
        self.calls.append("begin")

    def on_epoch_end(self):
        self.calls.append("end")


def test_an_epoch_is_begun_and_ended_also_if_not_all_is_read():
    data = Epochs((X, Y), (X, Y))
    batches, count = batches_of(data, 4)
    assert (count, data.calls) == (2, [])
    assert len([*batches]) == 2 and data.calls == ["begin", 0, 1, "end"]
    assert next(batches_of(data, 4)[0]).x is X
    assert data.calls[4:] == ["begin", 0, "end"]


HALVES = [(X[:4], Y[:4]), (X[4:], Y[4:])]
SLICES = tf.data.Dataset.from_tensor_slices
DICTS = {"images": X, "labels": Y}, {"lengths": Y, "reconstruction": X}
# The first are those of the guide, by the names that they have there.
GUIDE = {
    "arrays": (X, Y),
    "tensors": (tf.constant(X), tf.constant(Y)),
    "dicts": DICTS,
    "list of batches": HALVES,
    "tf.data": SLICES((X, Y)).batch(4),
    "tf.data of dicts": SLICES(DICTS).batch(4),
    "PyDataset": Epochs(*HALVES),
    "generator": lambda: (pair for pair in HALVES),
    "with weights": (X, Y, np.ones(8)),
    "images alone": X,
    "signals": (X[:, :, 0], Y),
}
TAKEN = {
    **{name: GUIDE[name] for name in [*GUIDE][:-2]},
    "nested lists": (X.tolist(), Y.tolist()),
    "a list of inputs": ([X], Y),
    "a list of targets": (X, [Y, X]),
    "a dict of one input": ({"input": X}, Y),
    "targets of a training model": (X, {"couplings": Y, "lengths": Y}),
    "labels among the inputs": {"images": X, "labels": Y},
    "weights by name": (X, {"lengths": Y}, {"lengths": np.ones(8)}),
    "batches as lists": [*map(list, HALVES)],
    "batches of dicts": [({"images": X}, {"lengths": Y})],
    "batches of inputs by name": [{"images": X, "labels": Y}],
    "batches with weights": [(X, Y, np.ones(8))],
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_what_arrays_are(name, model):
    data = TAKEN[name]
    images, labels = read(data() if callable(data) else data, model)
    np.testing.assert_allclose(images, X)
    np.testing.assert_array_equal(labels, Y)


def of_signals():
    signals = keras.Input((8, 1), name="signals")
    features = keras.layers.Conv1D(6, 3, activation="relu")(signals)
    poses = ClassCaps(3, 4)(keras.layers.Reshape((6, 6))(features))
    model = keras.Model(signals, Length()(poses))
    model.compile("adam", MarginLoss())
    return model


FUNCTIONS = {
    "evaluate": rem.evaluate,
    "faithfulness": partial(rem.faithfulness, draws=1),
    "trees": rem.trees,
    "prune_iteratively": rem.prune_iteratively,
    "prune_single_shot": partial(rem.prune_single_shot, sparsity=0.5),
}


def test_the_guide_says_what_functions_take():
    text = (ROOT / "docs/guides/data.md").read_text("utf-8")
    lines = re.search(r"^\| function(.+\n)+", text, re.M)[0].splitlines()
    rows = [row.strip("| ").split(" | ") for row in (lines[0], *lines[2:])]
    assert [name.replace("`", "") for name in rows[0][1:]] == [*GUIDE]
    assert [row[0].strip("`") for row in rows[1:]] == [*FUNCTIONS]
    signals = [(x[:, :, 0], y) for x, y in HALVES]
    for name, *cells in rows[1:]:
        function = FUNCTIONS[name.strip("`")]
        function(of_signals(), (pair for pair in signals))
        alone = cells[[*GUIDE].index("images alone")]
        assert {*cells} <= {"yes", alone}
        if alone == "yes":
            function(of_signals(), X[:, :, 0])
            continue
        with pytest.raises(ValueError, match="Labels are needed|have targets"):
            function(of_signals(), X[:, :, 0])


def test_one_hot_rows_are_not_targets_of_many_outputs(model):
    for rows in (ONE_HOT, list(ONE_HOT), ONE_HOT.tolist()):
        _, labels = read((X, rows), model)
        np.testing.assert_array_equal(labels, ONE_HOT)


def test_images_without_labels(model):
    for data in (X, [X[:4], X[4:]], (X,), (X, None), {"images": X}):
        pairs, _ = labelled_batches(data, 3, model, need_labels=False)
        np.testing.assert_allclose(np.concatenate([x for x, _ in pairs]), X)
        with pytest.raises(ValueError, match="Labels are needed.*images alone"):
            read(data, model)


REFUSED = {
    "one image": (X[0], "batches, not single images.*image.None"),
    "unbatched": (list(zip(X, ONE_HOT, strict=True)), "not single images"),
    "unbatched indices": (list(zip(X, Y, strict=True)), "not single images"),
    "too few labels": ((X, Y[:3]), r"8 images and labels of the shape \(3,\)"),
    "too few in a batch": ([(X, Y[:3])], r"8 images and labels of .* \(3,\)"),
    "one label": ((X, 3), r"labels of the shape \(\)"),
    "four parts": ([(X, Y, Y, Y)], "must be .images, labels., or images al"),
    "unknown inputs": (({"a": X, "b": X}, Y), "called 'images'.*'a', 'b'"),
    "a list of images": (list(X), "not single images.*image.None"),
    "a tuple of batches": (((X, Y), (X, Y)), "Received: a list of 2"),
    "two inputs": (([X, X], Y), "must be a dict.*Received: a list of 2"),
    "unknown targets": ((X, {"a": Y, "b": X}), "called 'lengths'.*'a', 'b'"),
    "words": ("images", "must be .images, labels. or an iterable.*str"),
    "images of words": (np.array(["a", "b"]), "arrays of numbers.*<U1"),
    "repeated": (Repeated(), "never ends.*repeat"),
    "endless": (Endless(), "never ends"),
    "a number": (3, "Received: int"),
    "no batch size": ((X, Y), "at least one image in a batch.*batch_size=0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_gets_one_sentence(name, model):
    data, message = REFUSED[name]
    size = 0 if name == "no batch size" else 3
    with pytest.raises(ValueError, match=message):
        pairs, _ = labelled_batches(data, size, model)
        list(pairs)


def test_images_without_an_axis_of_channels_are_not_one_image(model):
    images, _ = read((X[..., 0], Y), model)
    assert images.shape == (8, 8, 8)
    found = rem.trees(model, X[..., 0]).codes
    np.testing.assert_array_equal(found, rem.trees(model, X).codes)


def test_inputs_to_train_on_keep_their_structure():
    data = {"images": X, "labels": Y}, {"lengths": Y, "reconstruction": X}
    batches, count = batches_of(data, 5)
    first, last = batches
    assert count == 2
    assert first.x.keys() == {"images", "labels"}
    assert len(last.y["reconstruction"]) == 3
    assert last.sample_weight is None


def test_weights_of_samples_weigh_the_saliencies():
    masks = []
    for weights in (1.0 * (np.arange(8) == 7), 1.0 * (np.arange(8) == 0)):
        keras.utils.set_random_seed(0)
        dense = keras.layers.Dense(3, activation="sigmoid")
        layers = [keras.Input((8, 8, 1)), keras.layers.Flatten(), dense]
        model = keras.Sequential(layers)
        model.compile("adam", MarginLoss())
        rem.prune_single_shot(model, (X, Y, weights), 0.5)
        masks.append(np.concatenate([m.ravel() for m in model.pruning.masks()]))
    assert 0 < np.mean(masks[0] != masks[1]) < 1


def test_a_large_network_takes_few_images_at_once(monkeypatch):
    """All that its layers make of a batch is held at once."""
    taken = []

    class Seen(keras.layers.Layer):
        def call(self, inputs):
            taken.append(inputs.shape[0])
            return inputs

    layers = [keras.Input((4, 4, 1)), Seen(), keras.layers.Conv2D(8, 1)]
    images = keras.Input((4, 4, 1))
    maps = FrozenModel(keras.Sequential(layers))(images)
    model = keras.Model(images, {"flat": keras.layers.Flatten()(maps)})
    pixels = np.random.default_rng(0).random((5, 4, 4, 1), "float32")
    taken.clear()
    whole = batches.predict(model, pixels)["flat"]
    # Images, those that were seen, and twice and thrice the maps.
    monkeypatch.setattr(batches, "_AT_ONCE", 2 * (2 * 16 + 3 * 128))
    cut = batches.predict(model, pixels)["flat"]
    assert taken == [5, 2, 2, 1]
    np.testing.assert_allclose(cut, whole, rtol=1e-5)


def test_layers_of_random_images_are_off(rng):
    flips = keras.layers.RandomFlip(data_format="channels_last")
    model = keras.Sequential([keras.Input((4, 4, 1)), flips])
    images = rng.random((8, 4, 4, 1), dtype=np.float32)
    np.testing.assert_array_equal(batches.predict(model, images), images)
