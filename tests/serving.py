"""Serves SavedModels on this machine in TensorFlow Serving's formats.

Folders are `<base>/<name>/<version>/`. Messages and status codes are those of
the server's sources; rows ("instances"), states of versions, batching and
labels are left out.
"""

import contextlib
import json
import re
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import grpc
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

_PATH = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict|/.*)")


@contextlib.contextmanager
def serve_rest(base):
    """Yields the URL of a server for the models in a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.models = _Models(base)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serve_grpc(base):
    """Yields the address of a server for the models in a folder."""
    workers = futures.ThreadPoolExecutor(4)
    # The server's own limit, 2 GiB.
    options = [("grpc.max_receive_message_length", 2**31 - 1)]
    server = grpc.server(workers, options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _Servicer(_Models(base)), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        workers.shutdown()


class _ServingError(Exception):
    """A status of gRPC, and a message."""


class _Models:
    """The models of a folder, each loaded when first asked for."""

    def __init__(self, base):
        self._base = base
        self._loaded = {}
        self._lock = threading.Lock()

    def find(self, name, version=None):
        """Returns a version of a model, the newest by default."""
        folders = (self._base / name).glob("*/saved_model.pb")
        names = [path.parent.name for path in folders]
        known = sorted(int(name) for name in names if name.isdecimal())
        if not known or version not in (None, *known):
            asked = f"Latest({name})"
            if version is not None:
                asked = f"Specific({name}, {version})"
            raise _ServingError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}",
            )
        folder = self._base / name / str(version or known[-1])
        with self._lock:
            if folder not in self._loaded:
                self._loaded[folder] = _Model(folder)
            return self._loaded[folder]


class _Model:
    def __init__(self, folder):
        self.name, self.version = folder.parent.name, int(folder.name)
        saved = saved_model_pb2.SavedModel()
        saved.ParseFromString((folder / "saved_model.pb").read_bytes())
        (graph,) = (
            graph
            for graph in saved.meta_graphs
            if list(graph.meta_info_def.tags) == ["serve"]
        )
        self.definitions = dict(graph.signature_def)
        self._model = tf.saved_model.load(str(folder))

    def predict(self, signature, inputs):
        """Returns the outputs of a signature, arrays by their names."""
        if signature not in self.definitions:
            raise _ServingError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f'Serving signature name: "{signature}" not found in '
                "signature def",
            )
        infos = self.definitions[signature].inputs
        if not isinstance(inputs, dict):
            inputs = dict.fromkeys(infos, inputs)
        tensors = {
            key: tf.constant(inputs[key], tf.as_dtype(info.dtype))
            for key, info in infos.items()
        }
        outputs = self._model.signatures[signature](**tensors)
        return {key: outputs[key].numpy() for key in sorted(outputs)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(_metadata)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(lambda model: _predict(model, json.loads(body)))

    def log_message(self, *args):
        pass

    def _answer(self, make):
        name, version, _ = _PATH.fullmatch(self.path).groups()
        try:
            model = self.server.models.find(
                unquote(name), version and int(version)
            )
            status, content = 200, make(model)
        except _ServingError as error:
            code, message = error.args
            status = 404 if code == grpc.StatusCode.NOT_FOUND else 400
            content = {"error": message}
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _metadata(model):
    """Returns what the server prints: each number of 64 bits is a string."""
    definitions = MessageToDict(
        get_model_metadata_pb2.SignatureDefMap(signature_def=model.definitions),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    spec = {
        "name": model.name,
        "signature_name": "",
        "version": str(model.version),
    }
    return {"model_spec": spec, "metadata": {"signature_def": definitions}}


def _predict(model, request):
    """Answers columns ("inputs") with columns."""
    signature = request.get("signature_name", "serving_default")
    outputs = model.predict(signature, request["inputs"])
    lists = {key: value.tolist() for key, value in outputs.items()}
    (first, *more) = lists.values()
    return {"outputs": lists if more else first}


class _Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, models):
        self._models = models

    def Predict(self, request, context):
        spec = request.model_spec
        signature = spec.signature_name or "serving_default"
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        try:
            version = spec.version.value if spec.HasField("version") else None
            model = self._models.find(spec.name, version)
            outputs = model.predict(signature, inputs)
        except _ServingError as error:
            context.abort(*error.args)
        response = predict_pb2.PredictResponse()
        for key, value in outputs.items():
            response.outputs[key].CopyFrom(_proto(value))
        response.model_spec.name = spec.name
        response.model_spec.signature_name = signature
        response.model_spec.version.value = model.version
        return response


def _proto(array):
    """Returns an array as the server sends it: as a field of numbers."""
    proto = tf.make_tensor_proto(array.ravel()[:0], array.dtype)
    proto.ClearField("tensor_shape")
    for side in array.shape:
        proto.tensor_shape.dim.add().size = side
    field = {"f": proto.float_val, "i": proto.int64_val}[array.dtype.kind]
    field.extend(array.ravel().tolist())
    return proto
