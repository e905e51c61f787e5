"""Measures a model while it trains."""

import statistics
import time

import keras
import numpy as np

from tfcaps import rem
from training import devices
from training.activity import Activity
from training.batches import Batches, to_float

# The curves have about this many points, each of this many test images at most.
_CURVE_POINTS = 40
_CURVE_SAMPLES = 1000
# Capsule layers are looked at on so many of these.
_ACTIVE_SAMPLES = 128


def _short(name: str) -> str:
    """Returns a log's name as if lengths were the only output."""
    return name if name == "lengths_loss" else name.removeprefix("lengths_")


def _measured_epochs(epochs: int) -> list[int]:
    """Returns the epochs of the curves, the first and the last among them."""
    every = max(epochs // _CURVE_POINTS, 1)
    return sorted({0, *range((epochs - 1) % every, epochs, every)})


class Measure(keras.callbacks.Callback):
    """Writes a line of `metrics.jsonl` every few epochs.

    It does after the first epoch and the last one too, also where the training
    stops early: what stops it must stand before this callback.
    """

    def __init__(self, name, network, data, folder):
        super().__init__()
        images, labels = data.test
        draw = np.random.default_rng(0)
        chosen = draw.permutation(len(labels))[:_CURVE_SAMPLES]
        self.name = name
        self.network = network
        self.test = Batches(images[chosen], labels[chosen], batch_size=256)
        self.folder = folder
        self.row = None  # the latest

    def on_train_begin(self, logs=None):
        config = self.folder.config
        self.local = devices.Local(self.network)
        with devices.alone():
            self.evaluator = rem.Evaluator(
                self.local.model, config.levels, mode=config.mode
            )
            self.activity = Activity(self.local.model)
        self.step_seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.step_seconds.append(time.perf_counter() - self.started)

    def on_epoch_end(self, epoch, logs=None):
        measured = _measured_epochs(self.folder.config.epochs)
        if epoch not in measured and not self.model.stop_training:
            return
        self.local.update()
        with devices.alone():
            report = self.evaluator.run(self.test)
            layers = self.activity.measure(
                to_float(self.test.images[:_ACTIVE_SAMPLES]),
                self.model.optimizer,
            )
        # Keras shows what is added to the logs beside its progress bar.
        logs["entropy_bits"] = report.entropy_bits
        if devices.process() > 0:
            return
        last = len(measured) - 1
        kept = {measured[k] for k in (0, last // 4, last // 2, last)}
        if epoch in kept or self.model.stop_training:
            self.folder.save_epoch(self.name, epoch, report.dictionary)
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
        self.folder.append_metrics(self.row)
