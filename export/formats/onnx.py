"""ONNX, for ONNX Runtime and what else reads it."""

import logging
import tempfile
from pathlib import Path
from typing import Any

from export import formats

_FORM = formats.FORMATS["onnx"]
[NAME] = _FORM.files
[INT8_NAME] = _FORM.int8_files
# The newest that tf2onnx 1.17 writes.
_OPSET = 18


def write(graphs: Any, folder: Path) -> None:
    """Writes one graph with all outputs as `model.onnx`.

    Args:
        graphs: The `Graphs` of a model.
        folder: An exported folder.
    """
    import onnx
    import tf2onnx

    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    function = graphs.function
    proto, _ = tf2onnx.convert.from_function(
        function, input_signature=function.input_signature, opset=_OPSET
    )
    _fold_shapes(proto.graph)
    # An operation that it does not know it copies, with a line in the log.
    onnx.checker.check_model(proto)
    (folder / NAME).write_bytes(proto.SerializeToString())


def _fold_shapes(graph: Any) -> None:
    """Makes shapes of weights numbers; they would keep a copy of each."""
    import numpy as np
    from onnx import numpy_helper

    weights = {weight.name: weight for weight in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Shape"]:
        if node.input[0] in weights and not node.attribute:
            shape = np.array(weights[node.input[0]].dims, "int64")
            graph.node.remove(node)
            graph.initializer.append(
                numpy_helper.from_array(shape, node.output[0])
            )
    used = {name for node in graph.node for name in node.input}
    for name in weights.keys() - used:
        graph.initializer.remove(weights[name])


def quantize(graphs: Any, folder: Path, images: Any) -> None:
    """Writes convolutions and products of matrices in int8.

    Args:
        graphs: The `Graphs` of a model.
        folder: An exported folder with `model.onnx`.
        images: `[n, h, w, c]`, from which ranges of activations are taken.
    """
    del graphs
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        batches = iter([{"images": image[None]} for image in images])

        def get_next(self) -> Any:
            return next(self.batches, None)

    # It advises in the log to do what is done here.
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as work:
        prepared = Path(work) / NAME
        quantization.quant_pre_process(
            folder / NAME, prepared, skip_symbolic_shape=True
        )
        quantization.quantize_static(
            prepared,
            folder / INT8_NAME,
            Reader(),
            per_channel=True,
            op_types_to_quantize=["Conv", "MatMul"],
            extra_options={"TensorQuantOverrides": _whole_tensors(prepared)},
        )


def _whole_tensors(path: Path) -> dict[str, Any]:
    """Returns the stacks of matrices, which get one scale each.

    With one for each column ONNX Runtime before 1.32 cannot multiply by them.
    """
    import onnx

    graph = onnx.load(path).graph
    factors = {
        name
        for node in graph.node
        if node.op_type == "MatMul"
        for name in node.input
    }
    return {
        weight.name: [{"symmetric": True}]
        for weight in graph.initializer
        if weight.name in factors and len(weight.dims) > 2
    }


def load(folder: Path, *, int8: bool = False) -> Any:
    """Returns a function of a signature and images, as ONNX Runtime answers.

    Args:
        folder: An exported folder.
        int8: Bool. Load the file in int8. Defaults to `False`.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(
        folder / (INT8_NAME if int8 else NAME)
    )
    outputs = [output.name for output in session.get_outputs()]

    def answer(signature: str, images: Any) -> dict[str, Any]:
        names = formats.outputs_of(signature, outputs)
        values = session.run(names, {"images": images})
        return dict(zip(names, values, strict=True))

    return answer
