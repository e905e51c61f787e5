"""REM's evaluation beside prediction, and its dictionary beside strings."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Row, Settings, interleaved
from tfcaps import models, rem

_LEVELS = 11
_CLASSES = 10
_CODES = 1152
_KEYS = 5_000


def measure(settings: Settings) -> list[Row]:
    """Times evaluation and the dictionary."""
    count = 64 if settings.quick else 2_000
    images = np.random.default_rng(0).random((count, 28, 28, 1), "float32")
    labels = np.arange(count) % _CLASSES
    model = models.dr_capsnet((28, 28, 1), _CLASSES)
    evaluator = rem.Evaluator(model, _LEVELS)
    evaluation = {
        "rem.evaluate": partial(
            evaluator.run, (images, labels), batch_size=256
        ),
        "predict": partial(model.predict, images, batch_size=256, verbose=0),
    }
    codes, predicted = draw_codes(500 if settings.quick else 20_000)
    dictionary = {
        "CouplingDictionary": lambda: rem.CouplingDictionary(_CLASSES).update(
            codes, predicted
        ),
        "keys as strings": lambda: count_strings(codes, predicted),
    }
    return [
        Row(name, shape, timing, base=base)
        for candidates, shape, base in (
            (evaluation, images.shape, "predict"),
            (dictionary, codes.shape, "CouplingDictionary"),
        )
        for name, timing in interleaved(
            "rem", candidates, settings.rounds
        ).items()
    ]


def count_strings(codes: Any, predicted: Any) -> list[Counter[str]]:
    """Counts keys as public code does: a string for each sample."""
    counters: list[Counter[str]] = [Counter() for _ in range(_CLASSES)]
    for row, j in zip(codes, predicted, strict=True):
        counters[j]["".join(map(str, row.tolist()))] += 1
    return counters


def draw_codes(count: int) -> tuple[Any, Any]:
    """Returns random keys, of which many are the same, and their classes."""
    generator = np.random.default_rng(0)
    keys = generator.integers(0, _LEVELS, (_KEYS, _CODES), np.uint8)
    drawn = generator.integers(0, _KEYS, count)
    return keys[drawn], drawn % _CLASSES
