"""Runs exported models in an interpreter without TensorFlow's Python."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cli import UserError
from export.saved_model import Signature

_SCRIPT = Path(__file__).with_name("c_library.py")

Arrays = dict[str, NDArray[Any]]


class Request(NamedTuple):
    """What to run.

    Attributes:
        folder: An exported folder.
        signature: What to ask of it.
        inputs: An array for each input.
    """

    folder: Path
    signature: Signature
    inputs: Arrays


class Answer(NamedTuple):
    """What came back.

    Attributes:
        outputs: An array for each output.
        seconds: How long each round took.
        held: The most bytes that the process of all requests held, `None` where
            the system does not tell.
    """

    outputs: Arrays
    seconds: list[float]
    held: int | None


class LoadError(UserError):
    """TensorFlow cannot load a model."""


class RunError(UserError):
    """TensorFlow cannot run a model.

    Args:
        message: What happened.
        request: Number of the request that failed, from 0, or `None` if that
            is not known.
    """

    def __init__(self, message: str, request: int | None = None):
        super().__init__(message)
        self.request = request


def run(requests: Sequence[Request], rounds: int = 1) -> list[Answer]:
    """Runs requests by TensorFlow's C library, with XLA switched off.

    Args:
        requests: At least one.
        rounds: How often all of them are run, in turn. Defaults to `1`.

    Returns:
        An answer for each request.

    Raises:
        LoadError: If a model cannot be loaded.
        RunError: If it cannot be run.
    """
    import tensorflow as tf

    folders = list(dict.fromkeys(request.folder for request in requests))
    with tempfile.TemporaryDirectory() as work:
        runs = [
            {
                "model": folders.index(request.folder),
                "inputs": _write_inputs(request, Path(work), number),
                "outputs": [
                    {"name": tensor, "file": f"{work}/{number}-out-{name}"}
                    for name, tensor in request.signature.output_tensors.items()
                ],
            }
            for number, request in enumerate(requests)
        ]
        job = {
            "libraries": tf.sysconfig.get_lib(),
            "models": [str(folder) for folder in folders],
            "rounds": rounds,
            "runs": runs,
        }
        reply = _call(job)
        return [
            _answer(request, given, told, reply["held"])
            for request, given, told in zip(
                requests, runs, reply["runs"], strict=True
            )
        ]


def _write_inputs(
    request: Request, work: Path, number: int
) -> list[dict[str, Any]]:
    import tensorflow as tf

    written = []
    for name, array in request.inputs.items():
        path = work / f"{number}-in-{name}"
        path.write_bytes(np.ascontiguousarray(array).tobytes())
        written.append(
            {
                "name": request.signature.input_tensors.get(name, name),
                "dtype": tf.as_dtype(array.dtype).as_datatype_enum,
                "shape": array.shape,
                "file": str(path),
            }
        )
    return written


def _call(job: dict[str, Any]) -> Any:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(_SCRIPT)],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env={"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    folders = ", ".join(job["models"])
    if done.returncode:
        *_, last = done.stderr.strip().splitlines() or ["nothing was printed"]
        raise RunError(
            f"run: {folders}: TensorFlow's C library ended with status "
            f"{done.returncode}: {last}"
        )
    reply = json.loads(done.stdout)
    if "error" not in reply:
        return reply
    if reply["run"] is None:
        raise LoadError(f"load: {folders}: {reply['error']}")
    raise RunError(f"run: {folders}: {reply['error']}", reply["run"])


def _answer(
    request: Request,
    given: dict[str, Any],
    told: dict[str, Any],
    held: int | None,
) -> Answer:
    import tensorflow as tf

    arrays = {}
    names = request.signature.output_tensors
    for name, output, form in zip(
        names, given["outputs"], told["outputs"], strict=True
    ):
        dtype = tf.as_dtype(form["dtype"]).as_numpy_dtype
        content = Path(output["file"]).read_bytes()
        arrays[name] = np.frombuffer(content, dtype).reshape(form["shape"])
    return Answer(arrays, told["seconds"], held)
