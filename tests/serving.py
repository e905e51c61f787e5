"""Serves SavedModels on this machine in TensorFlow Serving's formats.

Messages and status codes are those of its sources; rows ("instances"), states
of versions, batching and labels are left out.
"""

import contextlib
import json
import re
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from tensorflow_serving.apis import (
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.served_models import Models, ServingError, invalid

_PREDICT = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")
_METADATA = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?/metadata")
_HTTP = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.NOT_FOUND: 404,
}


@contextlib.contextmanager
def serve_rest(base):
    """Yields the URL of a server for the models in a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.models = Models(base)
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
        _Servicer(Models(base)), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        workers.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(self._get)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(lambda: self._post(body))

    def log_message(self, *args):
        pass

    def _answer(self, method):
        try:
            status, content = 200, method()
        except ServingError as error:
            status, content = _HTTP[error.code], {"error": str(error)}
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _parse(self, pattern):
        match = pattern.fullmatch(self.path)
        if not match:
            raise invalid(f"Malformed request: {self.command} {self.path}")
        name, version = match.groups()
        return unquote(name), None if version is None else int(version)

    def _get(self):
        return _metadata(self.server.models.find(*self._parse(_METADATA)))

    def _post(self, body):
        name, version = self._parse(_PREDICT)
        try:
            request = json.loads(body)
        except ValueError as error:
            raise invalid(f"JSON Parse error: {error}") from error
        model = self.server.models.find(name, version)
        return _predict(model, request)


def _metadata(model):
    """Returns what the server prints: each number of 64 bits is a string."""
    definitions = MessageToDict(
        model.definition_map(),
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
    if signature not in model.definitions:
        raise invalid(
            f'Serving signature name: "{signature}" not found in signature def'
        )
    infos = model.definitions[signature].inputs
    if "inputs" not in request:
        raise invalid("Missing 'inputs' or 'instances' key")
    values = request["inputs"]
    if not isinstance(values, dict):
        values = dict.fromkeys(infos, values)
    for key in infos:
        if key not in values:
            raise invalid(f"Missing named input: {key} in 'inputs' object.")
    tensors = {key: _tensor(values[key], infos[key]) for key in infos}
    outputs = model.predict(signature, tensors)
    lists = {key: value.tolist() for key, value in outputs.items()}
    (first, *more) = lists.values()
    return {"outputs": lists if more else first}


def _tensor(values, info):
    dtype = tf.as_dtype(info.dtype)
    try:
        array = np.array(values)
    except ValueError as error:
        raise invalid(f"Encountered list at unexpected size: {error}") from (
            error
        )
    if dtype.is_integer and array.dtype.kind != "i":
        raise invalid(
            f"JSON Value: {array.ravel()[:1]} Type: Number is not of expected "
            f"type: {dtype.name}"
        )
    return array.astype(dtype.as_numpy_dtype)


class _Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, models):
        self._models = models

    def Predict(self, request, context):
        with _status_for(context):
            spec = request.model_spec
            model = self._find(spec)
            name = spec.signature_name or "serving_default"
            if name not in model.definitions:
                raise ServingError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f'Serving signature key "{name}" not found.',
                )
            wanted = set(model.definitions[name].inputs)
            if set(request.inputs) != wanted:
                raise invalid(
                    "input size does not match signature: "
                    f"{len(request.inputs)}!={len(wanted)}"
                )
            inputs = {
                key: tf.make_ndarray(value)
                for key, value in request.inputs.items()
            }
            response = predict_pb2.PredictResponse()
            for key, value in model.predict(name, inputs).items():
                response.outputs[key].CopyFrom(_proto(value))
            response.model_spec.name = spec.name
            response.model_spec.signature_name = name
            response.model_spec.version.value = model.version
            return response

    def _find(self, spec):
        version = spec.version.value if spec.HasField("version") else None
        return self._models.find(spec.name, version)


@contextlib.contextmanager
def _status_for(context):
    try:
        yield
    except ServingError as error:
        context.abort(error.code, str(error))


def _proto(array):
    """Returns an array as the server sends it: as a field of numbers."""
    proto = tf.make_tensor_proto(array.ravel()[:0], array.dtype)
    proto.ClearField("tensor_shape")
    for side in array.shape:
        proto.tensor_shape.dim.add().size = side
    field = {"f": proto.float_val, "i": proto.int64_val}[array.dtype.kind]
    field.extend(array.ravel().tolist())
    return proto
