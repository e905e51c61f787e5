"""Files of exported models, and the runtimes that answer by them alone."""

import contextlib
import errno
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfcaps.ops import Array

Arrays = dict[str, Array]

# The outputs of each signature; a network without a saliency map lacks that.
# Formats other than SavedModel have no signatures: one graph has all outputs.
SIGNATURES = {
    "serving_default": ("lengths", "poses", "classes"),
    "explain": ("lengths", "classes", "couplings", "saliency"),
    "encode": ("poses",),
}
FORMATS = {
    "savedmodel": "saved_model.pb",
    "litert": "model.tflite",
    "onnx": "model.onnx",
    "openvino": "model.xml",
}
_LONGEST = 300  # characters of what a runtime says
# Errors of the disk, and not of the model.
_NO_ROOM = (errno.ENOSPC, errno.EFBIG)
_NOT_WRITTEN = "iostream error"  # what C++ says, whatever the reason


class ExportError(Exception):
    """A model that cannot be exported, or an export that fails a check."""


class Model(NamedTuple):
    """A model of a version: its folder, its format, and whether it is int8."""

    folder: Path
    format: str
    int8: bool = False

    @property
    def files(self) -> list[Path]:
        """The files that it consists of, the graph first."""
        name = FORMATS[self.format]
        file = self.folder / name.replace(".", ".int8." if self.int8 else ".")
        if self.format == "savedmodel":
            return [file, *sorted((self.folder / "variables").glob("*"))]
        if self.format == "openvino":
            return [file, file.with_suffix(".bin")]
        return [file]

    def load(self) -> Callable[[str, Array], Arrays]:
        """Returns a function from a signature and images to its outputs."""
        refused = (
            f"{self.files[0]} cannot be run, so it is broken or not what was "
            "exported; export the model anew"
        )
        with one_sentence(self.format, refused):
            ask = _LOADERS[self.format](str(self.files[0]))

        def answer(signature: str, images: Array) -> Arrays:
            if not len(images):
                raise ExportError(
                    f"{self.format}: a batch must have an image at least. "
                    f"Received: images of the shape {images.shape}."
                )
            with one_sentence(self.format, refused):
                return ask(signature, images)

        return answer


@contextlib.contextmanager
def one_sentence(form: str, what: str) -> Iterator[None]:
    """Drops what converters and runtimes print, and shortens their errors."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    silence = contextlib.redirect_stdout(io.StringIO())
    try:
        with silence, warnings.catch_warnings(action="ignore"):
            yield
    except ModuleNotFoundError as error:
        raise ExportError(
            f"{form}: {error.name} is not installed. Run: pip install "
            f'"tfcaps[{form}]"'
        ) from error
    except Exception as error:  # they raise many kinds
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise
        if _NOT_WRITTEN in str(error):
            told = "a file cannot be written; is the disk full?"
            raise OSError(errno.EIO, told) from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ExportError(f"{form}: {what}: {reason[:_LONGEST]}") from error
    finally:
        logging.disable(disabled)


def _savedmodel(path: str) -> Callable[[str, Array], Arrays]:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(Path(path).parent))

    def answer(signature: str, images: Array) -> Arrays:
        outputs = loaded.signatures[signature](images=tf.constant(images))
        return {name: value.numpy() for name, value in outputs.items()}

    return answer


def _litert(path: str) -> Callable[[str, Array], Arrays]:
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(path).get_signature_runner()
    return lambda signature, images: _those_of(signature, run(images=images))


def _onnx(path: str) -> Callable[[str, Array], Arrays]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    known = [output.name for output in session.get_outputs()]

    def answer(signature: str, images: Array) -> Arrays:
        names = [name for name in SIGNATURES[signature] if name in known]
        values = session.run(names, {"images": images})
        return dict(zip(names, values, strict=True))

    return answer


def _openvino(path: str) -> Callable[[str, Array], Arrays]:
    import openvino

    # Processors that can would otherwise calculate in bfloat16.
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    network = openvino.compile_model(path, "CPU", exact)

    def answer(signature: str, images: Array) -> Arrays:
        outputs = network({"images": images}).to_dict().items()
        named = {name: v for port, v in outputs for name in port.get_names()}
        return _those_of(signature, named)

    return answer


def _those_of(signature: str, outputs: Arrays) -> Arrays:
    names = SIGNATURES[signature]
    return {name: outputs[name] for name in names if name in outputs}


_LOADERS: dict[str, Callable[[str], Callable[[str, Array], Arrays]]] = {
    "savedmodel": _savedmodel,
    "litert": _litert,
    "onnx": _onnx,
    "openvino": _openvino,
}
