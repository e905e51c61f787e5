"""The server of the tests answers as TensorFlow Serving does."""

import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from tests.client_runs import expected

pytestmark = pytest.mark.usefixtures("no_proxy")


def _ask(url, content=None):
    """Returns status and JSON, without the client."""
    data = None if content is None else json.dumps(content).encode()
    try:
        with urllib.request.urlopen(url, data, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_tests_server_answers_rows_and_columns(networks, url, rng):
    pixels = rng.integers(0, 256, (2, 8, 8, 1), np.uint8)
    predict, images = f"{url}/v1/models/bytes:predict", pixels.tolist()
    wanted = expected(networks["bytes", 1], pixels)
    _, columns = _ask(predict, {"inputs": images})
    assert sorted(columns["outputs"]) == ["classes", "lengths", "poses"]
    lengths = columns["outputs"]["lengths"]
    np.testing.assert_allclose(lengths, wanted["lengths"], atol=1e-5)
    assert _ask(predict, {"inputs": {"images": images}}) == (200, columns)
    _, rows = _ask(predict, {"instances": images})
    assert [row["lengths"] for row in rows["predictions"]] == lengths
    assert sorted(rows["predictions"][0]) == ["classes", "lengths", "poses"]
    named = {"instances": [{"images": image} for image in images]}
    assert _ask(predict, named) == (200, rows)
    encode = {"signature_name": "encode"}
    _, rows = _ask(predict, {**encode, "instances": images})
    _, columns = _ask(predict, {**encode, "inputs": images})
    assert rows["predictions"] == columns["outputs"]
    np.testing.assert_allclose(rows["predictions"], wanted["poses"], atol=1e-5)


def test_the_tests_server_tells_which_versions_it_has(url):
    status, answer = _ask(f"{url}/v1/models/grey")
    states = answer["model_version_status"]
    assert status == 200
    assert [state["version"] for state in states] == ["1", "3"]
    assert states[0] == {
        "version": "1",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    assert _ask(f"{url}/v1/models/grey/versions/3")[1] == {
        "model_version_status": states[1:]
    }
    assert _ask(f"{url}/v1/models/gray") == (
        404,
        {"error": "Could not find any versions of model gray"},
    )
    assert _ask(f"{url}/v1/models/grey/versions/2") == (
        404,
        {"error": "Could not find version 2 of model grey"},
    )


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"inputs": {"x": 1}}, "Missing named input: images in 'inputs'"),
        ({"instances": [{"x": 1}]}, "keys must be equal to: images"),
        ({"inputs": [[1, 2], [3]]}, "Encountered list at unexpected size"),
        ({"inputs": [0.5]}, "is not of expected type: uint8"),
        ({"inputs": [1], "signature_name": "x"}, 'signature name: "x" not'),
    ],
)
def test_the_tests_server_refuses_what_is_wrong(url, content, error):
    status, answer = _ask(f"{url}/v1/models/bytes:predict", content)
    assert status == 400
    assert error in answer["error"]
