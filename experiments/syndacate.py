"""Trains a network of parts on 300 letters of SynDaCaTE's kind.

python experiments/syndacate.py --seeds 1 2 3 4 5

Labels are letters alone. A line for each seed, which draws images and weights, is
added to results/named_parts/syndacate.jsonl, and syndacate.md made of it.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, run_command, start_quietly
from markdown_table import markdown

_FOLDER = Path("results") / "named_parts"
_RATE, _BATCH = 1e-3, 16
_NEAR = 3.2  # pixels around a part that tell nothing
_WEIGHT = 5.0  # of a cell with a part; most have none
_SOFT = 0.65  # of the epochs; then competition is hard
# Angle, share of the size, and pixels by which pictures differ from upright.
_JITTER = (0.07, 0.06, 2.0)
_COPIES = 8  # of each image


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/syndacate.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", required=True)
    add("--epochs", type=int, default=8)
    add("--train", type=int, default=300, help="training images")
    add("--test", type=int, default=1000)
    add("--to", type=Path, default=_FOLDER, metavar="FOLDER")
    add("--draw", type=Path, metavar="FILE", help="draw eight trees")
    return parser


def trained(pictures: Any, labels: Any, maps: Any, options: Any, seed: int) -> Any:
    """Returns a network of parts, trained on labels of upright letters."""
    import keras
    import numpy as np

    import tfcaps
    from experiments import strokes

    letters, parts = pictures, strokes.find_parts(pictures.seen(maps), labels)
    keras.utils.set_random_seed(seed)
    network = tfcaps.models.constellation_capsnet(
        (strokes.SIDE, strokes.SIDE, 1),
        int(labels.max()) + 1,
        parts.num_types,
        filters=(16, 24, 24),
        kernel_size=5,
        strides=(2, 1, 1),
        window=3,
        instances=3,
        parts=parts.most,
    )
    parts.begin(network)
    # Where strokes are is known, so that it need not be learnt.
    network.get_layer("class_caps").blueprint.trainable = False
    told = tfcaps.models.with_templates(network, template_size=None).output
    training = keras.Model(network.input, told)
    images, cells = jittered(letters, labels, maps, parts, network, seed)
    labels = np.tile(labels, _COPIES)
    steps = options.epochs * (len(labels) // _BATCH)
    training.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(_RATE, steps)),
        {
            "evidence": tfcaps.losses.EvidenceLoss(generative=0.0),
            # Keras' own has no gradient where a share is below 1e-7.
            "presence": lambda told, found: -keras.ops.sum(
                told * keras.ops.log(found + 1e-30), axis=-1
            ),
        },
        loss_weights={"evidence": 0.3, "presence": cells[0, ..., 0].size},
    )

    def harden(epoch: int, logs: Any) -> None:
        hard = epoch >= round(_SOFT * options.epochs)
        network.get_layer("part_caps").hardness.assign(float(hard))

    training.fit(
        images,
        {"evidence": labels, "presence": cells},
        batch_size=_BATCH,
        epochs=options.epochs,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=harden)],
        verbose=2,
    )
    return network


def jittered(letters: Any, labels: Any, maps: Any, parts: Any, network: Any, seed: int) -> Any:
    """Returns pictures that are not quite upright, and which type is where.

    Where several types are it is each of them to an equal share, and next to
    parts all are 0, which tells nothing.
    """
    import numpy as np

    from experiments import strokes

    layer = network.get_layer("part_caps")
    _, rows, columns, types = layer.output[1].shape
    cells = np.indices((rows, columns)).transpose(1, 2, 0) * layer.stride
    cells = cells + np.array(layer.offset) - strokes.MIDDLE
    draw, (angle, size, away) = np.random.default_rng(seed), _JITTER
    images, told, count = [], [], len(labels)
    for _ in range(_COPIES):
        change = strokes.rotation(draw.normal(0, angle, count)) @ (
            np.eye(2) + draw.normal(0, size, (count, 2, 2))
        )
        shift = draw.uniform(-away, away, (count, 2))
        moved = np.einsum("nij,nj->ni", maps, shift)
        images.append(letters.seen(maps @ change, moved))
        there = np.linalg.inv(change)
        for n, label in enumerate(labels):
            own = parts.classes == label
            at = (parts.places[own] - shift[n]) @ there[n].T
            apart = np.linalg.norm(cells[:, :, None] - at, axis=-1)
            of_each = np.zeros((rows, columns, types + 1))
            of_each[apart.min(axis=-1) >= _NEAR, types] = 1.0
            for k, t in enumerate(parts.types[own]):
                cell = np.unravel_index(apart[..., k].argmin(), (rows, columns))
                of_each[cell][t] = 1.0
            total = of_each.sum(axis=-1, keepdims=True)
            share = of_each / np.maximum(total, 1.0)
            share[..., :types] *= _WEIGHT
            told.append(share)
    return np.concatenate(images), np.array(told, "float32")
