"""A static look at an exported graph: what a server would refuse."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cli import UserError

SIGNATURES = ("serving_default", "explain", "encode")

# Load, and then fail in a server: without Python, or with XLA switched off.
_PYTHON = re.compile(r"(Eager)?PyFunc(Stateless)?|NumpyFunction")
_XLA = re.compile(r"_?Xla.*")


class Signature(NamedTuple):
    """A signature of a SavedModel.

    Attributes:
        name: What a client calls it.
        inputs: Type and shape of each input, -1 where any size fits.
        outputs: The same of each output.
        input_tensors: Name in the graph of each input.
        output_tensors: The same of each output.
    """

    name: str
    inputs: dict[str, tuple[str, list[int]]]
    outputs: dict[str, tuple[str, list[int]]]
    input_tensors: dict[str, str]
    output_tensors: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Returns what a client needs to know, as JSON."""

        def told(tensors: dict[str, tuple[str, list[int]]]) -> dict[str, Any]:
            return {
                name: {"dtype": dtype, "shape": shape}
                for name, (dtype, shape) in sorted(tensors.items())
            }

        return {"inputs": told(self.inputs), "outputs": told(self.outputs)}


def check_graph(folder: Path) -> dict[str, Signature]:
    """Returns the signatures of a SavedModel that a server can run.

    Raises:
        UserError: If there is none; if the graph needs XLA or Python, a batch
            is fixed, or a signature or a type is not the expected one.
    """
    graph = _read(folder)
    for where, node in _nodes(graph.graph_def):
        if _PYTHON.fullmatch(node.op):
            raise UserError(
                f"graph: {folder} calls a Python function ({node.op} in "
                f"{where}), which a server does not have; use TensorFlow's "
                "operations."
            )
        if _XLA.fullmatch(node.op) or node.attr["_XlaMustCompile"].b:
            raise _has_xla(folder, where)
    for function in graph.graph_def.library.function:
        if function.attr["_XlaMustCompile"].b:
            raise _has_xla(folder, function.signature.name)
    found = _signatures(graph)
    if set(found) != set(SIGNATURES):
        raise UserError(
            f"graph: {folder} must have the signatures "
            f"{', '.join(SIGNATURES)}; it has {', '.join(sorted(found))}."
        )
    for signature in found.values():
        _check_signature(folder, signature)
    return found


def read_signatures(folder: Path) -> dict[str, Signature]:
    """Returns the signatures of a SavedModel, whatever they are."""
    return _signatures(_read(folder))


def graph_versions(folder: Path) -> dict[str, Any]:
    """Returns who wrote the graph, and who can read it."""
    graph = _read(folder)
    return {
        "tensorflow": graph.meta_info_def.tensorflow_version,
        "producer": graph.graph_def.versions.producer,
        "min_consumer": graph.graph_def.versions.min_consumer,
    }


def _read(folder: Path) -> Any:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    path = folder / "saved_model.pb"
    try:
        model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"graph: {folder} has no saved_model.pb.") from error
    except DecodeError as error:
        raise UserError(f"graph: {path} is no SavedModel.") from error
    graphs = [
        graph
        for graph in model.meta_graphs
        if set(graph.meta_info_def.tags) == {"serve"}
    ]
    if len(graphs) != 1:
        raise UserError(f"graph: {path} must have one graph tagged 'serve'.")
    return graphs[0]


def _nodes(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yields each node of a graph and its functions, and where it is."""
    for node in graph.node:
        yield node.name, node
    for function in graph.library.function:
        for node in function.node_def:
            yield f"{function.signature.name}/{node.name}", node


def _has_xla(folder: Path, where: str) -> UserError:
    return UserError(
        f"graph: {folder} must be compiled by XLA ({where}), which TensorFlow "
        "Serving switches off; remove jit_compile=True from the layers."
    )


def _signatures(graph: Any) -> dict[str, Signature]:
    return {
        name: _signature(name, definition)
        for name, definition in graph.signature_def.items()
        if definition.method_name  # `__saved_model_init_op` has none
    }


def _signature(name: str, definition: Any) -> Signature:
    from tensorflow import as_dtype

    def forms(tensors: Any) -> dict[str, tuple[str, list[int]]]:
        return {
            name: (
                as_dtype(tensor.dtype).name,
                [dim.size for dim in tensor.tensor_shape.dim],
            )
            for name, tensor in tensors.items()
        }

    def names(tensors: Any) -> dict[str, str]:
        return {name: tensor.name for name, tensor in tensors.items()}

    inputs, outputs = definition.inputs, definition.outputs
    return Signature(
        name, forms(inputs), forms(outputs), names(inputs), names(outputs)
    )


def _check_signature(folder: Path, signature: Signature) -> None:
    where = f"{folder}, signature {signature.name}"
    if set(signature.inputs) != {"images"}:
        raise UserError(
            f"graph: {where} must have the input images; it has "
            f"{', '.join(signature.inputs)}."
        )
    for tensor, (dtype, shape) in (
        *signature.inputs.items(),
        *signature.outputs.items(),
    ):
        if not shape or shape[0] != -1:
            size = f"of {shape[0]}" if shape else "missing"
            raise UserError(
                f"batch: {where}: {tensor} has a batch {size}, and must take "
                "any; build the model without a batch size."
            )
        if tensor == "images":
            fits = dtype in ("uint8", "float32") and -1 not in shape[1:]
        else:
            fits = dtype == ("int64" if tensor == "classes" else "float32")
        if not fits:
            raise UserError(
                f"graph: {where}: {tensor} is {dtype} {shape}, which clients "
                "do not expect."
            )
