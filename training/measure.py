"""Measures a model while it trains."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfcaps import rem
from tfcaps.rem import CouplingDictionary
from training import devices
from training.activity import Activity
from training.batches import Batches
from training.configs import Config
from training.image_data import Split

# The curves have about this many points, each of this many test images at most.
_CURVE_POINTS = 40
_CURVE_SAMPLES = 1000
# Capsule layers are looked at on so many of these.
_ACTIVE_SAMPLES = 128


def _short(name: str) -> str:
    """Returns a log's name as if lengths were the only output."""
    return {"evidence_accuracy": "accuracy"}.get(
        name, name if name == "lengths_loss" else name.removeprefix("lengths_")
    )


def _measured_epochs(epochs: int) -> list[int]:
    """Returns the epochs of the curves, the first and the last among them."""
    every = max(epochs // _CURVE_POINTS, 1)
    return sorted({0, *range((epochs - 1) % every, epochs, every)})


class Measure(keras.callbacks.Callback):
    """Measures a network every few epochs.

    It does after the first epoch and the last one too, also where the training
    stops early: what stops it must stand before this callback.

    Args:
        name: Name of the model.
        network: From images to class lengths.
        test: The test images, of which some are measured.
        config: Settings of the run; `epochs` is the last one of the training.
        save_row: Called with each line of `metrics.jsonl`.
        save_trees: Called with the name of the model, the epoch (from 0) and
            its parse trees, at four epochs.

    Attributes:
        row: The latest line, or `None`.
    """

    def __init__(
        self,
        name: str,
        network: keras.Model,
        test: Split,
        config: Config,
        save_row: Callable[[dict[str, Any]], None],
        save_trees: Callable[[str, int, CouplingDictionary], None],
    ):
        super().__init__()
        draw = np.random.default_rng(0)
        rows = draw.permutation(len(test.labels))[:_CURVE_SAMPLES]
        self.name = name
        self.network = network
        self.test = Batches(*test.take(rows), batch_size=256)
        self.config = config
        self.save_row = save_row
        self.save_trees = save_trees
        self.row: dict[str, Any] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.local = devices.Local(self.network)
        with devices.alone():
            self.evaluator = rem.Evaluator(
                self.local.model, self.config.levels, mode=self.config.mode
            )
            self.activity = Activity(self.local.model)
        self.step_seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.step_seconds.append(time.perf_counter() - self.started)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float] | None = None
    ) -> None:
        logs = {} if logs is None else logs
        measured = _measured_epochs(self.config.epochs)
        if epoch not in measured and not self.model.stop_training:
            return
        self.local.update()
        with devices.alone():
            report = self.evaluator.run(self.test)
            layers = self.activity.measure(
                self.test.images[:_ACTIVE_SAMPLES],
                self.model.optimizer,
            )
        # Keras shows what is added to the logs beside its progress bar.
        logs["entropy_bits"] = report.entropy_bits
        if devices.process() > 0:
            return
        last = len(measured) - 1
        kept = {measured[k] for k in (0, last // 4, last // 2, last)}
        if epoch in kept or self.model.stop_training:
            self.save_trees(self.name, epoch, report.dictionary)
        self.row = {
            "model": self.name,
            "epoch": epoch,
            **{_short(k): float(v) for k, v in logs.items()},
            "test_accuracy": report.accuracy,
            "test_accuracy_quantized": report.accuracy_quantized,
            "majority_share": report.majority_share,
            "learnt": report.learnt,
            "entropy_bits": report.entropy_bits,
            "type_entropy_bits": report.type_entropy_bits,
            "ceiling_bits": report.ceiling_bits,
            "median_keys": report.median_keys,
            "nonuniform_share": report.nonuniform_share,
            "whole_share": report.whole_share,
            "t_score": report.t_score,
            "sparsity": report.sparsity,
            "layers": layers,
            # The median leaves out the first step, which is compiled.
            "seconds_per_step": statistics.median(self.step_seconds),
        }
        self.save_row(self.row)
