"""Asks a served network what it sees in images.

python export/client.py --model dr_capsnet_small digit.png

An example to copy. It needs numpy and pillow; gRPC tensorflow-serving-api too.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from PIL import Image, ImageOps

_DTYPES = {"DT_FLOAT": "float32", "DT_UINT8": "uint8", "DT_INT64": "int64"}
_MODES = {1: "L", 3: "RGB"}  # pillow's, by the number of channels
_BATCH = 32  # the largest that the server's batching.config allows
_UNREADABLE = (OSError, ValueError, MemoryError, SyntaxError)  # broken files
_PROBLEMS = {  # what a status means, by gRPC's names, and what to do
    "NOT_FOUND": "has no such model or version; give one that it serves",
    "UNAVAILABLE": "does not answer; start the server or give another address",
    "DEADLINE_EXCEEDED": "took too long; give a longer timeout or fewer images",
}

Array = np.ndarray
Outputs = dict[str, Array]


class ClientError(Exception):
    """What went wrong and what to do."""


class Signature(NamedTuple):
    """What a signature takes and returns."""

    name: str
    shape: tuple[int, ...]  # rows, columns, channels
    dtype: str  # "uint8" for pixels in 0..255, "float32" for [0, 1]
    outputs: dict[str, str | None]  # the type of each, where it is in _DTYPES


def predict_rest(
    url: str,
    model: str,
    images: Array,
    *,
    signature: str | Signature = "serving_default",
    version: int | None = None,
    timeout: float = 10.0,
) -> Outputs:
    """Returns the outputs of a served network, by REST.

    Args:
        url: Such as `"http://localhost:8501"`.
        model: Name of the model.
        images: `[b, h, w, c]`, uint8 in 0..255 or float in [0, 1].
        signature: Its name, or what `signature_rest` returned for it.
        version: Int. Defaults to the server's choice, the newest.
        timeout: Seconds to wait for an answer.

    Raises:
        ClientError: If no outputs come, or the images do not fit.
    """
    return _Rest(url, model, version, timeout).predict(images, signature)


def signature_rest(
    url: str,
    model: str,
    *,
    signature: str = "serving_default",
    version: int | None = None,
    timeout: float = 10.0,
) -> Signature:
    """Returns what a signature takes and returns; see `predict_rest`."""
    return _Rest(url, model, version, timeout).signature(signature)


def predict_grpc(
    address: str,
    model: str,
    images: Array,
    *,
    signature: str | Signature = "serving_default",
    version: int | None = None,
    timeout: float = 10.0,
) -> Outputs:
    """Does what `predict_rest` does, by gRPC at, say, `"localhost:8500"`."""
    return _Grpc(address, model, version, timeout).predict(images, signature)


def as_input(images: Array, signature: Signature) -> Array:
    """Returns images `[b, h, w, c]` in the type that the server wants."""
    if images.shape[1:] != signature.shape or not len(images):
        raise ClientError(
            f"the model takes images {signature.shape} (rows, columns, "
            f"channels) or a batch of them, not {images.shape}."
        )
    wants_bytes = signature.dtype == "uint8"
    if images.dtype == np.uint8:
        return images if wants_bytes else images / np.float32(255)
    if images.dtype.kind != "f" or not ((images >= 0) & (images <= 1)).all():
        raise ClientError(
            "pixels must be uint8, 0 to 255, or float, all from 0 to 1; these "
            f"are {images.dtype} and not so."
        )
    images = images.astype(np.float32)
    return np.rint(images * 255).astype(np.uint8) if wants_bytes else images


def read_images(path: Path, signature: Signature) -> Array:
    """Returns a file's images as the server wants them, resized if need be."""
    shape = signature.shape
    try:
        if path.suffix.lower() != ".npy":
            return as_input(_read_picture(path, shape), signature)
        with path.open("rb") as file:
            images = np.lib.format.read_array(file, allow_pickle=False)
        if shape[2] == 1 and images.shape[-2:] == shape[:2]:
            images = images[..., None]
        return as_input(images[None] if images.ndim == 3 else images, signature)
    except (*_UNREADABLE, ClientError, Image.DecompressionBombError) as error:
        raise ClientError(f"{path} cannot be used: {error}") from error


def _read_picture(path: Path, shape: tuple[int, ...]) -> Array:
    rows, columns, channels = shape
    if channels not in _MODES:
        raise ClientError(f"images of {channels} channels must come as .npy.")
    with Image.open(path) as picture:
        if picture.mode.startswith(("I", "F")):  # convert would clip it
            raise ClientError("save it with 8 bits per channel, not more.")
        picture = ImageOps.exif_transpose(picture).convert("RGBA")
    ground = Image.new("RGBA", picture.size, "white")  # as in training
    image = Image.alpha_composite(ground, picture).convert(_MODES[channels])
    if image.size != (new := (columns, rows)):
        sizes = f"{image.width}x{image.height} to {columns}x{rows} pixels"
        print(f"client.py: {path} is resized from {sizes}", file=sys.stderr)
    # Floats, so that they are rounded once, as in training.
    bands = [b.convert("F").resize(new, Image.BILINEAR) for b in image.split()]
    return np.rint(np.stack(bands, axis=-1)[None]).astype(np.uint8)


