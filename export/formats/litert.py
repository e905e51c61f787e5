"""LiteRT, which was TensorFlow Lite, for phones and small boards."""

import warnings
from pathlib import Path
from typing import Any

from export import formats

_FORM = formats.FORMATS["litert"]
[NAME] = _FORM.files
[INT8_NAME] = _FORM.int8_files


def write(graphs: Any, folder: Path) -> None:
    """Writes all signatures as `model.tflite`.

    Args:
        graphs: The `Graphs` of a model.
        folder: An exported folder.
    """
    (folder / NAME).write_bytes(_converter(graphs).convert())


def quantize(graphs: Any, folder: Path, images: Any) -> None:
    """Writes all signatures with weights in int8 as `model.int8.tflite`.

    LiteRT rounds the activations of each image as they come, and routes in
    floats. With ranges from calibration it would round the routing too: on
    MNIST a sixth of the codes changed instead of one in 270.

    Args:
        graphs: The `Graphs` of a model.
        folder: An exported folder.
        images: Not needed.
    """
    import tensorflow as tf

    del images
    converter = _converter(graphs)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    (folder / INT8_NAME).write_bytes(converter.convert())


def load(folder: Path, *, int8: bool = False) -> Any:
    """Returns a function of a signature and images, as LiteRT answers.

    Args:
        folder: An exported folder.
        int8: Bool. Load the file in int8. Defaults to `False`.
    """
    interpreter = _interpreter(str(folder / (INT8_NAME if int8 else NAME)))
    runners = {
        name: interpreter.get_signature_runner(name)
        for name in interpreter.get_signature_list()
    }

    def answer(signature: str, images: Any) -> Any:
        if signature not in runners:
            raise ValueError(
                f"it has no signature {signature}; it has "
                f"{', '.join(sorted(runners)) or 'none'}"
            )
        return runners[signature](images=images)

    return answer


def _converter(graphs: Any) -> Any:
    import tensorflow as tf

    return tf.lite.TFLiteConverter.from_saved_model(
        str(graphs.with_signatures), signature_keys=[*formats.OUTPUTS]
    )


def _interpreter(path: str) -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(path)
    except ImportError:
        import tensorflow as tf

    with warnings.catch_warnings():
        # It will move to the package above.
        warnings.simplefilter("ignore")
        return tf.lite.Interpreter(path)
