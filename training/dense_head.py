"""A plain convolutional network beside the capsules, to compare with.

It has the layers of the capsule network up to its first capsules, or up to the
convolution of these, and dense layers in their place, no more parameters in
all, and is trained alike. Where it is right and the capsules are not, the
pictures can be learnt, and the capsules are what to look at.
"""

import itertools
import json
from typing import Any

import keras
import numpy as np

from cli import UserError
from tfcaps import rem
from tfcaps.layers import PrimaryCaps
from training import features, feeding, networks, objectives, train
from training.batches import Batches
from training.datasets import Data
from training.folder import RunFolder
from training.image_data import Split
from training.progress import progress

_FILE = "dense_head.json"


def accuracy(data: Data, folder: RunFolder) -> float:
    """Returns the accuracy on the test images after a training.

    It stands in the run folder's `dense_head.json`, with those on the other
    test sets, and is read from there if it has been measured; the network is in
    `dense_head.keras`.
    """
    path = folder.path / _FILE
    if path.exists():
        return json.loads(path.read_text("utf-8"))["accuracy"]
    config = folder.config
    if config.pairs:
        raise UserError(
            "--dense-head needs one class for each image; those of "
            f"{data.name} show two."
        )
    print(f"\nDense head on {data.name}, to compare with", flush=True)
    keras.utils.set_random_seed(config.seed)
    network = networks.build_for(data, config, decoder=False)
    model = build(network, config.dense_head_on)
    kept = features.cache_features(
        model, data, config, folder.path, progress() % 2
    )
    tests = data.others
    head, data, make = kept or features.CachedFeatures(model, data, Batches)
    batches = feeding.training_batches(head, data, config, make=make)

    def train_round(number: int) -> None:
        rate = objectives.learning_rate(config, batches.num_batches)
        head.compile(
            keras.optimizers.Adam(rate),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        first = number * config.epochs
        train.fit(head, batches, [], first + config.epochs, first)

    train_round(0)
    validation = Batches(*data.validation, config.batch_size)
    train.further_rounds(head, validation, train_round, config.rounds)
    right = _accuracy(head, data.test)
    others = {name: _accuracy(model, split) for name, split in tests.items()}
    for name, share in others.items():
        print(f"Dense head, {name} images: {share:.2%} right.", flush=True)
    folder.save_model("dense_head", model)
    folder.write_json(
        _FILE,
        {
            "accuracy": right,
            "parameters": model.count_params(),
            "tests": others,
        },
    )
    return right


def _accuracy(head: keras.Model, split: Split) -> float:
    images, labels = split
    logits = head.predict(Batches(images, labels, batch_size=256), verbose=0)
    return float(np.mean(np.argmax(logits, axis=-1) == labels))


def sentence(right: float) -> str:
    """Returns what the report says of an accuracy."""
    return (
        "Dense head, the same network with a dense layer in the place of its "
        f"capsules: {right:.2%} of the test images right."
    )


def build(network: keras.Model, on: str = "features") -> keras.Model:
    """Returns the network with dense layers in the place of its capsules.

    On the features it is one layer, and they are averaged over windows that are
    just large enough for the model to have no more parameters than the network.
    Without layers below the capsules it takes the pixels.

    On the primary capsules' convolution, to which the windows of these belong,
    a layer stands before it, as wide as these parameters allow.

    Args:
        network: From images to class lengths.
        on: `"features"` or `"primary"`. Defaults to `"features"`.

    Returns:
        A model from images to logits.

    Raises:
        UserError: If it is `"primary"`, and the network has no `PrimaryCaps`,
            or too few parameters for a layer of one unit.
    """
    network = rem.encoder(network)
    if on == "primary":
        return _on_primary(network)
    below = itertools.takewhile(
        lambda layer: len(getattr(layer.output, "shape", ())) == 4,
        network.layers,
    )
    features = list(below)[-1].output
    for window in range(1, min(features.shape[1:3]) + 1):
        pooled = features
        if window > 1:
            pool = keras.layers.AveragePooling2D(window, name="pool")
            pooled = pool(features)
        model = _with_logits(network, _flat(pooled))
        if model.count_params() <= network.count_params():
            break
    return model


def _on_primary(network: keras.Model) -> keras.Model:
    """Returns a model of two dense layers on the primary convolution."""
    primary = [x for x in network.layers if isinstance(x, PrimaryCaps)]
    if not primary:
        raise UserError(
            "--dense-head-on primary needs a network with PrimaryCaps. "
            f"Received: {network.name}. Use --dense-head-on features."
        )
    conv = primary[0].conv
    # A layer of its own: its name may be that of another.
    conv = conv.from_config({**conv.get_config(), "name": "primary_conv"})
    features = keras.layers.ReLU(name="relu")(conv(primary[0].input))
    flat = _flat(features)
    classes = network.outputs[0].shape[1]
    room = network.count_params() - classes
    room -= keras.Model(network.inputs[0], flat).count_params()
    units = room // (flat.shape[1] + 1 + classes)
    if units < 1:
        raise UserError(
            "--dense-head-on primary allows no more parameters than the "
            f"capsules have, too few for one unit. Received: {network.name} "
            f"with {network.count_params():,}. Use --dense-head-on features."
        )
    hidden = keras.layers.Dense(units, activation="relu", name="hidden")
    return _with_logits(network, hidden(flat))


def _flat(features: Any) -> Any:
    return keras.layers.Flatten(name="flat")(features)


def _with_logits(network: keras.Model, inputs: Any) -> keras.Model:
    classes = network.outputs[0].shape[1]
    logits = keras.layers.Dense(classes, dtype="float32", name="logits")
    return keras.Model(network.inputs[0], logits(inputs), name="dense_head")
