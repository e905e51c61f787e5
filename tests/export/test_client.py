"""The example client, against a server that answers as TensorFlow Serving."""

import urllib.request

import keras
import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from export import client
from tests.client_runs import expected
from tfcaps.rem import capsule_outputs

pytestmark = pytest.mark.usefixtures("no_proxy")


@pytest.fixture(params=["rest", "grpc"])
def predict(request):
    """Asks either way."""
    where = {"rest": "url", "grpc": "address"}[request.param]
    server = request.getfixturevalue(where)
    function = getattr(client, f"predict_{request.param}")
    return lambda *args, **options: function(server, *args, **options)


@pytest.mark.parametrize("sent", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("name", ["grey", "bytes", "colour"])
def test_answers_are_those_of_the_network(networks, predict, rng, name, sent):
    version = 3 if name == "grey" else 1
    model = networks[name, version]
    shape = (5, *model.input_shape[1:])
    pixels = rng.integers(0, 256, shape, np.uint8)
    images = pixels if sent == "uint8" else (pixels / 255).astype(sent)
    answer = predict(name, images)
    wanted = expected(model, pixels)
    assert list(answer) == ["classes", "lengths", "poses"]
    for key in ("lengths", "poses"):
        assert answer[key].dtype == np.float32
        np.testing.assert_allclose(answer[key], wanted[key], atol=1e-5)
    assert answer["classes"].dtype == np.int64
    best = np.argmax(wanted["lengths"], axis=-1)
    np.testing.assert_array_equal(answer["classes"], best)


def test_one_image_and_a_version_can_be_asked_for(networks, predict, rng):
    pixels = rng.integers(0, 256, (1, 8, 8, 1), np.uint8)
    answers = {}
    for version in (1, 3):
        answers[version] = predict("grey", pixels, version=version)["lengths"]
        wanted = expected(networks["grey", version], pixels)["lengths"]
        np.testing.assert_allclose(answers[version], wanted, atol=1e-5)
    assert np.abs(answers[1] - answers[3]).max() > 0.01


def test_a_single_output_keeps_its_name(networks, predict, rng):
    pixels = rng.integers(0, 256, (2, 8, 8, 1), np.uint8)
    answer = predict("bytes", pixels, signature="encode")
    wanted = expected(networks["bytes", 1], pixels)["poses"]
    assert list(answer) == ["poses"]
    np.testing.assert_allclose(answer["poses"], wanted, atol=1e-5)


def test_answers_by_grpc_may_exceed_its_four_megabytes(address, rng):
    images = rng.random((9000, 8, 8, 1), np.float32)
    answer = client.predict_grpc(
        address, "grey", images, signature="explain", timeout=60
    )
    assert sum(values.nbytes for values in answer.values()) > 2**22
    np.testing.assert_array_equal(answer["saliency"], images[..., 0])


def test_a_signature_that_is_known_is_not_asked_for(url, rng, monkeypatch):
    asked = []
    opener = urllib.request.urlopen

    def record(request, **options):
        asked.append(request.full_url.removeprefix(url))
        return opener(request, **options)

    monkeypatch.setattr(urllib.request, "urlopen", record)
    signature = client.signature_rest(f"{url}/", "grey", signature="encode")
    assert signature == ("encode", (8, 8, 1), "float32", {"poses": "float32"})
    images = rng.random((1, 8, 8, 1))
    client.predict_rest(url, "grey", images, signature=signature, version=1)
    assert asked == [
        "/v1/models/grey/metadata",
        "/v1/models/grey/versions/1:predict",
    ]


def test_what_the_server_refuses_is_told_in_its_words(predict, url):
    signature = client.signature_rest(url, "grey")._replace(shape=(2, 2, 1))
    with pytest.raises(client.ClientError) as raised:
        predict("grey", np.zeros((1, 2, 2, 1)), signature=signature)
    assert "images has the shape [1, 2, 2, 1], which is" in str(raised.value)
    status = "HTTP 400|INVALID_ARGUMENT"
    with pytest.raises(client.ClientError, match=f"answers ({status}): input"):
        predict("grey", np.zeros((1, 2, 2, 1)), signature=signature)


def test_pixels_become_what_the_server_wants():
    floats = client.Signature("s", (1, 3, 1), "float32", {})
    pixels = np.array([0, 51, 255], np.uint8).reshape(1, 1, 3, 1)
    shares = np.array([0, 0.2, 1], np.float32).reshape(1, 1, 3, 1)
    for images in (pixels, shares, shares.astype("float16")):
        sent = client.as_input(images, floats)
        assert sent.dtype == np.float32
        np.testing.assert_allclose(sent, shares, atol=1e-4)
        sent = client.as_input(images, floats._replace(dtype="uint8"))
        assert sent.dtype == np.uint8
        np.testing.assert_array_equal(sent, pixels)


def test_the_networks_have_lengths_to_tell_apart(networks, rng):
    for model in networks.values():
        images = rng.random((8, *model.input_shape[1:]), np.float32)
        lengths = np.asarray(capsule_outputs(model)(images)["lengths"])
        assert np.diff(np.sort(lengths), axis=-1).min() > 1e-4
        assert keras.ops.std(lengths) > 0.01
