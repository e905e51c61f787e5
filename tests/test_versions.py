"""What the package does beside capsules: versions, files, memory."""

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest

import tfcaps
from tfcaps import files, memory, versions
from tfcaps.files import save_atomically, write_atomically

ROOT = Path(__file__).parents[1]


def test_the_range_is_that_of_the_package():
    first, end = versions.KERAS
    setup = (ROOT / "setup.cfg").read_text("utf-8")
    assert f"\n    keras>={first},<{end}\n" in setup


NO_BACKEND = 'The backend {0} is not installed. Run: pip install "tfcaps[{0}]"'


@pytest.mark.parametrize(
    ("keras", "said"),
    [
        *(
            (
                f"__version__ = {version!r}",
                "tfcaps works with keras >= 3.12, < 4. Found: keras "
                f'{version}. Run: pip install "keras>=3.12,<4"',
            )
            for version in ("2.15.0", "3.3.1", "4.0.0rc1")
        ),
        *(
            (f"import sys; sys.modules[{name!r}] = None; import {name}",
             NO_BACKEND.format(name))
            for name in ("jax", "tensorflow")
        ),
    ],
)  # fmt: skip
def test_another_keras_or_a_missing_backend_is_named(keras, said, tmp_path):
    (tmp_path / "keras.py").write_text(f"{keras}\n")
    done = subprocess.run(
        [sys.executable, "-c", "import tfcaps"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
    )
    assert done.returncode == 1
    assert done.stderr.endswith(f"\nImportError: {said}\n")


NOT_OURS = "tfcaps runs on TensorFlow or JAX, and Keras is set to {!r}"


@pytest.mark.parametrize(
    ("line", "name", "by_file"),
    [
        (("-c", "import tfcaps"), "openvino", False),
        (("-c", "import tfcaps"), "torch", True),
        (("training/run.py", "--rem"), "torch", False),
        (("training/run.py", "--rem"), "openvino", True),
    ],
)
def test_another_backend_is_named(line, name, by_file, tmp_path):
    (tmp_path / "keras.json").write_text(json.dumps({"backend": name}))
    env = {"KERAS_HOME": str(tmp_path)} if by_file else {"KERAS_BACKEND": name}
    done = subprocess.run(
        [sys.executable, *line],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **env},
    )
    assert done.returncode == (1 if line[0] == "-c" else 2)
    assert NOT_OURS.format(name) in done.stderr.splitlines()[-1]


def test_a_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with write_atomically(path, "w") as file:
        file.write("neu: ü")
        assert path.read_text() == "old"
    assert path.read_text("utf-8") == "neu: ü"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half way"):
        with write_atomically(path) as file:
            file.write(b"half")
            raise RuntimeError("half way")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("name", ["a.keras", "a.weights.h5"])
def test_a_full_disk_is_an_error_that_names_the_file(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"old")
    model = keras.Sequential([keras.Input((9,)), keras.layers.Dense(99)])
    save = model.save if name == "a.keras" else model.save_weights
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=re.escape(str(path))):
            save_atomically(save, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old" and len([*tmp_path.iterdir()]) == 1
    save_atomically(save, path)
    model.load_weights(path)


def test_a_name_that_is_no_utf_8_is_written_as_an_escape(tmp_path):
    with write_atomically(tmp_path / "a.txt", "w") as file:
        file.write(os.fsdecode(b"caf\xe9"))
    assert (tmp_path / "a.txt").read_bytes() == rb"caf\udce9"


def test_windows_opens_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "os", SimpleNamespace(name="nt"))
    files.flush(tmp_path)


GLIBC = sys.platform == "linux" and hasattr(
    ctypes.CDLL(None), "gnu_get_libc_version"
)
# Page faults of ten buffers of 80 MB, one after the other, in a new thread.
_FAULTS = """
import ctypes, resource, runpy, sys, threading
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
def use():
    for _ in range(10):
        buffer = ctypes.c_void_p(c.malloc(ctypes.c_size_t(80_000_000)))
        c.memset(buffer, 1, ctypes.c_size_t(80_000_000))
        c.free(buffer)
if len(sys.argv) > 1:
    assert runpy.run_path(sys.argv[1])["keep_memory"]()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not GLIBC, reason="it changes glibc's allocation alone")
def test_buffers_find_their_pages_again():
    assert tfcaps.keep_memory is memory.keep_memory
    faults = [
        int(subprocess.check_output([sys.executable, "-c", _FAULTS, *kept]))
        for kept in ([], [memory.__file__])
    ]
    pages = 10 * 80_000_000 // resource.getpagesize()
    assert faults[1] < 0.01 * pages < faults[0]
