"""Wrong input of every kind: one clear sentence, status 2, nothing changed."""

import json
import shutil

import pytest
from PIL import Image

from cli import run_command
from export import check as export_check
from export import run as export_run
from tests import bad_files
from tests.commands import told_by
from tests.training.test_run import tiny_data
from training import explain, run, tables

COMMANDS = {
    "run": run.main,
    "explain": explain.main,
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
    Image.new("L", (8, 8)).save(folder / "own.png")
    return folder


@pytest.fixture
def work(good, tmp_path, monkeypatch):
    """A copy of all that is good, in which the commands run."""
    folder = tmp_path / "work"
    shutil.copytree(good, folder)
    monkeypatch.chdir(folder)
    return folder


def snapshot(folder):
    """Returns every file with a hash, also what is beside the folder."""
    return {
        str(path.relative_to(folder.parent)): path.is_file()
        and hash(path.read_bytes())
        for path in folder.parent.rglob("*")
    }


def assert_refused(folder, line, message):
    name, *arguments = line.split()
    before = snapshot(folder)
    error = told_by(COMMANDS[name], *arguments, status=2)
    sentences = [x for x in error.splitlines() if ": error: " in x]
    assert len(sentences) == 1 and error.splitlines()[-1] == sentences[0]
    assert message in sentences[0]
    assert len(sentences[0]) < 1000
    assert snapshot(folder) == before


FLAGS = [
    ("run --epoch 1", "unrecognized arguments: --epoch 1"),
    ("run --rem --decay nan", "'nan' is not a number from 0.0 to 1.0"),
    ("run --strategy tpu", "invalid choice: 'tpu'"),
    ("run --dataset digits --routing magic", "must be a number of iterations,"),
    ("run --dataset digits --routing 0", "does not fit: `iterations` must"),
    (
        "run --dataset digits --model deepcaps --routing em",
        "deepcaps does not fit: ConvCaps3D takes a routing whose only",
    ),
    ("run --dataset tiny.npz --out done", "done exists and is not overwrit"),
    ("run --dataset tiny.npz --out own.png/x", "own.png/x cannot be made"),
    ("run --resume --out exported", "there is no run in exported"),
    ("run --levels 11,", "'' is not a whole number from 2 to 256, or lowest"),
    ("run --levels 11,11", "one for each of the 1 layers"),
    ("run --resize 2", "at least 10 rows and 10 columns"),
    ("run --dataset digits --resize 2", "sides must be from 3 to 40 pixels"),
    ("run --strategy data-parallel", "KERAS_BACKEND=jax"),
    ("run --dataset digits --backbone no.keras", "there is no backbone 'no.k"),
    ("run --dataset digits --backbone own.png", "own.png is not a readable Ke"),
    (
        "run --dataset digits --backbone done/model.keras --model deepcaps",
        "does not stand on a backbone; constellation_capsnet, body_plan_capsn",
    ),
    (
        "run --dataset digits --backbone done/model.keras --model dr_capsnet",
        "`backbone` must be a built model from images",
    ),
    ("run --pruning snip --no-baseline", "--no-baseline, --pruning need --rem"),
    (
        "run --rem --coupling-spread 1",
        "--coupling-spread would change nothing: --model constellation_caps",
    ),
    ("run --shift 8 --dataset digits", "--shift 8 can move images of 8x8 "),
    ("run --zoom 1.25,0.8", "is not two factors, the lower one first"),
    ("run --zoom 0,1", "'0' is not a number from 0.1 to 10.0"),
    (
        "run --dataset digits --rem --pruning structured "
        "--final-sparsity 0.999",
        "--final-sparsity 0.999 does not fit: At most",
    ),
    ("run --dataset affnist --data-dir .", "test.mat"),
    ("run --resume --out done --epochs 9", "has epochs=2, not 9"),
    ("explain own.png", "required: --run"),
    ("explain --run done nowhere.png", "nowhere.png"),
    ("explain --run done own.png --out own.png/x", "give another --out"),
    ("tables --to s.jsonl done own.png", "own.png"),
    ("export --run own.png --to s", "own.png is not a readable Keras model"),
    ("export --run done --to own.png", "--to own.png is not a folder"),
    ("export --run done --to s --model-name ../s", "must be a plain folder"),
    ("export --run done --to s --version 0", "from 1 to"),
    ("export --run done --to s --levels 1", "from 2 to 256"),
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
]


@pytest.mark.parametrize(("line", "message"), FLAGS, ids=lambda v: v[:40])
def test_wrong_flags(good, monkeypatch, line, message):
    monkeypatch.chdir(good)
    assert_refused(good, line, message)


@pytest.mark.parametrize(
    "spoil", [*bad_files.EVERY, bad_files.huge_array], ids=lambda f: f.__name__
)
def test_wrong_npz_files(work, spoil):
    spoil(work / "tiny.npz")
    assert_refused(work, "run --dataset tiny.npz", "tiny")


# File -> commands that read it.
FILES = {
    "done/config.json": (
        "run --resume --out done",
        "explain own.png --run done",
    ),
    "done/data.json": (
        "explain own.png --run done",
        "export --to s --run done",
    ),
    "done/model.keras": (
        "run --resume --out done",
        "explain own.png --run done",
        "export --to s --run done",
    ),
    "done/rem.json": ("tables --to s.jsonl done",),
    "exported/manifest.json": ("check exported",),
    "exported/saved_model.pb": ("check exported",),
}
# A missing model is trained, and classes need no names.
ALLOWED = ("done/model.keras", "run"), ("done/data.json", "export")


@pytest.mark.parametrize("spoil", bad_files.EVERY, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line) for name, lines in FILES.items() for line in lines],
)
def test_wrong_files(work, name, line, spoil):
    if (name, line.split()[0]) in ALLOWED and spoil is bad_files.missing:
        pytest.skip("it need not be there")
    if (
        spoil is bad_files.flipped
        and name.startswith("done/")
        and "json" in name
    ):
        pytest.skip("a changed letter may still be JSON")
    spoil(work / name)
    assert_refused(work, line, name.partition("/")[0])


@pytest.mark.parametrize("name", ["../own.png", "/etc/hostname", "a/../../x"])
def test_a_manifest_that_points_outside(work, name):
    path = work / "exported/manifest.json"
    about = json.loads(path.read_text("utf-8"))
    about["files"][name] = "0" * 64
    path.write_text(json.dumps(about))
    assert_refused(work, "check exported", "is missing")


@pytest.mark.filterwarnings("ignore:Skipping invalid path:UserWarning")
def test_archives_write_nothing_outside(work):
    bad_files.outside(work / "done/model.keras")
    before = snapshot(work)
    arguments = ["--run", "done", "--to", "s"]
    export_run.main(arguments)
    new = snapshot(work).keys() - before.keys()
    assert all(path.split("/")[:2] == ["work", "s"] for path in new)
