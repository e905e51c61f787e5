"""A static look at the graph of a SavedModel: what a server would refuse."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfcaps.export.networks import FORMATS, SIGNATURES
from tfcaps.export.versions import ExportError

# Load, and then fail in a server: without Python, or with XLA switched off.
_PYTHON = re.compile(r"(Eager)?PyFunc(Stateless)?|NumpyFunction")
_XLA = re.compile(r"_?Xla.*")


class Tensor(NamedTuple):
    """An input or an output of a signature.

    Attributes:
        name: Name in the graph.
        dtype: Type.
        shape: Shape, -1 where any size fits.
    """

    name: str
    dtype: str
    shape: list[int]


class Signature(NamedTuple):
    """A signature of a SavedModel: its tensors, by what clients call them."""

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


def check_graph(folder: Path) -> dict[str, Signature]:
    """Returns the signatures of a SavedModel that a server can run.

    Raises:
        ExportError: If there is none; if the graph needs XLA or Python, a batch
            is fixed, or a signature or a type is not the expected one.
    """
    graph = _read(folder)
    for where, holder in _nodes_and_functions(graph.graph_def):
        operation = getattr(holder, "op", "")
        if _PYTHON.fullmatch(operation):
            raise ExportError(
                f"graph: {folder} calls a Python function ({operation} in "
                f"{where}), which a server does not have; use TensorFlow's "
                "operations."
            )
        if _XLA.fullmatch(operation) or holder.attr["_XlaMustCompile"].b:
            raise ExportError(
                f"graph: {folder} must be compiled by XLA ({where}), which "
                "TensorFlow Serving switches off; remove jit_compile=True from "
                "the layers."
            )
    found = read_signatures(folder)
    if set(found) != set(SIGNATURES):
        raise ExportError(
            f"graph: {folder} must have the signatures "
            f"{', '.join(SIGNATURES)}; it has {', '.join(sorted(found))}."
        )
    for name, signature in found.items():
        _check_signature(f"{folder}, signature {name}", signature)
    return found


def read_signatures(folder: Path) -> dict[str, Signature]:
    """Returns the signatures of a SavedModel, whatever they are."""
    from tensorflow import as_dtype

    def read(tensors: Any) -> dict[str, Tensor]:
        return {
            name: Tensor(
                tensor.name,
                as_dtype(tensor.dtype).name,
                [dim.size for dim in tensor.tensor_shape.dim],
            )
            for name, tensor in sorted(tensors.items())
        }

    return {
        name: Signature(read(definition.inputs), read(definition.outputs))
        for name, definition in _read(folder).signature_def.items()
        if definition.method_name  # `__saved_model_init_op` has none
    }


def graph_versions(folder: Path) -> dict[str, Any]:
    """Returns the versions that wrote the graph, and that can read it."""
    graph = _read(folder)
    return {
        "tensorflow": graph.meta_info_def.tensorflow_version,
        "producer": graph.graph_def.versions.producer,
        "min_consumer": graph.graph_def.versions.min_consumer,
    }


def _read(folder: Path) -> Any:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    path = folder / FORMATS["savedmodel"]
    try:
        model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    except FileNotFoundError as error:
        raise ExportError(f"graph: {folder} has no {path.name}.") from error
    except DecodeError as error:
        raise ExportError(f"graph: {path} is no SavedModel.") from error
    graphs = [
        graph
        for graph in model.meta_graphs
        if set(graph.meta_info_def.tags) == {"serve"}
    ]
    if len(graphs) != 1:
        raise ExportError(f"graph: {path} must have one graph tagged 'serve'.")
    return graphs[0]


def _nodes_and_functions(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yields each node of a graph, each function and its nodes, by name."""
    for node in graph.node:
        yield node.name, node
    for function in graph.library.function:
        yield function.signature.name, function
        for node in function.node_def:
            yield f"{function.signature.name}/{node.name}", node


def _check_signature(where: str, signature: Signature) -> None:
    if set(signature.inputs) != {"images"}:
        raise ExportError(
            f"graph: {where} must have the input images; it has "
            f"{', '.join(signature.inputs)}."
        )
    for name, (_, dtype, shape) in {
        **signature.inputs,
        **signature.outputs,
    }.items():
        if not shape or shape[0] != -1:
            size = f"of {shape[0]}" if shape else "missing"
            raise ExportError(
                f"batch: {where}: {name} has a batch {size}, and must take "
                "any; build the model without a batch size."
            )
        if name == "images":
            fits = dtype in ("uint8", "float32") and -1 not in shape[1:]
        else:
            fits = dtype == ("int64" if name == "classes" else "float32")
        if not fits:
            raise ExportError(
                f"graph: {where}: {name} is {dtype} {shape}, which clients "
                "do not expect."
            )
