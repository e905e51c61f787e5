"""Asks whether parts are named in figures that nothing was tuned on.

python -m examples.generators --seeds 5 6 7 8 9

A seed is a generator of pictures, which differ in kinds of parts, slots, sizes
and ground. Settings were chosen on generators 0 to 4; later ones have kinds of
their own. A line for each is added to results/named_parts/generators.jsonl,
and generators.md made of it.
"""

import argparse
import sys
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds
from training.datasets import figures

TUNED = 5  # generators that settings were chosen on
_KINDS = {
    True: "bar post square frame disc ring diamond triangle plus ell moon",
    False: "cross tee stairs cup stripe pair dot arch",
}
_GROUNDS = ("plain", "ramp", "clouds", "grain", "bright")
_CLASSES, _BATCH = 8, 32
_GAP = 7.4  # pixels between two slots at least, of parts of scale 1


def design(number: int) -> figures.Design:
    """Returns the figures of a generator, which depend on its number alone."""
    rng = np.random.default_rng([59, number])
    slots = int(rng.integers(3, 6))
    pool = _KINDS[number < TUNED].split()
    count = max(slots + int(rng.integers(0, 3)), 4)  # enough for eight classes
    kinds = rng.choice(pool, count, replace=False).tolist()
    scale = float(rng.uniform(0.85, 1.25))
    names: list[tuple[str, ...]] = []
    while len({*names}) < _CLASSES or len({*sum(names, ())}) < count:
        names = [
            tuple(rng.permutation(kinds)[:slots].tolist())
            for _ in range(_CLASSES)
        ]
    return figures.Design(
        tuple(kinds),
        _slots(slots, _GAP * scale, rng),
        tuple(names),
        scale,
        _GROUNDS[number % len(_GROUNDS)],
        40 if scale > 1.05 else 32,
    )


def _slots(
    count: int, gap: float, rng: np.random.Generator
) -> tuple[tuple[float, float], ...]:
    """Draws places that are near each other, but not too near."""
    places = [np.zeros(2)]
    while len(places) < count:
        angle = rng.uniform(0, 2 * np.pi)
        near = places[rng.integers(len(places))]
        step = gap * rng.uniform(1.0, 1.15)
        new = near + step * np.array([np.sin(angle), np.cos(angle)])
        every = np.array([*places, new])
        apart = np.linalg.norm(every[:-1] - new, axis=1).min()
        if apart >= gap and np.ptp(every, axis=0).max() <= 2.1 * gap:
            places.append(new)
    return tuple((float(row), float(column)) for row, column in places)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    return seeds.make_parser("generators", __doc__, 3600, 6, 1000)


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network on the pictures of a generator."""
    import keras

    import tfcaps
    from tfcaps import rem

    drawn = design(seed)
    (images, labels), _ = figures.draw(options.samples, 1000 + seed, drawn)
    (tested, classes), masks = figures.draw(options.tested, 2000 + seed, drawn)
    keras.utils.set_random_seed(seed)
    network: Any = tfcaps.models.constellation_capsnet(
        images.shape[1:], _CLASSES
    )
    network.fit(images / 255.0, labels, _BATCH, options.epochs, verbose=0)
    network = tfcaps.parts.without_spare_types(network)
    trees = rem.trees(network, tested / 255.0, couplings=False)
    named: Any = rem.named_parts(trees, masks)
    alone = rem.named_parts(trees, rem.estimated_parts(trees, tested / 255.0))
    return {
        "kinds": len(drawn.kinds),
        "parts": len(drawn.slots),
        "scale": round(drawn.scale, 2),
        "ground": drawn.ground,
        "accuracy": 100 * float(np.mean(trees.predicted == classes)),
        "types": named.types_used,
        "leaves": named.leaves,
        "information": named.information,
        "once": 100 * named.found_once,
        "perfect": 100 * named.perfect,
        "named": named.named,
        "said": alone.named,
        "verdict": alone.verdict,
    }


if __name__ == "__main__":
    sys.exit(seeds.main("generators", make_parser(), measured))
