"""Serves SavedModels on this machine in TensorFlow Serving's formats.

Folders are `<base>/<name>/<version>/`, as the server wants them. Messages and
status codes are those of its sources; batching and labels are left out.
"""

import contextlib
import json
import re
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import grpc
import keras
import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tfcaps.rem import capsule_outputs

_PREDICT = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")
_GET = re.compile(r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+))?(/metadata)?")
_HTTP = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.NOT_FOUND: 404,
}


def write_saved_model(model, folder, dtype="float32"):
    """Writes a network with the signatures that clients know.

    What `explain` shows are the images themselves, so that one knows it.
    """
    network = capsule_outputs(model)
    scale = 255.0 if dtype == "uint8" else 1.0

    def outputs(images):
        served = network(tf.cast(images, "float32") / scale, training=False)
        classes = tf.argmax(served["lengths"], axis=-1)
        return {**served, "classes": classes}

    def serving_default(images):
        served = outputs(images)
        return {key: served[key] for key in ("lengths", "poses", "classes")}

    def explain(images):
        served = outputs(images)
        saliency = tf.reduce_mean(tf.cast(images, "float32"), axis=-1)
        return {
            "lengths": served["lengths"],
            "classes": served["classes"],
            "couplings": tf.reshape(saliency, [tf.shape(images)[0], -1]),
            "saliency": saliency,
        }

    def encode(images):
        return {"poses": outputs(images)["poses"]}

    shape = (None, *model.inputs[0].shape[1:])
    images = tf.TensorSpec(shape, dtype, name="images")
    archive = keras.export.ExportArchive()
    archive.track(network)
    for endpoint in (serving_default, explain, encode):
        archive.add_endpoint(endpoint.__name__, endpoint, [images])
    archive.write_out(str(folder), verbose=False)


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
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def _invalid(message):
    return _ServingError(grpc.StatusCode.INVALID_ARGUMENT, message)


class _Models:
    """The models of a folder, each loaded when first asked for."""

    def __init__(self, base):
        self._base = base
        self._loaded = {}
        self._lock = threading.Lock()

    def versions(self, name):
        folder = self._base / name
        children = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(p.name) for p in children if p.name.isdecimal())

    def find(self, name, version=None):
        """Returns a version of a model, the newest by default."""
        asked = f"Latest({name})"
        if version is not None:
            asked = f"Specific({name}, {version})"
        known = self.versions(name)
        if not known or version not in (None, *known):
            raise _ServingError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}",
            )
        version = known[-1] if version is None else version
        with self._lock:
            if (name, version) not in self._loaded:
                folder = self._base / name / str(version)
                self._loaded[name, version] = _Model(folder)
            return self._loaded[name, version]


