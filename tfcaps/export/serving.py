"""Files of TensorFlow Serving beside a model: configs and warm-up requests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfcaps.export.runtimes import FORMATS
from tfcaps.export.versions import versions
from tfcaps.files import write_atomically

WARMUP = "assets.extra/tf_serving_warmup_requests"
# Where the guide's docker command shows the folder to the server.
MOUNTED_AT = "/models"

# Batches are padded to the next of these.
_BATCHES = (1, 2, 4, 8, 16, 32)
_GREY: dict[str, Any] = {
    "uint8": {"int_val": [128]},
    "float32": {"float_val": [0.5]},
}
_BATCHING = f"""\
# Requests are put together up to the largest batch, but do not wait long.
max_batch_size {{ value: {_BATCHES[-1]} }}
batch_timeout_micros {{ value: 1000 }}
max_enqueued_batches {{ value: 1000 }}
""" + "".join(f"allowed_batch_sizes: {batch}\n" for batch in _BATCHES)
_MONITORING = """\
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""
_MODEL = """\
  config {{
    name: {name}
    base_path: {path}
    model_platform: "tensorflow"
  }}
"""


def is_served(base: Path) -> bool:
    """Tells whether the newest version of a model is one for the server."""
    newest = versions(base)[-1:]
    return any((base / str(n) / FORMATS["savedmodel"]).exists() for n in newest)


def write_server_configs(to: Path) -> None:
    """Writes `models.config`, `batching.config` and `monitoring.config`.

    The first lists the models whose newest version is a SavedModel.
    """
    models = "".join(
        _MODEL.format(
            name=json.dumps(base.name),
            path=json.dumps(f"{MOUNTED_AT}/{base.name}"),
        )
        for base in sorted(path for path in to.iterdir() if is_served(path))
    )
    contents = {
        "models.config": f"model_config_list {{\n{models}}}\n",
        "batching.config": _BATCHING,
        "monitoring.config": _MONITORING,
    }
    for name, content in contents.items():
        with write_atomically(to / name, "w") as file:
            file.write(content)


def write_warmup(
    folder: Path, name: str, signatures: Mapping[str, Any]
) -> None:
    """Writes requests with which a server warms a model up before it answers.

    Each signature is asked for the least and the largest batch, in a TFRecord
    file of `PredictionLog`. The fields have the numbers of
    tensorflow-serving-api, which would install all of TensorFlow again beside
    `tensorflow-cpu`. https://github.com/tensorflow/serving
    """
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    path = folder / WARMUP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, about in sorted(signatures.items()):
            images = about["inputs"]["images"]
            for batch in (_BATCHES[0], _BATCHES[-1]):
                # One grey value stands for all, which keeps the file small.
                grey = _GREY.get(images["dtype"], {"int_val": [1]})
                shape = tf.TensorShape([batch, *images["shape"][1:]])
                tensor = tensor_pb2.TensorProto(
                    dtype=tf.as_dtype(images["dtype"]).as_datatype_enum,
                    tensor_shape=shape.as_proto(),
                    **grey,
                )
                spec = _field(1, name.encode()) + _field(3, signature.encode())
                given = _field(1, b"images")
                given += _field(2, tensor.SerializeToString())
                request = _field(1, spec) + _field(2, given)
                writer.write(_field(6, _field(1, request)))


def _field(number: int, content: bytes) -> bytes:
    """Returns a field of a protocol buffer: a string or a message."""
    size, rest = b"", len(content)
    while rest >= 128:
        size += bytes([rest % 128 + 128])
        rest //= 128
    return bytes([8 * number + 2]) + size + bytes([rest]) + content
