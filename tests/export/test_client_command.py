"""The command of the example client: what it prints and writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)
from PIL import Image

from export import client
from export.clients import pictures, server
from tests.client_runs import CLASSES, expected, line, run, write_images
from tests.tolerance import SUMS
from training import images

pytestmark = pytest.mark.usefixtures("no_proxy")


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
    write_images()
    return tmp_path


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (1, 8, 8), (1, 8, 8, 1)])
def test_one_image_in_an_array_file(networks, flags, work, capfd, shape):
    pixels = np.load("batch.npy")[0]
    np.save("one.npy", pixels.reshape(shape))
    assert run("--model", "bytes", *flags, "one.npy") == 0
    lengths = expected(networks["bytes", 1], pixels[None])["lengths"][0]
    printed = capfd.readouterr()
    assert printed.out == line("one.npy", lengths, range(4)) + "\n"
    assert printed.err == ""


@pytest.mark.parametrize("model", ["grey", "bytes"])
def test_inverting_swaps_dark_and_bright(url, work, capfd, model):
    given = ("--model", model, "--url", url, "--json", "digit.png")
    assert run(*given) == 0
    np.save("swapped.npy", 255 - np.array(Image.open("digit.png")))
    assert run(*given[:-1], "--invert", "swapped.npy") == 0
    first, second = map(json.loads, capfd.readouterr().out.splitlines())
    np.testing.assert_allclose(
        first["outputs"]["lengths"], second["outputs"]["lengths"], atol=SUMS
    )


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


def test_classes_have_the_names_that_are_given(networks, url, work, capfd):
    given = ["--model", "grey", "--url", url, "--classes", ",".join(CLASSES)]
    assert run(*given, "digit.png") == 0
    lengths = expected(networks["grey", 3], np.load("batch.npy")[:1])
    wanted = line("digit.png", lengths["lengths"][0])
    assert capfd.readouterr().out == wanted + "\n"


def test_an_old_manifest_without_names_leaves_numbers(
    networks, url, work, capfd
):
    (work / "manifest.json").write_text('{"files": {}, "sha256": "0"}')
    given = ["--model", "grey", "--url", url, "--manifest", "manifest.json"]
    assert run(*given, "digit.png") == 0
    lengths = expected(networks["grey", 3], np.load("batch.npy")[:1])
    wanted = line("digit.png", lengths["lengths"][0], range(4))
    assert capfd.readouterr().out == wanted + "\n"


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


@pytest.mark.parametrize(
    ("couplings", "told"),
    [
        ([[0.2, 0.9, 0.6]], "1 0.90, 2 0.60, 0 0.20"),
        ([np.linspace(0.6, 0.9, 7)], "6 0.90, 5 0.85, 4 0.80, 3 0.75, 2 0.70"),
    ],
)
def test_children_coupled_with_the_class_are_told(couplings, told):
    outputs = {
        "lengths": np.array([[0.8, 0.1]]),
        "couplings": np.array(couplings),
    }
    text = client._describe(outputs, 0, None)
    assert text == f"0 0.800, 1 0.100; most coupled children {told}"


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

    for module in (pictures, server):
        monkeypatch.setattr(module, "as_input", note)
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
    # What is transparent becomes white.
    pixels = images.read(Path("picture.png"), {1: "L", 3: "RGB"}[channels])
    pixels = images.resize(pixels.reshape(1, 20, 30, -1), (rows, columns))
    lengths = expected(model, pixels)["lengths"][0]
    printed = capfd.readouterr()
    assert printed.out == line("picture.png", lengths, range(4)) + "\n"
    assert printed.err == (
        "client.py: picture.png is resized from 30x20 to "
        f"{columns}x{rows} pixels\n"
    )


@pytest.mark.parametrize("shape", [(8, 8, 1), (6, 9, 3), (40, 50, 3)])
def test_pictures_become_what_they_are_in_training(work, rng, shape, capfd):
    picture = Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8))
    turned = Image.Exif()
    turned[274] = 6  # the camera was held upright
    picture.save("turned.png", exif=turned)
    signature = client.Signature("s", shape, "uint8", {})
    sent = client.read_images(Path("turned.png"), signature)
    wanted = images.read(Path("turned.png"), {1: "L", 3: "RGB"}[shape[2]])
    assert wanted.shape[:2] == (30, 20)
    wanted = images.resize(wanted.reshape(1, 30, 20, -1), shape[:2])
    # Sums in another order may be rounded another way.
    difference = np.abs(sent.astype(int) - wanted)
    assert difference.max() <= 1 and difference.mean() < 0.01
    assert "resized from 20x30 to" in capfd.readouterr().err


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
        "client.py: turned.png is resized from 6x9 to 9x6 pixels\n"
    )


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


@pytest.mark.slow
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
