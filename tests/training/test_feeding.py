"""What `fit` reads batches from."""

import keras
import numpy as np

from tests.backends import on_tensorflow
from training import feeding
from training.batches import Batches
from training.image_data import Images


def batches():
    def arrange(images, labels):
        return {"images": images, "labels": labels}, {"lengths": labels}

    images = Images(np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1))
    return Batches(images, np.arange(10), 4, seed=1, arrange=arrange)


def seen(stream):
    order = []
    for inputs, targets in stream:
        images, labels = np.array(inputs["images"]), np.array(inputs["labels"])
        np.testing.assert_allclose(images.ravel(), labels / 255, rtol=1e-6)
        np.testing.assert_array_equal(labels, targets["lengths"])
        order.append(labels.tolist())
    return order


@on_tensorflow
def test_a_stream_has_the_batches_of_the_epoch_and_tunes_nothing():
    given = batches()
    stream = feeding.stream(given)
    assert not stream.options().autotune.enabled
    assert int(stream.cardinality()) == given.num_batches == 3
    for epoch in (0, 1):
        given.start_epoch(epoch)
        expected = [given[k][0]["labels"].tolist() for k in range(3)]
        assert seen(stream) == expected
    given.start_epoch(0)
    assert seen(stream) != expected


def test_fit_draws_each_epoch_before_it_reads_it(monkeypatch):
    given = batches()
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
    stream = feeding.stream(given)
    read.clear()
    callbacks = [feeding.epoch_starter(given)]
    model.fit(stream, epochs=3, verbose=0, shuffle=False, callbacks=callbacks)
    each = [(epoch, index) for epoch in range(3) for index in range(3)]
    # Keras looks at the first batches of a `PyDataset`.
    assert read[-9:] == each
