"""A plain convolutional network beside the capsules, to compare with.

It has the layers of the capsule network up to its first capsules and a dense
layer in their place, no more parameters in all, and is trained alike. Where it
is right and the capsules are not, the pictures can be learnt, and the capsules
are what to look at.
"""

import itertools
import json

import keras
import numpy as np

from tfcaps import rem
from training import features, networks, objectives, train
from training.batches import Batches, training_batches
from training.datasets import Data
from training.folder import RunFolder
from training.image_data import Array

_FILE = "dense_head.json"


def accuracy(
    data: Data, folder: RunFolder, kept: dict[str, Array] | None = None
) -> float:
    """Returns the accuracy on the test images after a training.

    It stands in the run folder's `dense_head.json`, with those on the other
    test sets, and is read from there if it has been measured; the network is in
    `dense_head.keras`.
    """
    path = folder.path / _FILE
    if path.exists():
        return json.loads(path.read_text("utf-8"))["accuracy"]
    config = folder.config
    print(f"\nDense head on {data.name}, to compare with", flush=True)
    keras.utils.set_random_seed(config.seed)
    model = build(networks.build_for(data, config, decoder=False))
    kept = {} if kept is None else kept
    head, seen, augment = features.cache_features(model, data, config, kept)
    batches = training_batches(head, seen, config, augment=augment)
    head.compile(
        keras.optimizers.Adam(
            objectives.learning_rate(config, batches.num_batches)
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    train.fit(head, batches, [], config.epochs)
    right, *others = (
        float(np.mean(np.argmax(logits, axis=-1) == split.labels))
        for split in (data.test, *data.others.values())
        for logits in [model.predict(Batches(*split, 256), verbose=0)]
    )
    tests = dict(zip(data.others, others, strict=True))
    for name, share in tests.items():
        print(f"Dense head, {name} images: {share:.2%} right.", flush=True)
    folder.save_model("dense_head", model)
    size = model.count_params()
    folder.write_json(
        _FILE, {"accuracy": right, "parameters": size, "tests": tests}
    )
    return right


def build(network: keras.Model) -> keras.Model:
    """Returns the network with a dense layer in the place of its capsules.

    The features are averaged over windows that are just large enough for the
    model to have no more parameters than the network. Without layers below the
    capsules it takes the pixels.
    """
    network = rem.encoder(network)
    below = itertools.takewhile(
        lambda layer: len(getattr(layer.output, "shape", ())) == 4,
        network.layers,
    )
    features = list(below)[-1].output
    classes = network.outputs[0].shape[1]
    for window in range(1, min(features.shape[1:3]) + 1):
        pooled = features
        if window > 1:
            pool = keras.layers.AveragePooling2D(window, name="pool")
            pooled = pool(features)
        flat = keras.layers.Flatten(name="flat")(pooled)
        logits = keras.layers.Dense(classes, dtype="float32", name="logits")
        model = keras.Model(network.inputs[0], logits(flat), name="dense_head")
        if model.count_params() <= network.count_params():
            break
    return model