@dataclasses.dataclass
class _Server:
    """Where to ask; subclasses give all `definitions` and `run` one of them."""

    address: str
    model: str
    version: int | None
    timeout: float

    def predict(self, images: Array, signature: str | Signature) -> Outputs:
        if isinstance(signature, str):
            signature = self.signature(signature)
        return self.run(as_input(images, signature), signature)

    def signature(self, name: str) -> Signature:
        # The one that initialises a model has no inputs and is not meant.
        known = {k: d for k, d in self.definitions().items() if d.get("inputs")}
        if name not in known:
            names = ", ".join(sorted(known))
            raise ClientError(f"there is no signature {name!r}, but {names}.")
        inputs, outputs = known[name]["inputs"], known[name]["outputs"]
        images = inputs.get("images", {"dtype": "", "tensor_shape": {}})
        sides = images["tensor_shape"].get("dim", [])
        shape = tuple(int(side["size"]) for side in sides)[1:]
        dtype = _DTYPES.get(images["dtype"])
        if dtype not in ("float32", "uint8") or len(shape) != 3 or -1 in shape:
            raise ClientError(
                f"signature {name!r} does not take just images of known size "
                "as DT_FLOAT or DT_UINT8, and this client sends nothing else."
            )
        types = {k: _DTYPES.get(outputs[k]["dtype"]) for k in sorted(outputs)}
        return Signature(name, shape, dtype, types)

    def error(self, status: str, said: str | None) -> ClientError:
        problem = _PROBLEMS.get(status, f"answers {status}")
        words = textwrap.shorten(said or "it does not say why.", 400)
        return ClientError(f"{self.address} {problem}: {words}")


class _Rest(_Server):
    def definitions(self) -> dict[str, Any]:
        return self._ask("/metadata", None, "metadata", *["signature_def"] * 2)

    def run(self, images: Array, signature: Signature) -> Outputs:
        inputs = {"images": images.tolist()}
        request = {"signature_name": signature.name, "inputs": inputs}
        outputs = self._ask(":predict", request, "outputs")
        types = signature.outputs
        if not isinstance(outputs, dict):  # a single output loses its name
            outputs = {next(iter(types)): outputs}
        return {k: np.array(outputs[k], types.get(k)) for k in sorted(outputs)}

    def _ask(self, what: str, content: Any, *keys: str) -> Any:
        """Returns a part of the answer to a POST, or to a GET of nothing."""
        if not self.address.startswith(("http://", "https://")):
            raise ClientError(f"{self.address!r} must begin with http://.")
        url = f"{self.address.rstrip('/')}/v1/models/{quote(self.model, '')}"
        if self.version is not None:
            url += f"/versions/{self.version}"
        data = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json"}
        try:
            request = urllib.request.Request(url + what, data, headers)
            try:
                answer = urllib.request.urlopen(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                answer = error  # which can be read too
            with answer:
                text = answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            late = isinstance(reason, TimeoutError)
            status = "DEADLINE_EXCEEDED" if late else "UNAVAILABLE"
            raise self.error(status, str(reason)) from error
        with contextlib.suppress(ValueError, KeyError, TypeError):
            content = json.loads(text)
            if answer.status == 200:
                for key in keys:
                    content = content[key]
                return content
            text = content["error"]
        status = {404: "NOT_FOUND"}.get(answer.status, f"HTTP {answer.status}")
        raise self.error(status, text)


class _Grpc(_Server):
    def __init__(self, *where: Any):
        super().__init__(*where)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        try:
            import grpc
            import tensorflow as tf
            import tensorflow_serving.apis.prediction_service_pb2_grpc
            from google.protobuf.json_format import MessageToDict
        except ImportError as error:
            raise ClientError(
                f"for gRPC run pip install tensorflow-serving-api: {error}."
            ) from error
        self.grpc, self.tf, self.as_dict = grpc, tf, MessageToDict
        self.apis = tensorflow_serving.apis  # the service imports all messages

    def definitions(self) -> dict[str, Any]:
        api = self.apis.get_model_metadata_pb2
        request = api.GetModelMetadataRequest(metadata_field=["signature_def"])
        answer = self._ask("GetModelMetadata", request)
        found = api.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        content = self.as_dict(found, preserving_proto_field_name=True)
        return content["signature_def"]

    def run(self, images: Array, signature: Signature) -> Outputs:
        request = self.apis.predict_pb2.PredictRequest()
        request.model_spec.signature_name = signature.name
        request.inputs["images"].CopyFrom(self.tf.make_tensor_proto(images))
        outputs = self._ask("Predict", request).outputs
        return {k: self.tf.make_ndarray(outputs[k]) for k in sorted(outputs)}

    def _ask(self, method: str, request: Any) -> Any:
        request.model_spec.name = self.model
        if self.version is not None:
            request.model_spec.version.value = self.version
        # Poses may exceed the 4 MiB that a client takes by default.
        unlimited = [("grpc.max_receive_message_length", -1)]
        api = self.apis.prediction_service_pb2_grpc
        with self.grpc.insecure_channel(self.address, unlimited) as channel:
            call = getattr(api.PredictionServiceStub(channel), method)
            try:
                return call(request, timeout=self.timeout)
            except self.grpc.RpcError as error:
                raise self.error(error.code().name, error.details()) from error


def _describe(outputs: Outputs, index: int, classes: list[str] | None) -> str:
    """Returns the three likeliest classes, or else what came."""
    if "lengths" not in outputs:
        return ", ".join(f"{k} {outputs[k].shape[1:]}" for k in outputs)
    lengths = outputs["lengths"][index]
    names = classes or range(len(lengths))
    if len(names) != len(lengths):
        raise ClientError(f"the model has {len(lengths)} classes, not {names}.")
    order = np.argsort(-lengths, kind="stable")[:3]
    text = ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in order)
    if "saliency" in outputs:
        saliency = outputs["saliency"][index]
        row, column = np.unravel_index(saliency.argmax(), saliency.shape)
        text += f"; saliency peaks at row {row}, column {column}"
    elif "couplings" in outputs:
        c = outputs["couplings"][index]
        most = ", ".join(f"{k} {c[k]:.2f}" for k in np.argsort(-c)[:5])
        text += f"; most coupled children {most}"
    return text


