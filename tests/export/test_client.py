"""The example client, against a server that answers as TensorFlow Serving."""

import json
import re
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cli import UserError
from export import client
from tests import serving
from tests.commands import status_of
from tests.networks import draw_weights, tiny_capsnet
from tfcaps.export.networks import write_saved_model
from tfcaps.rem import explanation
from training import images

pytestmark = pytest.mark.usefixtures("no_proxy")

CLASSES = ["cat", "dog", "owl", "yak"]


class Odd(tf.Module):
    """Signatures that are not for images of one size."""

    @tf.function(input_signature=[tf.TensorSpec((None, 2), name="x")])
    def points(self, x):
        return {"y": x + 1}

    @tf.function(
        input_signature=[tf.TensorSpec((None, 8, 8, 1), "int64", name="images")]
    )
    def integers(self, images):
        return {"y": images + 1}


@pytest.fixture(scope="session")
def networks():
    """Networks by the name and version under which they are served."""
    served = {("grey", 1): 1, ("grey", 3): 3, ("bytes", 1): 2}
    # Each class gets another length, which it has not in untrained networks.
    return {
        name: draw_weights(tiny_capsnet(4), seed, class_caps=9.0)
        for name, seed in served.items()
    }


@pytest.fixture(scope="session")
def url(networks, tmp_path_factory):
    """The address of a server of the networks, and of a model that is none."""
    base = tmp_path_factory.mktemp("served")
    for (name, version), model in networks.items():
        dtype = "uint8" if name == "bytes" else "float32"
        (base / name).mkdir(exist_ok=True)
        write_saved_model(model, base / name / str(version), dtype)
    (base / "grey" / ".publish-9").mkdir()
    odd = Odd()
    signatures = {"points": odd.points, "integers": odd.integers}
    tf.saved_model.save(odd, str(base / "odd" / "1"), signatures)
    with serving.serve_rest(base) as url:
        yield url


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with `digit.png`."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save("digit.png")
    return tmp_path


def run(*arguments):
    return status_of(client.main, *arguments)


def line(network, names=range(4)):
    """Returns the line that is printed for `digit.png`."""
    lengths = np.asarray(network(digit().astype("float32") / 255))[0]
    best = np.argsort(-lengths)[:3]
    told = ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in best)
    return f"digit.png: {told}"


def digit():
    """Returns the pixels of `digit.png`."""
    return np.array(Image.open("digit.png"))[None, ..., None]


def asked(capsys, model, url, *arguments):
    """Returns what the command prints of `digit.png`."""
    status = run("--model", model, "--url", url, *arguments, "digit.png")
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    return printed.out.strip()


@pytest.mark.parametrize("model", ["grey", "bytes"])
def test_classes_are_those_of_the_network(networks, url, work, capsys, model):
    wanted = line(networks[model, 3 if model == "grey" else 1])
    assert asked(capsys, model, url) == wanted
    Image.fromarray(255 - digit()[0, ..., 0]).save("digit.png")
    assert asked(capsys, model, f"{url}/", "--invert") == wanted


def test_classes_have_names(networks, url, work, capsys):
    named = line(networks["grey", 3], CLASSES)
    assert asked(capsys, "grey", url, "--classes", ",".join(CLASSES)) == named
    manifest = work / "manifest.json"
    given = ("--manifest", str(manifest))
    manifest.write_text(json.dumps({"classes": CLASSES}))
    assert asked(capsys, "grey", url, *given) == named
    manifest.write_text('{"classes": null}')
    assert asked(capsys, "grey", url, *given) == line(networks["grey", 3])


def test_other_signatures_are_told(networks, url, work, capsys):
    told = asked(capsys, "bytes", url, "--signature", "explain")
    images = digit().astype("float32") / 255
    shown = explanation(networks["bytes", 1])(images)["saliency"][0]
    row, column = np.unravel_index(np.argmax(shown), shown.shape)
    assert told.endswith(f"; saliency peaks at row {row}, column {column}")
    told = asked(capsys, "bytes", url, "--signature", "encode")
    assert told == "digit.png: poses (4, 4)"


@pytest.mark.parametrize(
    ("couplings", "told"),
    [
        ([0.2, 0.9, 0.6], "1 0.90, 2 0.60, 0 0.20"),
        (
            np.linspace(0.6, 0.9, 7),
            "6 0.90, 5 0.85, 4 0.80, 3 0.75, 2 0.70",
        ),
    ],
)
def test_children_coupled_with_the_class_are_told(couplings, told):
    outputs = {
        "lengths": np.array([0.8, 0.1]),
        "couplings": np.array(couplings),
    }
    text = client._describe(outputs, None)
    assert text == f"0 0.800, 1 0.100; most coupled children {told}"


