"""Several devices and several processes train what one device trains."""

import dataclasses
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.backends import on_tensorflow
from tests.nightly import NIGHTLY
from tests.tolerance import assert_all_close
from tfcaps import rem
from tfcaps.routing import execution
from training import datasets, defaults, devices
from training import train as training
from training.batches import Batches
from training.folder import RunFolder
from training.images import Images

# Trains on the devices of its arguments, in files named like them.
TRAIN = """
import pathlib, sys
sys.modules["tensorflow"] = None
from tests.training import test_devices
folder, strategies = pathlib.Path(sys.argv[1]), sys.argv[2:]
for strategy in strategies:
    test_devices.train(folder / strategy, strategy)
"""
TEN_STEPS = {
    "epochs": 2,
    "batch_size": 16,
    "samples": 75,
    "rem": True,
    # The mean of a class is that of the images that a replica sees.
    "coupling_spread": 0.0,
    # So is the mean pose that silenced children have.
    "counterfactual_necessity": 0.0,
    "counterfactual_sufficiency": 0.0,
}


def train(path, strategy):
    """Trains a REM model for ten steps, the last one of eleven images."""
    config = dataclasses.replace(
        defaults.load("digits"), strategy=strategy, **TEN_STEPS
    )
    folder = RunFolder(path, config)
    made = devices.make_strategy(strategy)
    if devices.process() == 0:
        folder.create()
    data = datasets.load("digits").reduced(config.samples)
    if strategy != "none" or keras.backend.backend() == "jax":
        # The same images everywhere: two devices cut batches in halves.
        train = data.train.take(slice(74))
        data = dataclasses.replace(data, train=train)
    model = training.train_model("rem", data, folder, made)
    devices.wait()
    return model


def saved(path):
    weights = keras.saving.load_model(path / "model.keras").get_weights()
    lines = (path / "metrics.jsonl").read_text("utf-8").splitlines()
    return weights, [json.loads(line) for line in lines]


def assert_same(path, other):
    (weights, rows), (wanted, wanted_rows) = saved(path), saved(other)
    assert len(rows) == TEN_STEPS["epochs"]
    for row, wanted_row in zip(rows, wanted_rows, strict=True):
        for name in ("loss", "accuracy", "sparsity"):
            assert row[name] == pytest.approx(wanted_row[name], abs=1e-5)
        # A coupling half way between two levels may go either way.
        for name in ("test_accuracy_quantized", "entropy_bits"):
            assert row[name] == pytest.approx(wanted_row[name], abs=0.05)
    assert_all_close(weights, wanted, atol=1e-5)


def jax_process(folder, *strategies, **variables):
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_ENABLE_X64": "0",
        "PYTHONPATH": os.pathsep.join(["."]),
        **variables,
    }
    command = [sys.executable, "-c", TRAIN, str(folder), *strategies]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_data_parallel_training_equals_one_device(tmp_path):
    one = tmp_path / "one"
    one.mkdir()
    two_devices = {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} "
        "--xla_force_host_platform_device_count=2"
    }
    process = jax_process(one, "none", "data-parallel", **two_devices)
    two = tmp_path / "two"
    two.mkdir()
    processes = [
        jax_process(
            two,
            "data-parallel",
            KERAS_DISTRIBUTION_JOB_ADDRESSES="localhost:12357",
            KERAS_DISTRIBUTION_NUM_PROCESSES="2",
            KERAS_DISTRIBUTION_PROCESS_ID=str(number),
        )
        for number in range(2)
    ]
    assert [p.wait() for p in (process, *processes)] == [0, 0, 0]
    assert_same(one / "data-parallel", one / "none")
    assert_same(two / "data-parallel", one / "none")


@pytest.mark.slow
@on_tensorflow
def test_two_replicas_equal_one(tmp_path, monkeypatch, two_replicas):
    strategies = {"none": None, "mirrored": two_replicas}
    monkeypatch.setattr(devices, "make_strategy", strategies.get)
    if NIGHTLY:  # XLA takes half a minute for it
        monkeypatch.setattr(execution, "MANY_VOTES", 0)
    monkeypatch.setitem(TEN_STEPS, "samples", 74)
    models = [train(tmp_path / name, name) for name in strategies]
    assert_same(tmp_path / "mirrored", tmp_path / "none")
    test = datasets.load("digits").reduced(75).test
    reports = [rem.evaluate(m, Batches(*test, 16)).to_dict() for m in models]
    for report in reports:
        del report["t_score"], report["t_score_voting"]
    assert reports[0] == reports[1]


def test_processes_share_batches_of_a_multiple_of_all_devices():
    images = Images(np.arange(11.0)[:, None, None, None])
    labels = np.arange(11)
    parts = [
        Batches(images, labels, 4, seed=1, shards=2, process=(number, 2))
        for number in range(2)
    ]
    whole = Batches(images, labels, 4, seed=1)
    assert parts[0].num_batches == 3
    for index, count in enumerate((4, 4, 2)):
        seen = [part[index] for part in parts]
        for shown, own in seen:
            np.testing.assert_array_equal(shown.ravel(), own)
        labels = np.concatenate([own for _, own in seen])
        assert sorted(labels) == sorted(whole[index][1][:count])