def _classes_in(manifest: Path) -> list[str] | None:  # old ones have none
    try:
        about = json.loads(manifest.read_text("utf-8"))
        return about.get("classes") if "sha256" in about else about["classes"]
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError(f"{manifest} is no manifest of an export.") from error


def _save(path: Path, outputs: Outputs) -> None:
    """Writes an `.npz` file that appears complete or not at all."""
    staged = path.parent / f".{path.name}-{os.getpid()}.npz"
    try:
        np.savez(staged, **outputs)
        os.replace(staged, path)
    except OSError as error:
        raise ClientError(f"cannot write {path}: {error.strerror}.") from error
    finally:
        staged.unlink(missing_ok=True)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("client.py", allow_abbrev=False)
    parser.description = __doc__.splitlines()[0]
    add = parser.add_argument
    add("images", nargs="+", type=Path, help="image or .npy files")
    add("--invert", action="store_true", help="swap dark and bright")
    add("--model", required=True, help="its name on the server")
    add("--version", type=int, help="default: the newest")
    add("--signature", default="serving_default", help="or explain, or encode")
    add("--url", default="http://localhost:8501", help="default: %(default)s")
    add("--grpc", metavar="HOST:PORT", help="ask by gRPC instead")
    add("--timeout", type=float, default=10.0, help="seconds; default: 10")
    add("--manifest", type=Path, help="manifest.json, for names of classes")
    add("--classes", type=lambda names: names.split(","), help="or A,B,...")
    add("--json", action="store_true", help="print the whole answer as JSON")
    add("--out", type=Path, help=".npz file for all outputs")
    return parser


def _connect(options: argparse.Namespace) -> _Server:
    """Starts TensorFlow, for gRPC, without the notes that it writes then."""
    where = options.model, options.version, options.timeout
    if options.grpc is None:
        return _Rest(options.url, *where)
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        return _Grpc(options.grpc, *where)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _run(options: argparse.Namespace) -> None:
    if not 0 < options.timeout < 1e6:
        raise ClientError(f"--timeout {options.timeout:g} must be above 0.")
    if options.manifest and not options.classes:
        options.classes = _classes_in(options.manifest)
    server = _connect(options)
    signature = server.signature(options.signature)
    batches = [read_images(path, signature) for path in options.images]
    names = []
    for path, batch in zip(options.images, batches, strict=True):
        numbered = [f"{path}[{i}]" for i in range(len(batch))]
        names += numbered if len(batch) > 1 else [str(path)]
    images = np.concatenate(batches)
    if options.invert:
        images = (255 if images.dtype == np.uint8 else 1) - images
    parts = np.split(images, range(_BATCH, len(images), _BATCH))
    parts = [server.predict(part, signature) for part in parts]
    outputs = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
    if options.out:
        _save(options.out, outputs)
    if options.json:
        return print(json.dumps({"outputs": outputs}, default=Array.tolist))
    for index, name in enumerate(names):
        print(f"{name}: {_describe(outputs, index, options.classes)}")


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    try:
        _run(make_parser().parse_args(argv))
    except (ClientError, OSError) as error:
        print("client.py: error:", *str(error).split(), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
