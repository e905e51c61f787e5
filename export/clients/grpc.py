"""Asks a served network by gRPC, which needs tensorflow-serving-api."""

import os
from typing import Any

from export.clients.server import (
    Array,
    ClientError,
    Outputs,
    Server,
    Signature,
)


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
    server = GrpcServer(address, model, version, timeout)
    return server.predict(images, signature)


class GrpcServer(Server):
    """A model of a server that is asked by gRPC, at `"host:8500"`.

    Raises:
        ClientError: If the package for it is not installed.
    """

    def __init__(
        self, address: str, model: str, version: int | None, timeout: float
    ):
        super().__init__(address, model, version, timeout)
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
        self._grpc, self._tf, self._as_dict = grpc, tf, MessageToDict
        # The service imports all messages.
        self._apis = tensorflow_serving.apis

    def definitions(self) -> dict[str, Any]:
        api = self._apis.get_model_metadata_pb2
        request = api.GetModelMetadataRequest(metadata_field=["signature_def"])
        answer = self._ask("GetModelMetadata", request)
        found = api.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        content = self._as_dict(found, preserving_proto_field_name=True)
        definitions: dict[str, Any] = content["signature_def"]
        return definitions

    def run(self, images: Array, signature: Signature) -> Outputs:
        request = self._apis.predict_pb2.PredictRequest()
        request.model_spec.signature_name = signature.name
        request.inputs["images"].CopyFrom(self._tf.make_tensor_proto(images))
        outputs = self._ask("Predict", request).outputs
        return {k: self._tf.make_ndarray(outputs[k]) for k in sorted(outputs)}

    def _ask(self, method: str, request: Any) -> Any:
        request.model_spec.name = self.model
        if self.version is not None:
            request.model_spec.version.value = self.version
        # Poses may exceed the 4 MiB that a client takes by default.
        unlimited = [("grpc.max_receive_message_length", -1)]
        api = self._apis.prediction_service_pb2_grpc
        with self._grpc.insecure_channel(self.address, unlimited) as channel:
            call = getattr(api.PredictionServiceStub(channel), method)
            try:
                return call(request, timeout=self.timeout)
            except self._grpc.RpcError as error:
                raise self.error(error.code().name, error.details()) from error
