"""The example client, against a server that answers as TensorFlow Serving."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from export import client
from tests import served_models, serving
from tests.networks import tiny_capsnet
from tfcaps import models
from tfcaps.rem import capsule_outputs

CLASSES = ["cat", "dog", "owl", "yak"]


def _randomise(model, seed):
    """Gives each class another length, which untrained networks do not."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    return model


class _Odd(tf.Module):
    """Signatures that are not for images of one size."""

    @tf.function(input_signature=[tf.TensorSpec((None, 2), name="x")])
    def points(self, x):
        return {"y": x + 1}

    @tf.function(
        input_signature=[tf.TensorSpec((None, None, None, 1), name="images")]
    )
    def any_size(self, images):
        return {"y": images + 1}

    @tf.function(
        input_signature=[tf.TensorSpec((None, 8, 8, 1), "int64", name="images")]
    )
    def integers(self, images):
        return {"y": images + 1}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="module")
def networks():
    """Networks by the name and version under which they are served."""
    colour = models.dr_capsnet(
        (6, 9, 3),
        4,
        filters=4,
        kernel_size=3,
        primary_types=2,
        primary_dim=4,
        primary_kernel_size=3,
        class_dim=4,
    )
    return {
        ("grey", 1): _randomise(tiny_capsnet(4), 1),
        ("grey", 3): _randomise(tiny_capsnet(4), 3),
        ("bytes", 1): _randomise(tiny_capsnet(4), 2),
        ("colour", 1): _randomise(colour, 4),
    }


@pytest.fixture(scope="module")
def base(networks, tmp_path_factory):
    """The folder of all served models."""
    base = tmp_path_factory.mktemp("served")
    for (name, version), model in networks.items():
        (base / name).mkdir(exist_ok=True)
        dtype = "uint8" if name == "bytes" else "float32"
        folder = base / name / str(version)
        served_models.write_saved_model(model, folder, dtype)
    (base / "grey" / ".publish-9").mkdir()
    odd = _Odd()
    signatures = {
        "points": odd.points,
        "any_size": odd.any_size,
        "integers": odd.integers,
    }
    tf.saved_model.save(odd, str(base / "odd" / "1"), signatures)
    return base


@pytest.fixture(scope="module")
def url(base):
    with serving.serve_rest(base) as url:
        yield url


@pytest.fixture(scope="module")
def address(base):
    with serving.serve_grpc(base) as address:
        yield address


@pytest.fixture(params=["rest", "grpc"])
def predict(request):
    """Asks either way."""
    where = {"rest": "url", "grpc": "address"}[request.param]
    server = request.getfixturevalue(where)
    function = getattr(client, f"predict_{request.param}")
    return lambda *args, **options: function(server, *args, **options)


@pytest.fixture(params=["rest", "grpc"])
def flags(request):
    """The flags to ask either way."""
    if request.param == "grpc":
        return ["--grpc", request.getfixturevalue("address")]
    return ["--url", request.getfixturevalue("url")]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with files of images."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 8, 8, 1), np.uint8)
    np.save("batch.npy", pixels)
    Image.fromarray(pixels[0, ..., 0]).save("digit.png")
    return tmp_path


def run(*arguments):
    """Returns the exit status of the command."""
    try:
        return client.main([str(argument) for argument in arguments])
    except SystemExit as stopped:
        return stopped.code


def expected(model, pixels):
    """Returns what a network answers to uint8 images."""
    outputs = capsule_outputs(model)(pixels.astype("float32") / 255)
    return {key: np.asarray(value) for key, value in outputs.items()}


def line(name, lengths, names=CLASSES):
    """Returns the printed line for an image."""
    best = np.argsort(-lengths)[:3]
    return f"{name}: " + ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in best)


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


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (1, 8, 8), (1, 8, 8, 1)])
def test_one_image_in_an_array_file(networks, flags, work, capfd, shape):
    pixels = np.load("batch.npy")[0]
    np.save("one.npy", pixels.reshape(shape))
    assert run("--model", "bytes", *flags, "one.npy") == 0
    lengths = expected(networks["bytes", 1], pixels[None])["lengths"][0]
    printed = capfd.readouterr()
    assert printed.out == line("one.npy", lengths, range(4)) + "\n"
    assert printed.err == ""


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 8, 8, 1)])
def test_a_batch_and_an_image_file(networks, flags, work, capfd, shape):
    pixels = np.load("batch.npy")
    np.save("many.npy", (pixels / 255).reshape(shape))
    assert run("--model", "grey", *flags, "digit.png", "many.npy") == 0
    lengths = expected(networks["grey", 3], pixels)["lengths"]
    names = ["digit.png", "many.npy[0]", "many.npy[1]", "many.npy[2]"]
    lines = capfd.readouterr().out.splitlines()
    for name, index, printed in zip(names, [0, 0, 1, 2], lines, strict=True):
        assert printed == line(name, lengths[index], range(4))


