"""TensorFlow Serving itself, where its server is installed."""

import shutil
import socket
import subprocess
import time

import numpy as np
import pytest

from cli import UserError
from export import client
from tests.networks import tiny_capsnet
from tfcaps import export
from tfcaps.export import serving
from tfcaps.export.runtimes import SIGNATURES
from tfcaps.rem import capsule_outputs, explanation

SERVER = shutil.which("tensorflow_model_server")
PATIENCE = 120  # seconds; loading takes some


@pytest.mark.skipif(
    SERVER is None, reason="tensorflow_model_server is not on the PATH"
)
def test_it_answers_what_keras_does(tmp_path, monkeypatch, rng):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(serving, "MOUNTED_AT", str(tmp_path))
    model = tiny_capsnet(4, filters=32, primary_types=8)
    export.save(model, tmp_path / "tiny")
    serving.write_server_configs(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = [
        f"--rest_api_port={port}",
        f"--model_config_file={tmp_path}/models.config",
        "--enable_batching",
        f"--batching_parameters_file={tmp_path}/batching.config",
        f"--monitoring_config_file={tmp_path}/monitoring.config",
    ]
    url = f"http://127.0.0.1:{port}/v1/models/tiny"
    process = subprocess.Popen([SERVER, *flags])
    try:
        end = time.monotonic() + PATIENCE
        for count in (1, 3, 17):
            images = rng.random((count, 8, 8, 1), np.float32)
            wanted = {
                **capsule_outputs(model)(images),
                **explanation(model)(images),
            }
            for signature, names in SIGNATURES.items():
                answer = answered(url, images, signature, end)
                assert set(answer) == set(names)
                for name in names:
                    np.testing.assert_allclose(
                        answer[name], wanted[name], atol=1e-5
                    )
    finally:
        process.terminate()
        process.wait(10)


def answered(url, images, signature, end):
    """Returns the answer of a server, which may have to load first."""
    while True:
        try:
            return client.predict(url, images, signature)
        except UserError:
            assert time.monotonic() < end
            time.sleep(0.2)
