"""Served networks under load: images a second, and how long a client waits.

Batches are made by TensorFlow's own operation, that of its server, with the
numbers of `batching.config`. Clients are threads of this process that send one
image after the other: neither JSON nor a network is measured.
"""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.measure import Row, Settings
from benchmarks.models import floor
from tfcaps import models
from tfcaps.export import serving
from tfcaps.export.networks import write_saved_model
from tfcaps.export.pixels import pixels_of

CLIENTS = (1, 4, 16)
_SECONDS = 1.0  # a turn of one candidate
_TURNS = 4

Ask = Callable[[Any], Any]


def measure(settings: Settings) -> list[Row]:
    """Asks each network for its answers, for its trees, and a plain one."""
    turns, seconds = (1, 0.1) if settings.quick else (_TURNS, _SECONDS)
    made: dict[str, Callable[[], keras.Model]] = {
        "figures": lambda: models.load_pretrained("figures")
    }
    if not settings.quick:
        made["photos"] = _of_photos
    rows = []
    for what, make in made.items():
        with tempfile.TemporaryDirectory() as folder:
            model = make()
            asked = _served(model, Path(folder))
            image = tf.random.uniform((1, *model.input_shape[1:]))
            for ask in asked.values():
                for batch in serving.BATCHES:  # each is traced, or warmed up
                    ask(tf.repeat(image, batch, 0))
            for clients in CLIENTS:
                waits: dict[str, list[float]] = {name: [] for name in asked}
                for _ in range(turns):
                    for name, ask in asked.items():
                        waits[name] += load(ask, image, clients, seconds)
                for name, each in waits.items():
                    p50, p99 = (1e3 * np.percentile(each, (50, 99))).tolist()
                    row = Row(
                        f"{what}, {name}, {clients} clients",
                        image.shape.as_list(),
                        {"ms": p50},
                        {},
                        f"{what}, plain, {clients} clients",
                        per_second=len(each) / (turns * seconds),
                        p99_ms=p99,
                    )
                    rows.append(row)
                    print(f"serving: {row}", flush=True)
    return rows


def load(ask: Ask, image: Any, clients: int, seconds: float) -> list[float]:
    """Returns the seconds that each question of so many clients took."""
    end = time.perf_counter() + seconds

    def client(_: int) -> list[float]:
        waits = []
        while (start := time.perf_counter()) < end:
            ask(image)
            waits.append(time.perf_counter() - start)
        return waits

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(client, range(clients)), [])


def _served(model: keras.Model, folder: Path) -> dict[str, Ask]:
    """Returns the signatures of a network and of its floor, in batches."""
    write_saved_model(model, folder / "caps", pixels_of(model, "float32"))
    floor(model).export(folder / "plain", verbose=False)
    caps, plain = (tf.saved_model.load(folder / x) for x in ("caps", "plain"))
    return {
        "predict": _batched(caps, "serving_default"),
        "explain": _batched(caps, "explain"),
        "plain": _batched(plain, "serving_default"),
    }


def _batched(served: Any, name: str) -> Ask:
    signature = served.signatures[name]
    [given] = signature.structured_input_signature[1]
    spec = tf.TensorSpec(signature.inputs[0].shape, tf.float32)

    @tf.nondifferentiable_batch_function(
        num_batch_threads=os.cpu_count() or 1,
        max_batch_size=serving.BATCHES[-1],
        batch_timeout_micros=serving.BATCH_TIMEOUT_MICROS,
        allowed_batch_sizes=list(serving.BATCHES),
        max_enqueued_batches=1000,
    )
    def ask(images: Any) -> list[Any]:
        return tf.nest.flatten(served.signatures[name](**{given: images}))

    return tf.function(ask, [spec], autograph=False)


def _of_photos() -> keras.Model:
    """Returns a network of photos; its weights are random, its cost is not."""
    backbone = keras.applications.MobileNetV2(
        (128, 128, 3), include_top=False, weights=None
    )
    return models.constellation_capsnet((128, 128, 3), 10, backbone=backbone)
