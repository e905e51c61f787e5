"""Runs SavedModels by TensorFlow's C library alone, as a server would.

It needs the standard library and the two shared libraries of the tensorflow
package, neither TensorFlow's Python nor NumPy, and is meant for a bare
interpreter: `python -I -S export/c_library.py < job.json`. XLA is switched off,
as TensorFlow Serving does. `export/session.py` writes the job and reads what
comes back.
"""

import ctypes
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_POINTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p


class _Output(ctypes.Structure):
    """TF_Output."""

    _fields_ = [("operation", _POINTER), ("index", ctypes.c_int)]


class Library:
    """TensorFlow's C library.

    Args:
        folder: Where its shared libraries are.
    """

    def __init__(self, folder: str):
        for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
            self.c = ctypes.CDLL(str(Path(folder) / name), ctypes.RTLD_GLOBAL)
        self.c._ZN10tensorflow21DisableXlaCompilationEv()
        for name in (
            "TF_NewStatus TF_NewGraph TF_NewSessionOptions TF_AllocateTensor "
            "TF_LoadSessionFromSavedModel TF_GraphOperationByName TF_TensorData"
        ).split():
            getattr(self.c, name).restype = _POINTER
        self.c.TF_Message.restype = _TEXT
        self.c.TF_Dim.restype = ctypes.c_int64
        self.c.TF_TensorByteSize.restype = ctypes.c_size_t
        self.status = _POINTER(self.c.TF_NewStatus())

    def check(self) -> None:
        """Raises `RuntimeError` with TensorFlow's message if a call failed."""
        if self.c.TF_GetCode(self.status):
            raise RuntimeError(self.c.TF_Message(self.status).decode())

    def tensor(
        self, dtype: int, shape: Sequence[int], content: bytes
    ) -> ctypes.c_void_p:
        """Returns a new TF_Tensor of bytes."""
        dims = (ctypes.c_int64 * len(shape))(*shape)
        size = ctypes.c_size_t(len(content))
        tensor = _POINTER(
            self.c.TF_AllocateTensor(dtype, dims, len(shape), size)
        )
        ctypes.memmove(self.c.TF_TensorData(tensor), content, len(content))
        return tensor

    def read(self, tensor: ctypes.c_void_p) -> tuple[int, list[int], bytes]:
        """Returns type, shape and bytes of a TF_Tensor."""
        axes = self.c.TF_NumDims(tensor)
        shape = [self.c.TF_Dim(tensor, axis) for axis in range(axes)]
        size = self.c.TF_TensorByteSize(tensor)
        content = ctypes.string_at(self.c.TF_TensorData(tensor), size)
        return self.c.TF_TensorType(tensor), shape, content


class Model:
    """A loaded SavedModel."""

    def __init__(self, library: Library, folder: str):
        self.library = library
        self.graph = _POINTER(library.c.TF_NewGraph())
        tags = (_TEXT * 1)(b"serve")
        self.session = _POINTER(
            library.c.TF_LoadSessionFromSavedModel(
                _POINTER(library.c.TF_NewSessionOptions()),
                None,
                str(folder).encode(),
                tags,
                1,
                self.graph,
                None,
                library.status,
            )
        )
        library.check()

    def run(
        self, inputs: Mapping[str, ctypes.c_void_p], names: Sequence[str]
    ) -> list[ctypes.c_void_p]:
        """Returns the TF_Tensors of the named outputs.

        Args:
            inputs: TF_Tensor of each input, by the name in the graph.
            names: Names of outputs in the graph, such as `"call:0"`.
        """
        feeds = (_Output * len(inputs))(*map(self._output, inputs))
        values = (_POINTER * len(inputs))(*inputs.values())
        fetches = (_Output * len(names))(*map(self._output, names))
        fetched = (_POINTER * len(names))()
        self.library.c.TF_SessionRun(
            self.session,
            None,
            feeds,
            values,
            len(inputs),
            fetches,
            fetched,
            len(names),
            None,
            0,
            None,
            self.library.status,
        )
        self.library.check()
        return [_POINTER(tensor) for tensor in fetched]

    def _output(self, name: str) -> _Output:
        operation, _, index = name.partition(":")
        found = self.library.c.TF_GraphOperationByName(
            self.graph, operation.encode()
        )
        if not found:
            raise RuntimeError(f"the graph has no {operation!r}")
        return _Output(found, int(index or 0))


def main() -> None:
    """Reads a job from stdin and writes its answer to stdout.

    A job has `libraries`, `models` (folders), `rounds`, and `runs`, each with
    `model` (index), `inputs` (name, type, shape, file) and `outputs` (name,
    file). All runs are made once in each round. The answer has what each run
    returned, the seconds it took in each round, and the most bytes that the
    process `held`; or a message that says what failed, and `run`, the number of
    the run, or `None` if a model did not load.
    """
    job = json.load(sys.stdin)
    library = Library(job["libraries"])
    number = None
    try:
        models = [Model(library, folder) for folder in job["models"]]
        answers: list[dict[str, Any]] = [
            {"outputs": [], "seconds": []} for _ in job["runs"]
        ]
        for round_number in range(job["rounds"]):
            for number, run in enumerate(job["runs"]):
                _run(library, models, run, answers[number], round_number == 0)
    except RuntimeError as error:
        print(json.dumps({"run": number, "error": str(error)}))
        return
    print(json.dumps({"runs": answers, "held": _most_held()}))


def _most_held() -> int | None:
    """Returns the most bytes that this process held, where Linux tells."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return None
    held = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return next((1024 * int(kilobytes) for kilobytes in held), None)


def _run(
    library: Library,
    models: Sequence[Model],
    run: Mapping[str, Any],
    answer: dict[str, Any],
    keep: bool,
) -> None:
    inputs = {
        given["name"]: library.tensor(
            given["dtype"], given["shape"], Path(given["file"]).read_bytes()
        )
        for given in run["inputs"]
    }
    names = [output["name"] for output in run["outputs"]]
    start = time.perf_counter()
    tensors = models[run["model"]].run(inputs, names)
    answer["seconds"].append(time.perf_counter() - start)
    if keep:
        for tensor, output in zip(tensors, run["outputs"], strict=True):
            dtype, shape, content = library.read(tensor)
            Path(output["file"]).write_bytes(content)
            answer["outputs"].append({"dtype": dtype, "shape": shape})
    for tensor in (*tensors, *inputs.values()):
        library.c.TF_DeleteTensor(tensor)


if __name__ == "__main__":
    main()
