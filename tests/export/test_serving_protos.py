"""Messages of TensorFlow Serving are those of tensorflow-serving-api."""

import pytest
from tensorflow_serving.apis import (
    model_pb2,
    predict_pb2,
    prediction_log_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from export.serving_protos import message

MODULES = {
    "ModelSpec": model_pb2,
    "PredictRequest": predict_pb2,
    "PredictLog": prediction_log_pb2,
    "PredictionLog": prediction_log_pb2,
    "ModelConfig": model_server_config_pb2,
    "ModelConfigList": model_server_config_pb2,
    "ModelServerConfig": model_server_config_pb2,
}


def fields(descriptor):
    """Returns number, type and whether it is repeated for each field."""
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.message_type and field.message_type.name,
        )
        for field in descriptor.fields
    }


@pytest.mark.parametrize("name", MODULES)
def test_fields_are_those_of_the_server(name):
    theirs = fields(getattr(MODULES[name], name).DESCRIPTOR)
    ours = fields(message(name).DESCRIPTOR)
    assert ours and ours == {field: theirs[field] for field in ours}


def test_the_server_reads_what_is_written():
    request = message("PredictRequest")()
    request.model_spec.name = "digits"
    request.inputs["images"].float_val.append(0.5)
    read = predict_pb2.PredictRequest.FromString(request.SerializeToString())
    assert read.model_spec.name == "digits"
    assert list(read.inputs["images"].float_val) == [0.5]
    again = message("PredictRequest").FromString(read.SerializeToString())
    assert again == request
