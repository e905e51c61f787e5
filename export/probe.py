"""Builds and runs `probe.cc`, which loads models as the server does."""

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cli import UserError
from export.session import Arrays, Request

_SOURCE = Path(__file__).with_name("probe.cc")
_COMPILER = "g++"


def is_buildable() -> bool:
    """Tells whether there is a compiler."""
    return shutil.which(_COMPILER) is not None


def run(requests: Sequence[Request]) -> list[Arrays]:
    """Runs requests by the C++ program.

    Returns:
        For each request an array for each output.

    Raises:
        UserError: If it cannot be built, or a request fails.
    """
    program = _build()
    return [_run(program, request) for request in requests]


@functools.cache
def _build() -> Path:
    """Returns the program, which is built once in a process."""
    import tensorflow as tf

    if not is_buildable():
        raise UserError(f"probe: it is built by {_COMPILER}, which is missing.")
    if not Path(tf.sysconfig.get_include()).is_dir():
        raise UserError(
            "probe: it is built with TensorFlow's headers, which `make rem` "
            "leaves out; run: make .venv/installed-dev"
        )
    libraries = tf.sysconfig.get_lib()
    work = tempfile.TemporaryDirectory()
    # Removed with the last reference, when the interpreter ends.
    _build.work = work  # type: ignore[attr-defined]
    program = Path(work.name) / "probe"
    done = subprocess.run(
        [
            *(_COMPILER, "-O1", "-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=1"),
            str(_SOURCE),
            *("-isystem", tf.sysconfig.get_include(), f"-L{libraries}"),
            *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
            *(f"-Wl,-rpath,{libraries}", "-o", str(program)),
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        first, *_ = done.stderr.strip().splitlines()
        raise UserError(f"probe: {_COMPILER} failed: {first}")
    return program


def _run(program: Path, request: Request) -> Arrays:
    import tensorflow as tf

    images = request.inputs["images"]
    signature = request.signature.name
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "images"
        path.write_bytes(np.ascontiguousarray(images).tobytes())
        done = subprocess.run(
            [
                str(program),
                str(request.folder),
                signature,
                str(tf.as_dtype(images.dtype).as_datatype_enum),
                ",".join(map(str, images.shape)),
                str(path),
                work,
            ],
            capture_output=True,
            text=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        if done.returncode:
            *_, last = done.stderr.strip().splitlines() or ["no message"]
            raise UserError(f"probe: {request.folder}: {last}")
        arrays = {}
        for form in Path(work).glob("*.txt"):
            dtype, *shape = map(int, form.read_text("ascii").split())
            content = form.with_suffix(".bin").read_bytes()
            array = np.frombuffer(content, tf.as_dtype(dtype).as_numpy_dtype)
            arrays[form.stem] = array.reshape(shape)
        return arrays