@pytest.mark.parametrize("shape", [(8, 8, 1), (6, 9, 3), (40, 50, 3)])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_pictures_become_what_they_are_in_training(work, rng, shape, mode):
    depth = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    picture = Image.fromarray(rng.integers(0, 256, (20, 30, *depth), np.uint8))
    assert picture.mode == mode
    turned = Image.Exif()
    turned[274] = 6  # the camera was held upright
    picture.save("turned.png", exif=turned)
    sent = client.read_picture(Path("turned.png"), shape)
    wanted = images.read(Path("turned.png"), {1: "L", 3: "RGB"}[shape[2]])
    assert wanted.shape[:2] == (30, 20)
    wanted = images.resize(wanted.reshape(1, 30, 20, -1), shape[:2])[0]
    # Sums in another order may be rounded another way.
    difference = np.abs(sent.astype(int) - wanted)
    assert difference.max() <= 1 and difference.mean() < 0.01


def write_useless_files():
    """Writes files that are of no use into the working folder."""
    Path("cut.png").write_bytes(Path("digit.png").read_bytes()[:60])
    Path("text.png").write_text("hello")
    deep = Image.fromarray(np.full((8, 8), 40000, np.uint16))
    assert deep.mode == "I;16"
    deep.save("deep.png")
    Path("text.json").write_text("hello")
    Path("none.json").write_text("{}")
    Path("two.json").write_text('{"classes": ["a", "b"]}')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.png"], "missing.png cannot be used: [Errno 2]"),
        (["text.png"], "text.png cannot be used: cannot identify"),
        (["cut.png"], "cut.png cannot be used: "),
        (["deep.png"], "save it with 8 bits per channel, not more."),
        (["--manifest", "missing.json"], "No such file or directory"),
        (["--manifest", "text.json"], "text.json is no manifest of an export."),
        (["--manifest", "none.json"], "none.json is no manifest of an export."),
        (
            ["--manifest", "two.json"],
            "the model has 4 classes, not ['a', 'b'].",
        ),
        (["--url", "localhost:8501"], "'localhost:8501' must begin with http"),
        (
            ["--signature", "exlpain"],
            "there is no signature 'exlpain', but encode, explain, "
            "serving_default.",
        ),
        (
            ["--signature", "__saved_model_init_op"],
            "there is no signature '__saved_model_init_op', but encode, ",
        ),
        (
            ["--model", "odd", "--signature", "points"],
            "signature 'points' does not take grey or RGB pictures",
        ),
        (
            ["--model", "odd", "--signature", "integers"],
            "signature 'integers' does not take grey or RGB pictures",
        ),
        (
            ["--model", "gray"],
            "has no such model; give one that it serves: Ser",
        ),
        (["--model", "a/b:c"], "for request: Latest(a/b:c)"),
        (["--signatur", "encode"], "unrecognized arguments: --signatur encode"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_status_2(
    url, work, capsys, arguments, message
):
    write_useless_files()
    given = ["--model", "grey", "--url", url, "digit.png", *arguments]
    assert run(*given) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.startswith("client.py: error: ")
    assert printed.err.count("\n") == 1 and printed.out == ""


def test_a_picture_of_too_many_pixels(work, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(UserError, match="Image size .64 pixels. exceeds limit"):
        client.read_picture(Path("digit.png"), (8, 8, 1))


def test_a_server_that_does_not_run_or_answer(monkeypatch):
    monkeypatch.setattr(client, "_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        model = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/models/m"
        with pytest.raises(UserError, match="does not answer; start.* timed o"):
            client.signature_of(model, "encode")
    with pytest.raises(UserError, match="does not answer; start the server"):
        client.signature_of(model, "encode")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, "<html>hello", "is no server of models; it answers: <html>hello"),
        (200, '{"metadata": {}}', 'it answers: {"metadata": {}}'),
        (200, "[]", "it answers: []"),
        (502, "<html>\n bad\n", "it answers: <html> bad"),
        (503, "", "it answers: it does not say why."),
        (400, "x " * 9000, "x x x [...]"),
        (400, '{"error": "no\\nnews"}', "answers HTTP 400: no news"),
        (
            404,
            '{"error": "none"}',
            "has no such model; give one that it serves",
        ),
    ],
)
def test_a_server_that_is_another(status, body, message):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1/models/m"
        try:
            with pytest.raises(UserError, match=re.escape(message)):
                client.signature_of(url, "encode")
        finally:
            server.shutdown()
            thread.join()


def test_pictures_without_pillow(monkeypatch, capsys):
    monkeypatch.setattr(client, "find_spec", lambda name: None)
    assert run("--model", "grey", "digit.png") == 2
    assert "run pip install pillow." in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_loads_no_tfcaps(networks, url, work):
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: assert not {'keras', 'tensorflow', 'tfcaps'} & {*sys.modules}"
    )
    done = subprocess.run(
        [
            sys.executable, "-c", code, client.__file__,
            "--model", "grey", "digit.png", "--url", url,
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.stdout == line(networks["grey", 3]) + "\n"
    assert done.stderr == ""
