"""Mistakes with the example client: one line that says what to do."""

import socket
import struct
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)
from PIL import Image

from tests.client_runs import run, write_images

pytestmark = pytest.mark.usefixtures("no_proxy")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with files of images."""
    monkeypatch.chdir(tmp_path)
    write_images()
    return tmp_path


def _chunk(name, content):
    """Returns a part of a PNG file."""
    check = zlib.crc32(name + content)
    return struct.pack(
        f">I4s{len(content)}sI", len(content), name, content, check
    )


def _write_files():
    """Writes files that are of no use into the working folder."""
    pixels = np.load("batch.npy")
    np.save("wide.npy", pixels[:, :, :5])
    np.save("none.npy", pixels[:0])
    np.save("integers.npy", pixels.astype("int64"))
    np.save("bright.npy", pixels / 200)
    np.save("dark.npy", pixels / 255 - 0.5)
    np.save("nan.npy", np.full((8, 8), np.nan))
    np.save("text.npy", np.full((8, 8), "text"))
    np.save("scalar.npy", 1.0)
    np.save("objects.npy", np.array([{}, None]), allow_pickle=True)
    whole = Path("batch.npy").read_bytes()
    Path("cut.npy").write_bytes(whole[:-9])
    Path("empty.npy").write_bytes(b"")
    Path("cut.png").write_bytes(Path("digit.png").read_bytes()[:60])
    whole = Path("digit.png").read_bytes()
    start = whole.index(b"IDAT") - 4
    chunk = _chunk(b"IDAT", b"x") + _chunk(b"none", b"").replace(b"n", b"\0")
    Path("chunk.png").write_bytes(whole[:start] + chunk)
    Path("text.png").write_text("hello")
    with open("huge.npy", "wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
        np.lib.format.write_array_header_1_0(file, header)
    deep = Image.fromarray(np.full((8, 8), 40000, np.uint16))
    assert deep.mode == "I;16"
    deep.save("deep.png")
    Path("text.json").write_text("hello")
    Path("list.json").write_text("[1]")
    Path("none.json").write_text("{}")
    Path("two.json").write_text('{"classes": ["a", "b"]}')


_SHAPE = "the model takes images (8, 8, 1) (rows, columns, channels)"
_PIXELS = "pixels must be uint8, 0 to 255, or float, all from 0 to 1; these are"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.png"], "missing.png cannot be used: [Errno 2]"),
        (["missing.npy"], "missing.npy cannot be used: [Errno 2]"),
        (["digit.png", "text.png"], "text.png cannot be used: cannot identify"),
        (["cut.png"], "cut.png cannot be used: "),
        (["chunk.png"], "chunk.png cannot be used: broken PNG file"),
        (["huge.npy"], "huge.npy cannot be used: Unable to allocate"),
        (["deep.png"], "save it with 8 bits per channel, not more."),
        (["wide.npy"], f"wide.npy cannot be used: {_SHAPE}"),
        (["none.npy"], "or a batch of them, not (0, 8, 8, 1)."),
        (["scalar.npy"], "or a batch of them, not ()."),
        (["integers.npy"], f"{_PIXELS} int64 and not so."),
        (["bright.npy"], f"{_PIXELS} float64 and not so."),
        (["dark.npy"], f"{_PIXELS} float64 and not so."),
        (["nan.npy"], f"{_PIXELS} float64 and not so."),
        (["text.npy"], f"{_PIXELS} <U4 and not so."),
        (["objects.npy"], "Object arrays cannot be loaded when allow_pickle"),
        (["cut.npy"], "cut.npy cannot be used: "),
        (["empty.npy"], "empty.npy cannot be used: "),
        (["--manifest", "missing.json"], "No such file or directory"),
        (["--manifest", "text.json"], "text.json is no manifest of an export."),
        (["--manifest", "list.json"], "list.json is no manifest of an export."),
        (["--manifest", "none.json"], "none.json is no manifest of an export."),
        (
            ["--manifest", "two.json"],
            "the model has 4 classes, not ['a', 'b'].",
        ),
        (
            ["--out", "missing/a.npz"],
            "cannot write missing/a.npz: No such file or directory.",
        ),
        (["--out", "."], "cannot write .: "),
        (["--timeout", "0"], "--timeout 0 must be above 0."),
        (["--timeout", "nan"], "--timeout nan must be above 0."),
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
            "signature 'points' does not take just images of known size",
        ),
        (
            ["--model", "odd", "--signature", "any_size"],
            "signature 'any_size' does not take just images of known size",
        ),
        (
            ["--model", "odd", "--signature", "integers"],
            "signature 'integers' does not take just images of known size",
        ),
        (
            ["--model", "odd"],
            "signature 'serving_default', but any_size, integers, points.",
        ),
        (
            ["--model", "gray"],
            "has no such model or version; give one that it serves: Servable "
            "not found for request: Latest(gray)",
        ),
        (
            ["--version", "2"],
            "give one that it serves: Servable not found for request: "
            "Specific(grey, 2)",
        ),
        (
            ["--version", "-1"],
            "answers HTTP 400: Malformed request: GET /v1/models/grey/versions",
        ),
        (["--model", "a/b:c"], "for request: Latest(a/b:c)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_status_2(
    url, work, capfd, arguments, message
):
    _write_files()
    files = [] if arguments[0][-4:] in (".npy", ".png") else ["digit.png"]
    before = sorted(work.iterdir())
    given = ["--model", "grey", "--url", url, *files, *arguments]
    _assert_is_told(given, message, capfd)
    assert sorted(work.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--timeout", "soon"], "argument --timeout: invalid float value"),
        (["--version", "new"], "argument --version: invalid int value: 'new'"),
        (["--model"], "argument --model: expected one argument"),
        (["--signatur", "encode"], "unrecognized arguments: --signatur encode"),
    ],
)
def test_wrong_flags_are_told(capfd, arguments, message):
    assert run("--model", "grey", "digit.png", *arguments) == 2
    printed = capfd.readouterr().err
    assert printed.startswith(f"client.py: error: {message}")
    assert printed.count("\n") == 1


def test_a_picture_of_too_many_pixels(url, work, capfd, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    given = ["--model", "grey", "--url", url, "digit.png"]
    message = "digit.png cannot be used: Image size (64 pixels) exceeds limit"
    _assert_is_told(given, message, capfd)


def _assert_is_told(arguments, message, capfd):
    assert run(*arguments) == 2
    printed = capfd.readouterr()
    assert message in printed.err
    assert printed.err.startswith("client.py: error: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "gray"], "not found for request: Latest(gray)"),
        (["--version", "2"], "not found for request: Specific(grey, 2)"),
        (
            ["--signature", "exlpain"],
            "'exlpain', but encode, explain, serving_default.",
        ),
        (
            ["--model", "odd", "--signature", "any_size"],
            "signature 'any_size' does not take just images of known size",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_by_grpc(address, work, capfd, arguments, message):
    given = ["--model", "grey", "--grpc", address, "digit.png", *arguments]
    _assert_is_told(given, message, capfd)


def test_a_server_that_does_not_run(work, capfd):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        where = f"127.0.0.1:{closed.getsockname()[1]}"
    message = f"{where} does not answer; start the server or give another"
    given = ["--model", "grey", "digit.png"]
    _assert_is_told([*given, "--url", f"http://{where}"], message, capfd)
    _assert_is_told([*given, "--grpc", where], message, capfd)


@pytest.fixture
def patience():
    """Ends the wait of a client that forgot its timeout."""
    socket.setdefaulttimeout(6)
    yield
    socket.setdefaulttimeout(None)


@pytest.mark.usefixtures("patience")
def test_a_server_that_does_not_answer_in_time(work, capfd):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        message = f"{where} took too long; give a longer timeout or fewer"
        given = ["--model", "grey", "--timeout", "0.2", "digit.png"]
        start = time.monotonic()
        _assert_is_told([*given, "--url", f"http://{where}"], message, capfd)
        _assert_is_told([*given, "--grpc", where], message, capfd)
        assert time.monotonic() - start < 5  # it is 10 by default


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, "<html>hello", "answers HTTP 200: <html>hello"),
        (200, '{"metadata": {}}', 'answers HTTP 200: {"metadata": {}}'),
        (200, "[]", "answers HTTP 200: []"),
        (502, "<html>\n bad\n", "answers HTTP 502: <html> bad"),
        (503, "", "answers HTTP 503: it does not say why."),
        (404, "", "has no such model or version; give one that it serves: it"),
        (400, "x " * 9000, "x x x [...]"),
        (400, '{"error": "no\\nnews"}', "answers HTTP 400: no news"),
    ],
)
def test_a_server_that_is_another(work, capfd, status, body, message):
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
        url = f"http://127.0.0.1:{server.server_port}/"
        try:
            given = ["--model", "grey", "--url", url, "digit.png"]
            _assert_is_told(given, message, capfd)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "package", ["grpc", "tensorflow_serving.apis.prediction_service_pb2_grpc"]
)
def test_grpc_without_its_package(work, capfd, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    given = ["--model", "grey", "--grpc", "127.0.0.1:1", "digit.png"]
    message = "for gRPC run pip install tensorflow-serving-api: import of"
    _assert_is_told(given, message, capfd)


def test_pictures_without_pillow(url, work, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert run("--model", "grey", "--url", url, "batch.npy") == 0
    assert run("--model", "grey", "--url", url, "digit.png") == 2
    assert "pictures need pillow (pip install pillow)" in capfd.readouterr().err