def test_classes_have_the_names_of_the_manifest(networks, flags, work, capfd):
    (work / "manifest.json").write_text(json.dumps({"classes": CLASSES}))
    pixels = np.load("batch.npy")[:1]
    more = ["--manifest", "manifest.json", "--version", 1, "digit.png"]
    assert run("--model", "grey", *flags, *more) == 0
    lengths = expected(networks["grey", 1], pixels)["lengths"][0]
    assert capfd.readouterr().out == line("digit.png", lengths) + "\n"
    (work / "manifest.json").write_text('{"classes": null}')
    assert run("--model", "grey", *flags, *more) == 0
    printed = capfd.readouterr().out
    assert printed == line("digit.png", lengths, range(4)) + "\n"


def test_explain_tells_where_the_saliency_peaks(flags, work, capfd):
    pixels = np.load("batch.npy") // 2
    pixels[:, 5, 2] = 255
    np.save("batch.npy", pixels)
    arguments = ["--model", "bytes", "--signature", "explain", "batch.npy"]
    assert run(*flags, *arguments) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 3
    for text in lines:
        assert text.endswith("; saliency peaks at row 5, column 2")


def test_encode_tells_the_shape_of_the_poses(flags, work, capfd):
    arguments = ["--model", "grey", "--signature", "encode", "digit.png"]
    assert run(*flags, *arguments) == 0
    assert capfd.readouterr().out == "digit.png: poses (4, 4)\n"


@pytest.mark.parametrize("signature", ["serving_default", "encode"])
def test_json_and_out_hold_all_outputs(networks, flags, work, capfd, signature):
    arguments = ["--signature", signature, "--json", "--out", "answers.npz"]
    assert run("--model", "grey", *flags, *arguments, "batch.npy") == 0
    printed = json.loads(capfd.readouterr().out)
    saved = dict(np.load("answers.npz"))
    wanted = expected(networks["grey", 3], np.load("batch.npy"))
    wanted["classes"] = np.argmax(wanted["lengths"], axis=-1)
    keys = ["poses"] if signature == "encode" else sorted(saved)
    assert sorted(saved) == sorted(printed["outputs"]) == keys
    assert "poses" in keys and list(printed) == ["outputs"]
    for key in keys:
        np.testing.assert_allclose(saved[key], wanted[key], atol=1e-5)
        np.testing.assert_array_equal(printed["outputs"][key], saved[key])
    names = ["answers.npz", "batch.npy", "digit.png"]
    assert sorted(path.name for path in work.iterdir()) == names


def test_a_file_of_answers_is_replaced_whole_or_not(
    url, work, capfd, monkeypatch
):
    def fail(file, **outputs):
        Path(file).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    (work / "answers.npz").write_bytes(b"old")
    arguments = ["--model", "grey", "--url", url, "--out", "answers.npz"]
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", fail)
        assert run(*arguments, "digit.png") == 2
    assert capfd.readouterr().err == (
        "client.py: error: cannot write answers.npz: No space left on device.\n"
    )
    assert (work / "answers.npz").read_bytes() == b"old"
    names = ["answers.npz", "batch.npy", "digit.png"]
    assert sorted(path.name for path in work.iterdir()) == names
    assert run(*arguments, "digit.png") == 0
    assert sorted(np.load("answers.npz")) == ["classes", "lengths", "poses"]
    assert sorted(path.name for path in work.iterdir()) == names


