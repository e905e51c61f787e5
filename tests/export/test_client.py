"""The example client, against a server that answers as TensorFlow Serving."""

import json
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)
from PIL import Image

from cli import UserError
from export import client
from tests.client_runs import CLASSES, expected, line, run, write_images
from tfcaps.rem import explanation
from training import images

pytestmark = pytest.mark.usefixtures("no_proxy")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with `digit.png`."""
    monkeypatch.chdir(tmp_path)
    write_images()
    return tmp_path


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
    network = networks[model, 3 if model == "grey" else 1]
    lengths = expected(network, digit())["lengths"][0]
    wanted = line("digit.png", lengths, range(4))
    assert asked(capsys, model, url) == wanted
    Image.fromarray(255 - digit()[0, ..., 0]).save("digit.png")
    assert asked(capsys, model, f"{url}/", "--invert") == wanted


def test_classes_have_names(networks, url, work, capsys):
    lengths = expected(networks["grey", 3], digit())["lengths"][0]
    manifest = work / "manifest.json"
    for classes, names in ((CLASSES, CLASSES), (None, range(4))):
        manifest.write_text(json.dumps({"classes": classes}))
        told = asked(capsys, "grey", url, "--manifest", str(manifest))
        assert told == line("digit.png", lengths, names)


def test_other_signatures_are_told(networks, url, work, capsys):
    told = asked(capsys, "bytes", url, "--signature", "explain")
    images = digit().astype("float32") / 255
    shown = explanation(networks["bytes", 1])(images)["saliency"][0]
    row, column = np.unravel_index(np.argmax(shown), shown.shape)
    assert told.endswith(f"; saliency peaks at row {row}, column {column}")
    told = asked(capsys, "bytes", url, "--signature", "encode")
    assert told == "digit.png: poses (4, 4)"


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
def test_mistakes_are_one_line_and_status_2(
    url, work, capsys, arguments, message
):
    Path("cut.png").write_bytes(Path("digit.png").read_bytes()[:60])
    Path("text.png").write_text("hello")
    given = ["--model", "grey", "--url", url, "digit.png", *arguments]
    assert run(*given) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.startswith("client.py: error: ")
    assert printed.err.count("\n") == 1


def test_a_server_that_does_not_run_or_is_another(monkeypatch):
    monkeypatch.setattr(client, "_TIMEOUT", 0.2)
    answers = {"silent": None, "another": b"HTTP/1.0 200 OK\r\n\r\n<html>"}
    for answer in answers.values():
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/models/m"

            def reply(server=server, answer=answer):
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

            thread = threading.Thread(target=reply)
            if answer:
                thread.start()
            with pytest.raises(UserError, match="not answer as a server of m"):
                client.predict(url, np.zeros((1, 8, 8, 1)), "encode")
            if answer:
                thread.join()
    with pytest.raises(UserError, match="not answer as a server of models; st"):
        client.predict(url, np.zeros((1, 8, 8, 1)), "encode")


def test_pictures_without_pillow(monkeypatch, capsys):
    monkeypatch.setattr(client, "find_spec", lambda name: None)
    assert run("--model", "grey", "digit.png") == 2
    assert "run pip install pillow." in capsys.readouterr().err
