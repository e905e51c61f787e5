"""Wrong input of every kind: one clear sentence, status 2, nothing changed."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from cli import run_command
from experiments import run as experiments
from export import check as export_check
from export import run as export_run
from tests import bad_files
from tests.commands import status_of
from tests.training.test_run import tiny_data
from training import explain, run, tables

COMMANDS = {
    "run": run.main,
    "explain": explain.main,
    "experiments": experiments.main,
    "tables": lambda argv: run_command(tables.make_parser(), tables.main, argv),
    "export": export_run.main,
    "check": export_check.main,
}


# The run that the cases start from takes half a minute.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def good(finished, tmp_path_factory):
    """A finished run, exported, data and pictures, which the cases copy."""
    folder = tmp_path_factory.mktemp("good") / "work"
    folder.mkdir()
    tiny_data(folder / "tiny.npz")
    shutil.copytree(finished, folder / "done")
    served = next((folder / "done/served").glob("*/1"))
    shutil.copytree(served, folder / "exported")
    shutil.rmtree(folder / "done/served")
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (folder / "photos" / name).mkdir(parents=True)
        for k in range(3):
            pixels = rng.integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(folder / f"photos/{name}/{k}.png")
    shutil.copy(folder / "photos/a/0.png", folder / "own.png")
    return folder


@pytest.fixture
def work(good, tmp_path, monkeypatch):
    """A copy of all that is good, in which the commands run."""
    folder = tmp_path / "work"
    shutil.copytree(good, folder)
    monkeypatch.chdir(folder)
    return folder


def snapshot(folder):
    """Returns every file with a digest, also what is beside the folder."""
    return {
        str(path.relative_to(folder.parent)): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        if path.is_file()
        else ""
        for path in folder.parent.rglob("*")
    }


def assert_refused(capsys, folder, line, message):
    name, *arguments = line.split()
    before = snapshot(folder)
    capsys.readouterr()
    status = status_of(COMMANDS[name], *arguments)
    error = capsys.readouterr().err
    sentences = [x for x in error.splitlines() if ": error: " in x]
    assert status == 2, error
    assert len(sentences) == 1 and error.splitlines()[-1] == sentences[0]
    assert message in sentences[0]
    assert len(sentences[0]) < 1000
    assert snapshot(folder) == before


FLAGS = [
    ("run --no-such-flag", "unrecognized arguments: --no-such-flag"),
    ("run --epoch 1", "unrecognized arguments: --epoch 1"),
    ("run --epochs two", "'two' is not a whole number at least 1"),
    ("run --rem --decay nan", "'nan' is not a number from 0.0 to 1.0"),
    ("run --strategy tpu", "invalid choice: 'tpu'"),
    ("run --model resnet", "unknown model 'resnet'; the models are"),
    ("run --dataset digits --routing magic", "must be a number of iterations,"),
    ("run --dataset digits --routing 0", "does not fit: `iterations` must"),
    (
        "run --dataset digits --model deepcaps --routing em",
        "deepcaps does not fit: ConvCaps3D takes a routing whose only",
    ),
    ("run --dataset no_such_set", "unknown data set 'no_such_set'"),
    ("run --dataset missing.npz", "there is no file missing.npz"),
    ("run --data-dir missing", "--data-dir 'missing' is not a folder"),
    ("run --dataset tiny.npz --out done", "done exists and is not overwrit"),
    ("run --dataset tiny.npz --out own.png/x", "own.png/x cannot be made"),
    ("run --resume", "--resume needs --out"),
    ("run --resume --out photos", "there is no run in photos"),
    ("run --levels 11,", "'' is not a whole number from 2 to 256"),
    ("run --levels 11,11", "one for each of the 1 layers"),
    ("run --resize 2", "at least 10 rows and 10 columns"),
    ("run --dataset digits --resize 2", "sides must be from 3 to 40 pixels"),
    ("run --strategy data-parallel", "KERAS_BACKEND=jax"),
    ("run --dataset digits --model em_capsnet", "em_capsnet does not fit"),
    ("run --dataset digits --backbone no.keras", "there is no backbone 'no.k"),
    ("run --dataset digits --backbone own.png", "own.png is not a readable Ke"),
    (
        "run --dataset digits --backbone done/model.keras --model deepcaps",
        "does not stand on a backbone; constellation_capsnet, parts_capsnet, ",
    ),
    (
        "run --dataset digits --backbone done/model.keras --model dr_capsnet",
        "`backbone` must be a built model from images",
    ),
    ("run --decay 0.1", "--decay need --rem, as only REM uses them"),
    ("run --pruning snip --no-baseline", "--no-baseline, --pruning need --rem"),
    ("run --shift 8 --dataset digits", "--shift 8 can move images of 8x8 "),
    ("run --zoom 0.8", "'0.8' is not two factors, the lower one first"),
    ("run --zoom 1.25,0.8", "is not two factors, the lower one first"),
    ("run --zoom 0,1", "'0' is not a number from 0.1 to 10.0"),
    (
        "run --dataset digits --rem --pruning structured "
        "--final-sparsity 0.999",
        "--final-sparsity 0.999 does not fit: At most",
    ),
    ("run --dataset own.png", "neither a folder nor an .npz file"),
    ("run --dataset affnist --data-dir .", "test.mat"),
    ("run --dataset smallnorb --data-dir .", "small"),
    ("run --dataset tiny_imagenet --data-dir .", "tiny"),
    ("run --dataset mnist --data-dir .", "mnist"),
    ("run --resume --out own.png", "own.png"),
    ("run --resume --out done --epochs 9", "has epochs=2, not 9"),
    ("explain --run done", "required: PICTURE"),
    ("explain own.png", "required: --run"),
    ("explain --run nowhere own.png", "there is no run in nowhere"),
    ("explain --run done nowhere.png", "nowhere.png"),
    ("explain --run done own.png --out own.png", "own.png"),
    ("experiments", "give one of: an experiment, --tables"),
    ("experiments table_4", "invalid choice: 'table_4'"),
    ("experiments table_9 --only nothing*", "has no run 'nothing*'"),
    ("experiments table_9 --seeds -1", "is not a whole number from 0"),
    ("experiments table_9 --data-dir nowhere", "is not a folder"),
    ("experiments --tables done", "no folder of --tables has an exp"),
    ("tables --to s.jsonl nowhere", "nowhere"),
    ("tables --to s.jsonl photos", "photos"),
    ("tables --to s.jsonl done own.png", "own.png"),
    ("export --run done", "required: --to"),
    ("export --run nowhere --to s", "nowhere is neither a run folder"),
    ("export --run photos --to s", "photos is neither a run folder"),
    ("export --run own.png --to s", "own.png is not a readable Keras model"),
    ("export --run done --to own.png", "--to own.png is not a folder"),
    ("export --run done --to s --model-name ../s", "must be a plain folder"),
    ("export --run done --to s --model-name .s", "must be a plain folder"),
    ("export --run done --to s --version 0", "from 1 to"),
    ("export --run done --to s --levels 1", "from 2 to 256"),
    ("export --run done --to s --images int8", "invalid choice: 'int8'"),
    ("export --run done --to s --format coreml", "invalid choice: 'coreml'"),
    ("export --run done --to s --int8 own.png", "--int8 needs --format litert"),
    (
        "export --run done --to s --format onnx --int8 no.npz",
        "there is no file no.npz",
    ),
    (
        "export --run done --to s --format onnx --int8 own.png",
        "own.png must be an .npz file",
    ),
    ("check nowhere", "nowhere is not a folder"),
    ("check done", "done has no manifest.json"),
    ("check own.png", "own.png is not a folder"),
]


@pytest.mark.parametrize(("line", "message"), FLAGS, ids=lambda v: v[:40])
def test_wrong_flags(good, monkeypatch, capsys, line, message):
    monkeypatch.chdir(good)
    assert_refused(capsys, good, line, message)


@pytest.mark.parametrize(
    "spoil", [*bad_files.EVERY, bad_files.huge_array], ids=lambda f: f.__name__
)
def test_wrong_npz_files(work, capsys, spoil):
    spoil(work / "tiny.npz")
    assert_refused(capsys, work, "run --dataset tiny.npz", "tiny")


# File of a run -> commands that read it.
OF_A_RUN = {
    "config.json": ("run --resume --out", "explain own.png --run"),
    "data.json": ("explain own.png --run", "export --to s --run"),
    "model.keras": (
        "run --resume --out",
        "explain own.png --run",
        "export --to s --run",
    ),
    "rem.json": ("tables --to s.jsonl",),
}


@pytest.mark.parametrize("spoil", bad_files.EVERY, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line) for name, lines in OF_A_RUN.items() for line in lines],
)
def test_wrong_files_of_a_run(work, capsys, name, line, spoil):
    path = work / "done" / name
    if (name, spoil) == ("model.keras", bad_files.missing) and "run" in line:
        pytest.skip("a missing model is trained")
    if (name, spoil) == ("data.json", bad_files.missing) and "export" in line:
        pytest.skip("classes need no names")
    if path.suffix == ".json" and spoil is bad_files.flipped:
        pytest.skip("a changed letter may still be JSON")
    spoil(path)
    assert_refused(capsys, work, f"{line} done", "done")


@pytest.mark.parametrize("spoil", bad_files.EVERY, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "name",
    [
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "manifest.json",
        "assets.extra/reference.npz",
    ],
)
def test_wrong_exported_files(work, capsys, name, spoil):
    spoil(work / "exported" / name)
    assert_refused(capsys, work, "check exported", "exported")


@pytest.mark.parametrize("name", ["../own.png", "/etc/hostname", "a/../../x"])
def test_a_manifest_that_points_outside(work, capsys, name):
    path = work / "exported/manifest.json"
    about = json.loads(path.read_text("utf-8"))
    about["files"][name] = "0" * 64
    path.write_text(json.dumps(about))
    assert_refused(capsys, work, "check exported", "is missing")


@pytest.mark.filterwarnings("ignore:Skipping invalid path:UserWarning")
def test_archives_write_nothing_outside(work):
    bad_files.outside(work / "done/model.keras")
    before = snapshot(work)
    arguments = ["--run", "done", "--to", "s"]
    export_run.main(arguments)
    new = snapshot(work).keys() - before.keys()
    assert all(path.split("/")[:2] == ["work", "s"] for path in new)
