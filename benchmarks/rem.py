"""REM's evaluation beside prediction, and its dictionary beside strings."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import memory
from benchmarks.measure import Row, Settings, interleaved
from tfcaps import models, rem

_IMAGES = 2_000
_BATCH = 256
_ROWS = 20_000
_STREAM = 10_000_000
_STREAM_BATCH = 10_000

_LEVELS = 11
_CLASSES = 10
_CODES = 1152
_KEYS = 5_000


def measure(settings: Settings) -> list[Row]:
    """Times evaluation, the dictionary and, if asked to, a long stream."""
    rows = _evaluation(64 if settings.quick else _IMAGES, settings)
    rows += _dictionary(500 if settings.quick else _ROWS, settings)
    if settings.large:
        use = memory.of_step(
            f"rem, {_STREAM:,} samples through the dictionary",
            "benchmarks.rem:make_stream",
            steps=0,
            samples=_STREAM,
        )
        rows.append(
            Row(
                "CouplingDictionary, a stream",
                (_STREAM, _CODES),
                {"ms": 1000.0 * use.seconds},
                peak_mb=use.peak_mb,
                process_mb=use.process_mb,
            )
        )
    return rows


def make_stream(samples: int) -> Callable[[], None]:
    """Returns a function that counts so many samples, batch by batch."""
    keys = _codes(_KEYS)

    def stream() -> None:
        generator = np.random.default_rng(1)
        trees = rem.CouplingDictionary(_CLASSES)
        for _ in range(0, samples, _STREAM_BATCH):
            drawn = generator.integers(0, _KEYS, _STREAM_BATCH)
            trees.update(keys[drawn], drawn % _CLASSES)

    return stream


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
    drawn = np.random.default_rng(1).integers(0, _KEYS, count)
    codes, predicted = _codes(_KEYS)[drawn], drawn % _CLASSES
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


def _codes(count: int) -> Any:
    """Returns random keys."""
    generator = np.random.default_rng(0)
    return generator.integers(0, _LEVELS, (count, _CODES), np.uint8)
