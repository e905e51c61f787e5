"""OpenVINO, for processors, graphics and neural chips of Intel, and ARM."""

import logging
from pathlib import Path
from typing import Any

from export import formats

_FORM = formats.FORMATS["openvino"]
NAME = _FORM.files[0]
INT8_NAME = _FORM.int8_files[0]


def write(graphs: Any, folder: Path) -> None:
    """Writes one graph with all outputs as `model.xml` and `model.bin`.

    Args:
        graphs: The `Graphs` of a model.
        folder: An exported folder.
    """
    import openvino

    model = openvino.convert_model(graphs.whole)
    # By default it would round all weights to float16.
    openvino.save_model(model, folder / NAME, compress_to_fp16=False)


def quantize(graphs: Any, folder: Path, images: Any) -> None:
    """Writes convolutions in int8, into `model.int8.xml` and `model.int8.bin`.

    Args:
        graphs: The `Graphs` of a model.
        folder: An exported folder with `model.xml`.
        images: `[n, h, w, c]`, from which ranges of activations are taken.
    """
    del graphs
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    model = openvino.Core().read_model(folder / NAME)
    batches = nncf.Dataset([image[None] for image in images])
    quantized = nncf.quantize(
        model,
        batches,
        subset_size=len(images),
        # The fast one moved the biases of a DR-CapsNet so far that a quarter of
        # its answers were wrong.
        fast_bias_correction=False,
        # OpenVINO 2026.4 cannot run those of routing and saliency together.
        ignored_scope=nncf.IgnoredScope(types=["MatMul"], validate=False),
    )
    openvino.save_model(quantized, folder / INT8_NAME, compress_to_fp16=False)


def load(folder: Path, *, int8: bool = False) -> Any:
    """Returns a function of a signature and images, as OpenVINO answers.

    Args:
        folder: An exported folder.
        int8: Bool. Load the file in int8. Defaults to `False`.
    """
    import openvino

    # Processors that can would otherwise calculate in bfloat16.
    network = openvino.compile_model(
        folder / (INT8_NAME if int8 else NAME),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32"},
    )

    def answer(signature: str, images: Any) -> dict[str, Any]:
        outputs = network({"images": images}).to_dict()
        named = {
            name: value
            for port, value in outputs.items()
            for name in port.get_names()
        }
        return {
            name: named[name] for name in formats.outputs_of(signature, named)
        }

    return answer
