"""The example client, and the files that TensorFlow Serving reads."""

import json
import re
import socket
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image
from tensorflow_serving.config import model_server_config_pb2

from cli import UserError
from export import client
from tests.commands import status_of, told_by
from tests.networks import draw_weights, tiny_capsnet
from tests.serving import serve_rest
from tfcaps.export import serving
from tfcaps.export.networks import write_saved_model
from tfcaps.export.pixels import pixels_of
from tfcaps.rem import explanation
from training import pictures
from training.images import resize

pytestmark = pytest.mark.usefixtures("no_proxy")

CLASSES = ["cat", "dog", "owl", "yak"]


@pytest.fixture(scope="module")
def networks():
    """Networks by the name and version under which they are served."""
    served = {("grey", 1): 1, ("grey", 3): 3, ("bytes", 1): 2}
    # Each class gets another length, which it has not in untrained networks.
    return {
        name: draw_weights(tiny_capsnet(4), seed, class_caps=9.0)
        for name, seed in served.items()
    }


@pytest.fixture(scope="module")
def url(networks, tmp_path_factory):
    """The address of a server of the networks, and of a model of points."""
    base = tmp_path_factory.mktemp("served")
    for (name, version), model in networks.items():
        sent = pixels_of(model, "uint8" if name == "bytes" else "float32")
        (base / name).mkdir(exist_ok=True)
        write_saved_model(model, base / name / str(version), sent)
    (base / "grey" / ".publish-9").mkdir()
    spec = tf.TensorSpec((None, 2), name="x")
    points = tf.function(lambda x: {"y": x + 1}, [spec])
    to = str(base / "odd" / "1")
    tf.saved_model.save(tf.Module(), to, {"points": points})
    with serve_rest(base) as url:
        yield url


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save("digit.png")
    return tmp_path


def line(network, names=range(4), largest=1):
    lengths = np.asarray(network(digit() / np.float32(255 / largest)))[0]
    best = np.argsort(-lengths)[:3]
    told = ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in best)
    return f"digit.png: {told}"


def digit():
    return np.array(Image.open("digit.png"))[None, ..., None]


def asked(capsys, model, url, *arguments):
    given = ("--model", model, "--url", url, *arguments, "digit.png")
    status = status_of(client.main, *given)
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    return printed.out.strip()


@pytest.mark.parametrize("model", ["grey", "bytes"])
def test_classes_are_those_of_the_network(networks, url, work, capsys, model):
    network = networks[model, 3 if model == "grey" else 1]
    assert asked(capsys, model, url) == line(network)
    manifest = work / "manifest.json"
    manifest.write_text(json.dumps({"classes": CLASSES}))
    told = asked(capsys, model, url, "--manifest", str(manifest))
    assert told == line(network, CLASSES)
    if model == "grey":  # whose pixels may be of another range
        inputs = {"images": {"range": [0, 2]}}
        about = {"signatures": {"serving_default": {"inputs": inputs}}}
        manifest.write_text(json.dumps(about))
        told = asked(capsys, model, url, "--manifest", str(manifest))
        assert told == line(network, largest=2) != line(network)
    wanted = line(network)
    Image.fromarray(255 - digit()[0, ..., 0]).save("digit.png")
    assert asked(capsys, model, f"{url}/", "--invert") == wanted


def test_other_signatures_are_told(networks, url, work, capsys):
    told = asked(capsys, "bytes", url, "--signature", "explain")
    images = digit().astype("float32") / 255
    shown = explanation(networks["bytes", 1])(images)["saliency"][0]
    row, column = np.unravel_index(np.argmax(shown), shown.shape)
    assert told.endswith(f"; saliency peaks at row {row}, column {column}")
    checks = {"classes": None, "saliency": {"specific": False}}
    (work / "manifest.json").write_text(json.dumps(checks))
    more = "--signature", "explain", "--manifest", str(work / "manifest.json")
    told = asked(capsys, "bytes", url, *more)
    assert told.endswith("; its saliency map is no explanation")
    told = asked(capsys, "bytes", url, "--signature", "encode")
    assert told == "digit.png: poses (4, 4)"


