"""TensorFlow Serving itself, where its server is installed."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    predict_pb2,
    prediction_service_pb2_grpc,
)

from export import client
from tests.networks import tiny_capsnet
from tfcaps import export
from tfcaps.export import serving
from tfcaps.export.runtimes import SIGNATURES
from tfcaps.rem import capsule_outputs, explanation

SERVER = shutil.which("tensorflow_model_server")
PATIENCE = 120  # seconds; it polls every second, and loading takes some

pytestmark = pytest.mark.skipif(
    SERVER is None, reason="tensorflow_model_server is not on the PATH"
)


def _network(seed):
    """Returns a pruned network; its weights differ by seed."""
    rng = np.random.default_rng(seed)
    model = tiny_capsnet(4, filters=32, primary_types=8)
    for weight in model.weights:
        zeros = rng.random(weight.shape) < 0.8 * (weight.name == "kernel")
        weight.assign(np.where(zeros, 0, rng.normal(size=weight.shape) * 0.2))
    return model


def _expected(model, images):
    outputs = capsule_outputs(model)(images)
    return {key: np.asarray(value) for key, value in outputs.items()}


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


class _Running:
    """A server for one model, which has the name `tiny`."""

    def __init__(self, process, log, ports, base):
        self.process = process
        self.log = log
        self.address = f"127.0.0.1:{ports[0]}"
        self.url = f"http://127.0.0.1:{ports[1]}"
        self.base = base

    def states(self):
        """Returns the state of each version, none before the server is up."""
        url = f"{self.url}/v1/models/tiny"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.load(answer)["model_version_status"]
        except urllib.error.HTTPError as error:
            error.close()
            return {}
        except OSError:
            return {}
        return {each["version"]: each["state"] for each in found}

    def wait_for(self, version):
        end = time.monotonic() + PATIENCE
        while self.states().get(version) != "AVAILABLE":
            is_alive = self.process.poll() is None
            assert is_alive and time.monotonic() < end, self.log.read_text()
            time.sleep(0.2)

    def predict(self, images, signature="serving_default"):
        """Returns the answers by REST and by gRPC."""
        model = f"{self.url}/v1/models/tiny"
        return (
            client.predict(model, images, signature),
            self.predict_grpc(images, signature),
        )

    def predict_grpc(self, images, signature):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "tiny"
        request.model_spec.signature_name = signature
        request.inputs["images"].CopyFrom(tf.make_tensor_proto(images))
        with grpc.insecure_channel(self.address) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            outputs = stub.Predict(request, timeout=60).outputs
        return {k: tf.make_ndarray(outputs[k]) for k in outputs}


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The guide's server with version 1, the network of seed 1."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(serving, "MOUNTED_AT", str(tmp_path))
    base = tmp_path / "tiny"
    export.save(_network(1), base)
    serving.write_server_configs(tmp_path)
    ports = _free_ports(2)
    log = tmp_path / "server.log"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [
                SERVER,
                f"--port={ports[0]}",
                f"--rest_api_port={ports[1]}",
                f"--model_config_file={tmp_path}/models.config",
                "--enable_batching",
                f"--batching_parameters_file={tmp_path}/batching.config",
                f"--monitoring_config_file={tmp_path}/monitoring.config",
            ],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
        )
    try:
        running = _Running(process, log, ports, base)
        running.wait_for("1")
        yield running
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_it_answers_what_keras_does(server, rng):
    model = _network(1)
    for count in (1, 3, 17):
        images = rng.random((count, 8, 8, 1), np.float32)
        wanted = {**_expected(model, images), **explanation(model)(images)}
        for signature, names in SIGNATURES.items():
            for answer in server.predict(images, signature):
                assert set(answer) == set(names)
                for name in names:
                    np.testing.assert_allclose(
                        answer[name], wanted[name], atol=1e-5
                    )


def test_a_new_version_fails_no_request(server, rng):
    images = rng.random((2, 8, 8, 1), np.float32)
    lengths = {n: _expected(_network(n), images)["lengths"] for n in (1, 2)}
    assert np.abs(lengths[1] - lengths[2]).max() > 0.01
    seen, problems, stop = [], [], threading.Event()

    def ask():
        while not stop.is_set():
            try:
                for answer in server.predict(images):
                    seen.extend(
                        version
                        for version, wanted in lengths.items()
                        if np.allclose(answer["lengths"], wanted, atol=1e-5)
                    )
            except Exception as error:  # whatever it is, the test shall tell
                problems.append(error)

    server.predict(images)  # imports what gRPC needs
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        time.sleep(1)
        assert (problems, set(seen)) == ([], {1})
        export.save(_network(2), server.base)
        server.wait_for("2")
        time.sleep(1)
    finally:
        stop.set()
        thread.join()
    assert problems == []
    assert seen[0] == 1 and seen[-1] == 2
    assert seen == sorted(seen)
