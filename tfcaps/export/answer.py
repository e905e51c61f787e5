"""Answers images by the runtimes of exported models, in a process of its own.

`tfcaps/export/runtimes.py` runs this file. It needs NumPy and the runtimes, and
neither Keras nor TensorFlow's Python: a SavedModel is run by TensorFlow's C
library, as a server would, with XLA switched off.
"""

import ctypes
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]
# From inputs, and names of outputs, to these outputs.
Model = Callable[[Arrays, Sequence[str]], Arrays]

_POINTER = ctypes.c_void_p
# Numbers of TF_DataType.
_DTYPES = {1: "float32", 4: "uint8", 9: "int64"}


class _Output(ctypes.Structure):
    """TF_Output."""

    _fields_ = [("operation", _POINTER), ("index", ctypes.c_int)]


class _SavedModel:
    """A SavedModel in TensorFlow's C library; names are those of tensors.

    Args:
        path: File of the graph.
    """

    def __init__(self, path: str):
        package = importlib.util.find_spec("tensorflow")
        if package is None or not package.origin:
            raise ModuleNotFoundError("no TensorFlow", name="tensorflow")
        for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
            file = Path(package.origin).with_name(name)
            self.c = c = ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)
        c._ZN10tensorflow21DisableXlaCompilationEv()
        for name in (
            "TF_NewStatus TF_NewGraph TF_NewSessionOptions TF_AllocateTensor "
            "TF_LoadSessionFromSavedModel TF_GraphOperationByName TF_TensorData"
        ).split():
            getattr(c, name).restype = _POINTER
        c.TF_Message.restype = ctypes.c_char_p
        c.TF_Dim.restype = ctypes.c_int64
        c.TF_TensorByteSize.restype = ctypes.c_size_t
        self.status = _POINTER(c.TF_NewStatus())
        self.graph = _POINTER(c.TF_NewGraph())
        self.session = _POINTER(
            c.TF_LoadSessionFromSavedModel(
                _POINTER(c.TF_NewSessionOptions()),
                None,
                str(Path(path).parent).encode(),
                (ctypes.c_char_p * 1)(b"serve"),
                1,
                self.graph,
                None,
                self.status,
            )
        )
        self._check()

    def __call__(self, inputs: Arrays, names: Sequence[str]) -> Arrays:
        """Returns the named tensors for those that are given."""
        given = [_POINTER(self._write(array)) for array in inputs.values()]
        fetched = (_POINTER * len(names))()
        self.c.TF_SessionRun(
            self.session,
            None,
            (_Output * len(inputs))(*map(self._output, inputs)),
            (_POINTER * len(given))(*given),
            len(given),
            (_Output * len(names))(*map(self._output, names)),
            fetched,
            len(names),
            None,
            0,
            None,
            self.status,
        )
        self._check()
        tensors = [_POINTER(tensor) for tensor in fetched]
        outputs = dict(zip(names, map(self._read, tensors), strict=True))
        for tensor in (*tensors, *given):
            self.c.TF_DeleteTensor(tensor)
        return outputs

    def _check(self) -> None:
        if self.c.TF_GetCode(self.status):
            raise RuntimeError(self.c.TF_Message(self.status).decode())

    def _output(self, name: str) -> _Output:
        operation, _, index = name.partition(":")
        found = self.c.TF_GraphOperationByName(self.graph, operation.encode())
        if not found:
            raise RuntimeError(f"the graph has no {operation!r}")
        return _Output(found, int(index or 0))

    def _write(self, array: Array) -> int:
        """Returns a new TF_Tensor of an array."""
        content = array.tobytes()
        numbers = {name: number for number, name in _DTYPES.items()}
        tensor: int = self.c.TF_AllocateTensor(
            numbers[array.dtype.name],
            (ctypes.c_int64 * array.ndim)(*array.shape),
            array.ndim,
            ctypes.c_size_t(len(content)),
        )
        data = self.c.TF_TensorData(_POINTER(tensor))
        ctypes.memmove(data, content, len(content))
        return tensor

    def _read(self, tensor: ctypes.c_void_p) -> Array:
        axes = range(self.c.TF_NumDims(tensor))
        shape = [self.c.TF_Dim(tensor, axis) for axis in axes]
        size = self.c.TF_TensorByteSize(tensor)
        content = ctypes.string_at(self.c.TF_TensorData(tensor), size)
        dtype = _DTYPES[self.c.TF_TensorType(tensor)]
        return np.frombuffer(content, dtype).reshape(shape)


def _litert(path: str) -> Model:
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(path).get_signature_runner()
    return lambda inputs, names: run(**inputs)


def _onnx(path: str) -> Model:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    known = [output.name for output in session.get_outputs()]

    def answer(inputs: Arrays, names: Sequence[str]) -> Arrays:
        found = [name for name in names if name in known]
        values = session.run(found, inputs)
        return dict(zip(found, values, strict=True))

    return answer


def _openvino(path: str) -> Model:
    import openvino

    # Processors that can would otherwise calculate in bfloat16.
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    network = openvino.compile_model(path, "CPU", exact)

    def answer(inputs: Arrays, names: Sequence[str]) -> Arrays:
        outputs = network(inputs).to_dict()
        return {
            name: value
            for port, value in outputs.items()
            for name in port.get_names()
        }

    return answer


_LOADERS: dict[str, Callable[..., Model]] = {
    "savedmodel": _SavedModel,
    "litert": _litert,
    "onnx": _onnx,
    "openvino": _openvino,
}


def main(job_file: Path) -> None:
    """Reads a job, and writes its answer to the file that the job names.

    A job has `models`, each with `format` and `path`; `rounds`; `reply`, the
    file of the answer; and `runs`, each with `model` (index), `images` (a file)
    and what the model calls them (`input`), `names` of outputs and what the
    model calls these, of which some may be missing, and `outputs` (a file).
    All runs are made once in each round. The answer has the `seconds` of each
    run and the most bytes that the process `held`; or an `error`, in loading or
    running `model` (index), and the `missing` module.
    """
    job = json.loads(job_file.read_text("utf-8"))
    reply: dict[str, Any] = {"running": False}
    try:
        models = []
        for reply["model"], model in enumerate(job["models"]):
            models.append(_LOADERS[model["format"]](model["path"]))
        runs = [
            (run, {run["input"]: np.load(run["images"])}) for run in job["runs"]
        ]
        reply["running"] = True
        seconds: list[list[float]] = [[] for _ in runs]
        for number in range(job["rounds"]):
            for (run, inputs), taken in zip(runs, seconds, strict=True):
                reply["model"] = run["model"]
                start = time.perf_counter()
                names = run["names"]
                outputs = models[run["model"]](inputs, [*names.values()])
                taken.append(time.perf_counter() - start)
                if number == 0:
                    found = {
                        k: outputs[n] for k, n in names.items() if n in outputs
                    }
                    np.savez(run["outputs"], allow_pickle=False, **found)
        reply |= {"seconds": seconds, "held": _most_held()}
    except Exception as error:  # runtimes raise many kinds
        reply["error"] = " ".join(str(error).split())
        if isinstance(error, ModuleNotFoundError):
            reply["missing"] = error.name
    Path(job["reply"]).write_text(json.dumps(reply), "utf-8")


def _most_held() -> int | None:
    """Returns the most bytes that this process held, where Linux tells."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return None
    held = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return next((1024 * int(kilobytes) for kilobytes in held), None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