@pytest.mark.parametrize("shape", [(8, 8, 1), (6, 9, 3), (40, 50, 3)])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "I;16"])
def test_pictures_become_what_they_are_in_training(work, rng, shape, mode):
    depth = {"RGB": (3,), "RGBA": (4,)}.get(mode, ())
    kind = np.uint16 if mode == "I;16" else np.uint8
    most = np.iinfo(kind).max
    picture = Image.fromarray(rng.integers(0, most, (20, 30, *depth), kind))
    assert picture.mode == mode
    turned = Image.Exif()
    turned[274] = 6  # the camera was held upright
    picture.save("turned.png", exif=turned)
    sent = client.read_picture(Path("turned.png"), shape)
    wanted = pictures.read(Path("turned.png"), {1: "L", 3: "RGB"}[shape[2]])
    assert wanted.shape[:2] == (30, 20)
    wanted = resize(wanted.reshape(1, 30, 20, -1), shape[:2])[0]
    np.testing.assert_array_equal(sent, wanted)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.png"], "missing.png cannot be used: [Errno 2]"),
        (["text.png"], "text.png cannot be used: cannot identify"),
        (["cut.png"], "cut.png cannot be used: "),
        (["--manifest", "missing.json"], "No such file or directory"),
        (["--url", "localhost:8501"], "'localhost:8501' must begin with http"),
        (["--signature", "exlpain"], "no signature 'exlpain' takes images"),
        (["--model", "odd", "--signature", "points"], "takes images"),
        (["--model", "gray"], 'answers HTTP 404: {"error": "Serv'),
        (["--model", "a/b:c"], "for request: Latest(a/b:c)"),
        (["--signatur", "encode"], "unrecognized arguments: --signatur encode"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_status_2(url, work, arguments, message):
    Path("cut.png").write_bytes(Path("digit.png").read_bytes()[:60])
    Path("text.png").write_text("hello")
    given = ["--model", "grey", "--url", url, "digit.png", *arguments]
    told = told_by(client.main, *given, status=2)
    assert message in told and told.startswith("client.py: error: ")
    assert told.count("\n") == 1


def test_a_server_that_does_not_run_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/models/m"
    with pytest.raises(UserError, match="not answer as a server of models; st"):
        client.predict(url, np.zeros((1, 8, 8, 1)), "encode")


def test_pictures_without_pillow(monkeypatch):
    monkeypatch.setattr(client, "find_spec", lambda name: None)
    told = told_by(client.main, "--model", "grey", "digit.png", status=2)
    assert "run pip install pillow." in told


def test_no_image_is_not_sent():
    with pytest.raises(UserError, match="there must be an image at least"):
        client.predict("http://x", np.zeros((0, 8, 8, 1)), "encode")


def test_configs_list_every_model_that_the_server_can_load(tmp_path):
    (tmp_path / "not-a-model").mkdir()
    for file in (
        "second/1/saved_model.pb", "fírst/1/saved_model.pb",
        "phone/1/model.tflite",
    ):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    serving.write_server_configs(tmp_path)
    config = text_format.Parse(
        (tmp_path / "models.config").read_text("utf-8"),
        model_server_config_pb2.ModelServerConfig(),
    )
    models = config.model_config_list.config
    assert [(m.name, m.base_path, m.model_platform) for m in models] == [
        ("fírst", "/models/fírst", "tensorflow"),
        ("second", "/models/second", "tensorflow"),
    ]
    batching = (tmp_path / "batching.config").read_text("utf-8")
    found = re.findall(r"^allowed_batch_sizes: (\d+)$", batching, re.M)
    allowed = [*map(int, found)]
    assert allowed == sorted(allowed) and allowed[0] == 1
    assert f"max_batch_size {{ value: {allowed[-1]} }}" in batching
    assert "prometheus" in (tmp_path / "monitoring.config").read_text("utf-8")