def test_many_images_are_asked_for_in_batches(
    networks, flags, work, monkeypatch
):
    pixels = np.random.default_rng(2).integers(0, 256, (70, 8, 8, 1), "uint8")
    np.save("many.npy", pixels)
    sizes, as_input = [], client.as_input

    def note(images, signature):
        sizes.append(len(images))
        return as_input(images, signature)

    monkeypatch.setattr(client, "as_input", note)
    arguments = ["--model", "grey", "many.npy", "--out", "answers.npz"]
    assert run(*flags, *arguments) == 0
    assert sizes == [70, 32, 32, 6]  # read once, then sent
    wanted = expected(networks["grey", 3], pixels)
    for key, value in np.load("answers.npz").items():
        if key != "classes":
            np.testing.assert_allclose(value, wanted[key], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "mode"), [("grey", "RGB"), ("colour", "L"), ("colour", "RGBA")]
)
def test_pictures_are_resized_and_recoloured(
    networks, url, work, capfd, rng, name, mode
):
    model = networks[name, 3 if name == "grey" else 1]
    rows, columns, channels = model.input_shape[1:]
    depth = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    picture = Image.fromarray(rng.integers(0, 256, (20, 30, *depth), np.uint8))
    assert picture.mode == mode
    picture.save("picture.png")
    assert run("--model", name, "--url", url, "picture.png") == 0
    wanted = picture.convert({1: "L", 3: "RGB"}[channels])
    wanted = wanted.resize((columns, rows), Image.Resampling.BILINEAR)
    pixels = np.asarray(wanted).reshape(1, rows, columns, channels)
    lengths = expected(model, pixels)["lengths"][0]
    printed = capfd.readouterr()
    assert printed.out == line("picture.png", lengths, range(4)) + "\n"
    assert printed.err == (
        "client.py: picture.png is resized from 20x30 to "
        f"{rows}x{columns} pixels\n"
    )


def test_pictures_of_the_right_size_are_sent_as_they_are(
    networks, url, work, capfd, rng
):
    pixels = rng.integers(0, 256, (1, 6, 9, 3), np.uint8)
    Image.fromarray(pixels[0]).save("right.png")
    Image.fromarray(pixels[0].swapaxes(0, 1)).save("turned.png")
    arguments = ["--model", "colour", "--url", url, "right.png", "turned.png"]
    assert run(*arguments) == 0
    lengths = expected(networks["colour", 1], pixels)["lengths"][0]
    printed = capfd.readouterr()
    assert printed.out.startswith(line("right.png", lengths, range(4)) + "\n")
    assert printed.err == (
        "client.py: turned.png is resized from 9x6 to 6x9 pixels\n"
    )


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
            "the manifest does not have 4 classes.",
        ),
        (
            ["--out", "missing/a.npz"],
            "cannot write missing/a.npz: No such file or directory.",
        ),
        (["--out", "."], "cannot write .: "),
        (["--timeout", "0"], "--timeout 0 must be above 0."),
        (["--timeout", "nan"], "--timeout nan must be above 0."),
        (["--timeout", "soon"], "argument --timeout: invalid float value"),
        (["--version", "new"], "argument --version: invalid int value: 'new'"),
        (["--model"], "argument --model: expected one argument"),
        (["--signatur", "encode"], "unrecognized arguments: --signatur encode"),
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


_LOADED = """
import json, runpy, sys
for sys.argv in json.loads(sys.argv[1]):
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stopped:
        print(stopped.code)
names = {name.partition(".")[0] for name in sys.modules}
print(*sorted(names & {"grpc", "keras", "tensorflow", "tfcaps"}))
"""


@pytest.mark.parametrize(
    ("way", "loaded", "error"),
    [
        ("url", "", "'' must begin with http://."),
        ("grpc", "grpc keras tensorflow", "answers UNKNOWN: Failed to create"),
    ],
)
def test_the_command_needs_no_tfcaps_and_is_quiet(
    networks, url, address, work, way, loaded, error
):
    command = [client.__file__, "--model", "grey", "digit.png", f"--{way}"]
    good, bad = [*command, url if way == "url" else address], [*command, ""]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    # tfmot, where another test imported it, tells TensorFlow to load no Keras.
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_USE_LEGACY_KERAS"):
        environment.pop(name, None)
    finished = subprocess.run(
        [sys.executable, "-c", _LOADED, json.dumps([good, bad])],
        capture_output=True,
        text=True,
        check=True,
        cwd=work,
        env=environment,
    )
    pixels = np.load("batch.npy")[:1]
    lengths = expected(networks["grey", 3], pixels)["lengths"][0]
    wanted = [line("digit.png", lengths, range(4)), "0", "2", loaded]
    assert finished.stdout.splitlines() == wanted
    assert finished.stderr.startswith("client.py: error: ")
    assert error in finished.stderr and finished.stderr.count("\n") == 1


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


def test_the_networks_have_lengths_to_tell_apart(networks, rng):
    for model in networks.values():
        images = rng.random((8, *model.input_shape[1:]), np.float32)
        lengths = np.asarray(capsule_outputs(model)(images)["lengths"])
        assert np.diff(np.sort(lengths), axis=-1).min() > 1e-4
        assert keras.ops.std(lengths) > 0.01
