"""The messages of TensorFlow Serving that an export writes and reads.

Their fields have the names and numbers of tensorflow-serving-api, as far as
they are used here. That package would install all of TensorFlow a second time
beside `tensorflow-cpu`. https://github.com/tensorflow/serving
"""

import functools
from typing import Any

_PACKAGE = "tfcaps.serving"
_TENSOR = "tensorflow.TensorProto"
# For each message its fields: number, and type, where * means any number.
_MESSAGES = {
    "ModelSpec": {"name": (1, "string"), "signature_name": (3, "string")},
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, "PredictRequest.InputsEntry*"),
    },
    "PredictRequest.InputsEntry": {"key": (1, "string"), "value": (2, _TENSOR)},
    "PredictLog": {"request": (1, "PredictRequest")},
    "PredictionLog": {"predict_log": (6, "PredictLog")},
    "ModelConfig": {
        "name": (1, "string"),
        "base_path": (2, "string"),
        "model_platform": (4, "string"),
    },
    "ModelConfigList": {"config": (1, "ModelConfig*")},
    "ModelServerConfig": {"model_config_list": (1, "ModelConfigList")},
}


@functools.cache
def message(name: str) -> Any:
    """Returns the class of a message, such as `"PredictionLog"`."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(
        _pool().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    )


@functools.cache
def _pool() -> Any:
    """Returns protobuf's pool of descriptions, with those of `_MESSAGES`."""
    from google.protobuf import descriptor_pb2
    from tensorflow.core.framework import tensor_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="tfcaps/serving.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[tensor_pb2.DESCRIPTOR.name],
    )
    made: dict[str, Any] = {}
    for name, fields in _MESSAGES.items():
        outer, _, inner = name.rpartition(".")
        # An entry of a map is a message within the one that has the map.
        within = made[outer].nested_type if outer else file.message_type
        made[name] = within.add(name=inner)
        made[name].options.map_entry = bool(outer)
        for field, (number, kind) in fields.items():
            made[name].field.append(_field(field, number, kind))
    pool = tensor_pb2.DESCRIPTOR.pool
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _field(name: str, number: int, kind: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    repeated = kind.endswith("*")
    field = Field(
        name=name,
        number=number,
        label=Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL,
        type=Field.TYPE_STRING if kind == "string" else Field.TYPE_MESSAGE,
    )
    kind = kind.removesuffix("*")
    if kind == _TENSOR:
        field.type_name = f".{_TENSOR}"
    elif kind != "string":
        field.type_name = f".{_PACKAGE}.{kind}"
    return field
