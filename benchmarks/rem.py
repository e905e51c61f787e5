"""REM's evaluation beside prediction, and its dictionary beside strings."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Row, Settings, interleaved
from tfcaps import models, rem

_IMAGES = 2_000
_BATCH = 256
_ROWS = 20_000
_LEVELS = 11
_CLASSES = 10
_CODES = 1152
_KEYS = 5_000


def measure(settings: Settings) -> list[Row]:
    """Times evaluation and the dictionary."""
    rows = _evaluation(64 if settings.quick else _IMAGES, settings)
    return rows + _dictionary(500 if settings.quick else _ROWS, settings)


def count_strings(codes: Any, predicted: Any) -> list[Counter[str]]:
    """Counts keys as public code does: a string for each sample."""
    counters: list[Counter[str]] = [Counter() for _ in range(_CLASSES)]
    for row, j in zip(codes, predicted, strict=True):
        counters[j]["".join(map(str, row.tolist()))] += 1
    return counters


def _evaluation(count: int, settings: Settings) -> list[Row]:
    generator = np.random.default_rng(0)
    images = generator.random((count, 28, 28, 1), "float32")
    labels = generator.integers(0, _CLASSES, count)
    model = models.dr_capsnet((28, 28, 1), _CLASSES)
    evaluator = rem.Evaluator(model, _LEVELS)
    timings = interleaved(
        f"rem, {count} images",
        {
            "rem.evaluate": partial(
                evaluator.run, (images, labels), batch_size=_BATCH
            ),
            "predict": partial(
                model.predict, images, batch_size=_BATCH, verbose=0
            ),
        },
        settings.rounds,
    )
    return [
        Row(name, images.shape, timing, base="predict")
        for name, timing in timings.items()
    ]


def _dictionary(count: int, settings: Settings) -> list[Row]:
    codes, predicted = draw_codes(count)
    timings = interleaved(
        f"rem, {count} keys of {_CODES} codes",
        {
            "CouplingDictionary": lambda: rem.CouplingDictionary(
                _CLASSES
            ).update(codes, predicted),
            "keys as strings": lambda: count_strings(codes, predicted),
        },
        settings.rounds,
    )
    return [
        Row(name, codes.shape, timing, base="CouplingDictionary")
        for name, timing in timings.items()
    ]


def draw_codes(count: int) -> tuple[Any, Any]:
    """Returns random keys, of which many are the same, and their classes."""
    generator = np.random.default_rng(0)
    keys = generator.integers(0, _LEVELS, (_KEYS, _CODES), np.uint8)
    drawn = generator.integers(0, _KEYS, count)
    return keys[drawn], drawn % _CLASSES