class _Model:
    def __init__(self, folder):
        self.name = folder.parent.name
        self.version = int(folder.name)
        saved = saved_model_pb2.SavedModel()
        saved.ParseFromString((folder / "saved_model.pb").read_bytes())
        (graph,) = (
            graph
            for graph in saved.meta_graphs
            if list(graph.meta_info_def.tags) == ["serve"]
        )
        self.definitions = dict(graph.signature_def)
        self._model = tf.saved_model.load(str(folder))

    def definition_map(self):
        return get_model_metadata_pb2.SignatureDefMap(
            signature_def=self.definitions
        )

    def predict(self, name, inputs):
        """Returns the outputs of a signature, arrays by their names."""
        definition = self.definitions[name]
        tensors = {}
        for key, info in definition.inputs.items():
            shape = [side.size for side in info.tensor_shape.dim]
            value = inputs[key]
            if tf.as_dtype(value.dtype).as_datatype_enum != info.dtype:
                raise _invalid(f"input {key} has the wrong type")
            if not tf.TensorShape(
                [None if side < 0 else side for side in shape]
            ).is_compatible_with(value.shape):
                # The graph says so, in other words for each operation.
                raise _invalid(
                    f"input {key} has the shape {list(value.shape)}, which is "
                    f"not {shape}"
                )
            tensors[key] = tf.constant(value)
        outputs = self._model.signatures[name](**tensors)
        return {key: outputs[key].numpy() for key in sorted(outputs)}


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
        except _ServingError as error:
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
            raise _invalid(f"Malformed request: {self.command} {self.path}")
        name, version, *rest = match.groups()
        return unquote(name), None if version is None else int(version), *rest

    def _get(self):
        models = self.server.models
        name, version, metadata = self._parse(_GET)
        if metadata:
            return _metadata(models.find(name, version))
        known = models.versions(name)
        asked = known if version is None else {version} & set(known)
        if not asked:
            which = "any versions" if version is None else f"version {version}"
            raise _ServingError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find {which} of model {name}",
            )
        good = {"error_code": "OK", "error_message": ""}
        return {
            "model_version_status": [
                {"version": str(n), "state": "AVAILABLE", "status": good}
                for n in asked
            ]
        }

    def _post(self, body):
        name, version = self._parse(_PREDICT)
        try:
            request = json.loads(body)
        except ValueError as error:
            raise _invalid(f"JSON Parse error: {error}") from error
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
    """Answers rows ("instances") with rows, columns ("inputs") with columns."""
    signature = request.get("signature_name", "serving_default")
    if signature not in model.definitions:
        raise _invalid(
            f'Serving signature name: "{signature}" not found in signature def'
        )
    infos = model.definitions[signature].inputs
    if "instances" in request:
        values = _columns(request["instances"], infos)
    elif "inputs" in request:
        values = request["inputs"]
        if not isinstance(values, dict):
            values = dict.fromkeys(infos, values)
    else:
        raise _invalid("Missing 'inputs' or 'instances' key")
    for key in infos:
        if key not in values:
            raise _invalid(f"Missing named input: {key} in 'inputs' object.")
    tensors = {key: _tensor(values[key], infos[key]) for key in infos}
    outputs = model.predict(signature, tensors)
    lists = {key: value.tolist() for key, value in outputs.items()}
    if "instances" not in request:
        (first, *more) = lists.values()
        return {"outputs": lists if more else first}
    rows = [
        dict(zip(lists, row, strict=True))
        for row in zip(*lists.values(), strict=True)
    ]
    if len(lists) == 1:
        (rows,) = lists.values()
    return {"predictions": rows}


def _columns(rows, infos):
    if not isinstance(rows[0], dict):  # a single input needs no name
        return dict.fromkeys(infos, rows)
    for number, row in enumerate(rows):
        if set(row) != set(infos):
            raise _invalid(
                f"Failed to process element: {number} of 'instances' list. "
                f"JSON object: {json.dumps(row)} keys must be equal to: "
                f"{','.join(sorted(infos))}"
            )
    return {key: [row[key] for row in rows] for key in infos}


def _tensor(values, info):
    dtype = tf.as_dtype(info.dtype)
    try:
        array = np.array(values)
    except ValueError as error:
        raise _invalid(f"Encountered list at unexpected size: {error}") from (
            error
        )
    if dtype.is_integer and array.dtype.kind != "i":
        raise _invalid(
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
                raise _ServingError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f'Serving signature key "{name}" not found.',
                )
            wanted = set(model.definitions[name].inputs)
            if set(request.inputs) != wanted:
                raise _invalid(
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

    def GetModelMetadata(self, request, context):
        with _status_for(context):
            if list(request.metadata_field) != ["signature_def"]:
                raise _invalid(
                    "GetModelMetadataRequest must specify at least one "
                    "metadata_field"
                )
            model = self._find(request.model_spec)
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = model.name
            response.model_spec.version.value = model.version
            response.metadata["signature_def"].Pack(model.definition_map())
            return response

    def _find(self, spec):
        version = spec.version.value if spec.HasField("version") else None
        return self._models.find(spec.name, version)


@contextlib.contextmanager
def _status_for(context):
    try:
        yield
    except _ServingError as error:
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
