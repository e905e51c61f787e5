"""Serves SavedModels on this machine in TensorFlow Serving's formats.

Paths, JSON and protocol buffers are those of its sources. Of its errors there
is that of a model which it does not have.
"""

import contextlib
import functools
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
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tfcaps.export import runtimes

_PATH = re.compile(r"/v1/models/([^/:]+)(/metadata|:predict)")


class Model:
    """A SavedModel: its signatures, and what it answers."""

    def __init__(self, folder):
        content = (folder / "saved_model.pb").read_bytes()
        [graph] = saved_model_pb2.SavedModel.FromString(content).meta_graphs
        self.signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def=graph.signature_def
        )
        self.ask = runtimes.Model(folder, "savedmodel").load()


@functools.cache
def load(base, name):
    """Returns the newest version of a model, `None` if there is none."""
    folder = base / name
    children = folder.iterdir() if folder.is_dir() else ()
    versions = [int(p.name) for p in children if p.name.isdecimal()]
    return Model(folder / str(max(versions))) if versions else None


@contextlib.contextmanager
def serve_rest(base):
    """Yields the URL of a server for the models in a folder."""
    for folder in base.iterdir():  # so that nobody waits for it
        load(base, folder.name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.base = base
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
    server = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _Servicer(base), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(**json.loads(body))

    def log_message(self, *args):
        pass

    def _answer(self, inputs=None, signature_name="serving_default"):
        name, what = _PATH.fullmatch(self.path).groups()
        model = load(self.server.base, unquote(name))
        status = 200 if model else 404
        if model is None:
            missing = f"Servable not found for request: Latest({unquote(name)})"
            content = {"error": missing}
        elif what == "/metadata":
            # Each number of 64 bits becomes a string.
            signatures = MessageToDict(
                model.signatures,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
            content = {"metadata": {"signature_def": signatures}}
        else:
            known = model.signatures.signature_def[signature_name].inputs
            dtype = tf.as_dtype(known["images"].dtype).as_numpy_dtype
            values = inputs["images"] if isinstance(inputs, dict) else inputs
            outputs = model.ask(signature_name, np.array(values, dtype))
            lists = {key: value.tolist() for key, value in outputs.items()}
            (first, *more) = lists.values()
            content = {"outputs": lists if more else first}
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class _Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, base):
        self._base = base

    def Predict(self, request, context):
        model = load(self._base, request.model_spec.name)
        signature = request.model_spec.signature_name or "serving_default"
        images = tf.make_ndarray(request.inputs["images"])
        response = predict_pb2.PredictResponse()
        for key, value in model.ask(signature, images).items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response
