"""Formats in which a trained model is exported, one module each.

| format | file | run by |
|---|---|---|
| `savedmodel` | `saved_model.pb` | TensorFlow Serving |
| `litert` | `model.tflite` | LiteRT, which was TensorFlow Lite |
| `onnx` | `model.onnx` | ONNX Runtime |
| `openvino` | `model.xml`, `model.bin` | OpenVINO |

The first is written by `export/signatures.py` and run by `export/session.py`.
Each of the others is a module of this folder with three functions:

- `write(graphs, folder)` converts a model, see `export/graphs.py`;
- `quantize(graphs, folder, images)` writes it in int8, calibrated by images;
- `load(folder, int8)` returns a function that answers images. It imports the
  runtime and nothing else, so that a process of its own can call it.

This file loads nothing: a command can say at once what there is.
"""

import importlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple


class Format(NamedTuple):
    """A format of exported models.

    Attributes:
        extra: The extra of `setup.cfg` with what it needs.
        modules: What is needed to write and run it, separated by spaces.
        runtime: What runs it.
        int8: What is needed besides to write it in int8.
        files: The files that it consists of.
        int8_files: The same in int8.
    """

    extra: str
    modules: str
    runtime: str = ""
    int8: str = ""
    files: tuple[str, ...] = ()
    int8_files: tuple[str, ...] = ()


FORMATS = {
    "savedmodel": Format("tensorflow", "tensorflow"),
    # TensorFlow writes it, and can run it too where its runtime is missing.
    "litert": Format(
        "litert",
        "",
        "ai_edge_litert",
        files=("model.tflite",),
        int8_files=("model.int8.tflite",),
    ),
    "onnx": Format(
        "onnx",
        "onnx onnxruntime tf2onnx",
        "onnxruntime",
        files=("model.onnx",),
        int8_files=("model.int8.onnx",),
    ),
    "openvino": Format(
        "openvino",
        "openvino",
        "openvino",
        int8="nncf",
        files=("model.xml", "model.bin"),
        int8_files=("model.int8.xml", "model.int8.bin"),
    ),
}

# What each signature returns, as `export/signatures.py` says. ONNX and OpenVINO
# have no signatures: one file has all these outputs, and a signature is some.
OUTPUTS = {
    "serving_default": ("lengths", "poses", "classes"),
    "explain": ("lengths", "classes", "couplings", "saliency"),
    "encode": ("poses",),
}


def module(name: str) -> Any:
    """Returns the module of a format other than `savedmodel`."""
    return importlib.import_module(f"export.formats.{name}")


def needed(names: Sequence[str], *, int8: bool = False) -> dict[str, str]:
    """Returns the modules that formats need, by the extra that has them.

    TensorFlow writes all of them.
    """
    forms = [FORMATS[name] for name in names]
    needed = {
        form.extra: f"{form.modules} {form.int8 if int8 else ''}".strip()
        for form in forms
    }
    return {"tensorflow": "tensorflow", **needed}


def outputs_of(signature: str, names: Collection[str]) -> list[str]:
    """Returns which of a graph's outputs a signature has.

    Raises:
        ValueError: If one is missing. Only the saliency map may be.
    """
    wanted = OUTPUTS[signature]
    for name in wanted:
        if name not in names and name != "saliency":
            raise ValueError(
                f"it has no output {name}; it has {', '.join(sorted(names))}"
            )
    return [name for name in wanted if name in names]
