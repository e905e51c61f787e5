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

import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from export import client
from export.model import export_model
from tests.networks import tiny_capsnet
from tfcaps.rem import capsule_outputs, explanation

SERVER = shutil.which("tensorflow_model_server")
PATIENCE = 120  # seconds; it polls every second, and loading takes some

pytestmark = pytest.mark.skipif(
    SERVER is None, reason="tensorflow_model_server is not on the PATH"
)


def _network(seed):
    """Returns a pruned network; its weights are packed, and others by seed."""
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

    def predict(self, images, **options):
        """Returns the answers by REST and by gRPC."""
        return (
            client.predict_rest(self.url, "tiny", images, **options),
            client.predict_grpc(self.address, "tiny", images, **options),
        )


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The guide's server with version 1, the network of seed 1."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("export.sizes.measure", lambda *args: {})
    monkeypatch.setattr("export.sizes.table", lambda rows: "")
    monkeypatch.setattr("export.server_configs.MOUNTED_AT", str(tmp_path))
    export_model(_network(1), tmp_path, name="tiny")
    base = tmp_path / "tiny"
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
    for count in (1, 3, 17):
        images = rng.random((count, 8, 8, 1), np.float32)
        wanted = _expected(_network(1), images)
        for answer in server.predict(images, timeout=60):
            assert sorted(answer) == ["classes", "lengths", "poses"]
            for key in ("lengths", "poses"):
                np.testing.assert_allclose(answer[key], wanted[key], atol=1e-5)
            best = np.argmax(wanted["lengths"], axis=-1)
            np.testing.assert_array_equal(answer["classes"], best)
        for answer in server.predict(images, signature="encode"):
            assert list(answer) == ["poses"]
            np.testing.assert_allclose(
                answer["poses"], wanted["poses"], atol=1e-5
            )
        for answer in server.predict(images, signature="explain"):
            keys = ["classes", "couplings", "lengths", "saliency"]
            assert sorted(answer) == keys
            shown = explanation(_network(1))(images)
            np.testing.assert_allclose(
                answer["saliency"], shown["saliency"], atol=1e-5
            )


def test_it_refuses_as_the_client_says(server, rng):
    images = rng.random((1, 8, 8, 1), np.float32)
    for predict, where in (
        (client.predict_rest, server.url),
        (client.predict_grpc, server.address),
    ):
        with pytest.raises(client.ClientError, match="such model or version"):
            predict(where, "other", images)
        with pytest.raises(client.ClientError, match="such model or version"):
            predict(where, "tiny", images, version=7)
        with pytest.raises(
            client.ClientError,
            match="'x', but encode, explain, serving_default",
        ):
            predict(where, "tiny", images, signature="x")
        wrong = client.Signature("serving_default", (2, 2, 1), "float32", {})
        with pytest.raises(client.ClientError, match="answers (HTTP|[A-Z_]+)"):
            predict(where, "tiny", images[:, :2, :2], signature=wrong)


def test_a_new_version_fails_no_request(server, rng):
    images = rng.random((2, 8, 8, 1), np.float32)
    lengths = {n: _expected(_network(n), images)["lengths"] for n in (1, 2)}
    assert np.abs(lengths[1] - lengths[2]).max() > 0.01
    seen, problems, stop = [], [], threading.Event()

    def ask():
        while not stop.is_set():
            try:
                for answer in server.predict(images, timeout=60):
                    seen.extend(
                        version
                        for version, wanted in lengths.items()
                        if np.allclose(answer["lengths"], wanted, atol=1e-5)
                    )
            except Exception as error:  # whatever it is, the test shall tell
                problems.append(error)

    server.predict(images, timeout=60)  # imports what gRPC needs
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        time.sleep(1)
        assert (problems, set(seen)) == ([], {1})
        export_model(_network(2), server.base.parent, name="tiny")
        server.wait_for("2")
        time.sleep(1)
    finally:
        stop.set()
        thread.join()
    assert problems == []
    assert seen[0] == 1 and seen[-1] == 2
    assert seen == sorted(seen)
    with pytest.raises(client.ClientError, match="such model or version"):
        server.predict(images, version=3)
