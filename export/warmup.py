"""Requests with which a server warms a model up before it takes over."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli import UserError
from export.saved_model import Signature
from export.serving_protos import message

NAME = "assets.extra/tf_serving_warmup_requests"

# The least and the largest batch that `batching.config` allows.
BATCHES = (1, 32)
# A server refuses more.
_MOST_RECORDS = 1000


def write(
    folder: Path,
    model_name: str,
    signatures: dict[str, Signature],
    batches: Sequence[int] = BATCHES,
) -> None:
    """Writes a request of grey images for every signature and batch.

    Args:
        folder: An exported folder.
        model_name: Name of the model for clients.
        signatures: Those of the model.
        batches: Ints. Numbers of images.
    """
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    path = folder / NAME
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, signature in signatures.items():
            dtype, shape = signature.inputs["images"]
            for batch in batches:
                tensor = tensor_pb2.TensorProto(
                    dtype=tf.as_dtype(dtype).as_datatype_enum,
                    tensor_shape=tf.TensorShape([batch, *shape[1:]]).as_proto(),
                )
                # One value stands for all, which keeps the file small.
                if dtype == "uint8":
                    tensor.int_val.append(128)
                else:
                    tensor.float_val.append(0.5)
                spec = message("ModelSpec")(
                    name=model_name, signature_name=name
                )
                request = message("PredictRequest")(
                    model_spec=spec, inputs={"images": tensor}
                )
                log = message("PredictionLog")(
                    predict_log=message("PredictLog")(request=request)
                )
                writer.write(log.SerializeToString())


def read(
    folder: Path, signatures: dict[str, Signature]
) -> list[tuple[str, NDArray[Any]]]:
    """Returns the signature and the images of each request.

    Raises:
        UserError: If a server could not replay the file.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    path = folder / NAME

    def wrong(why: str) -> UserError:
        return UserError(f"warmup: {path} {why}; export the model anew.")

    try:
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        logs = [message("PredictionLog").FromString(r) for r in records]
    except (tf.errors.OpError, DecodeError) as error:
        raise wrong("is missing or broken") from error
    if not 1 <= len(logs) <= _MOST_RECORDS:
        raise wrong(f"has {len(logs)} records, not 1 to {_MOST_RECORDS}")
    requests = []
    for number, log in enumerate(logs, start=1):
        request = log.predict_log.request
        name = request.model_spec.signature_name or "serving_default"
        if not log.HasField("predict_log") or name not in signatures:
            raise wrong(
                f"asks in record {number} for no signature of the model"
            )
        if set(request.inputs) != {"images"}:
            raise wrong(
                f"gives in record {number} the inputs "
                f"{', '.join(sorted(request.inputs)) or 'none'}, not images"
            )
        images = np.asarray(tf.make_ndarray(request.inputs["images"]))
        dtype, shape = signatures[name].inputs["images"]
        if images.dtype.name != dtype or list(images.shape[1:]) != shape[1:]:
            raise wrong(
                f"gives in record {number} {images.dtype.name} images "
                f"{list(images.shape[1:])}, not {dtype} {shape[1:]}"
            )
        requests.append((name, images))
    return requests
