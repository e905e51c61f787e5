"""Files of TensorFlow Serving, read by its own messages."""

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from tfcaps.export import serving


@pytest.mark.parametrize(("dtype", "grey"), [("uint8", 128), ("float32", 0.5)])
def test_warmup_asks_every_signature_for_one_image_and_many(
    tmp_path, dtype, grey
):
    images = {"images": {"dtype": dtype, "shape": [-1, 28, 28, 1]}}
    names = ("serving_default", "explain", "encode")
    signatures = dict.fromkeys(names, {"inputs": images})
    model = "x" * 200  # a length of two bytes
    serving.write_warmup(tmp_path, model, signatures)
    path = str(tmp_path / serving.WARMUP)
    asked = set()
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        assert request.model_spec.name == model
        assert set(request.inputs) == {"images"}
        pixels = tf.make_ndarray(request.inputs["images"])
        assert pixels.dtype == dtype and (pixels == grey).all()
        assert pixels.shape[1:] == (28, 28, 1)
        asked.add((request.model_spec.signature_name, len(pixels)))
    assert asked == {(name, n) for name in names for n in (1, 32)}


def test_configs_list_every_model_that_the_server_can_load(tmp_path):
    (tmp_path / "not-a-model").mkdir()
    for name, file in (
        ("second", "saved_model.pb"),
        ("fírst", "saved_model.pb"),
        ("phone", "model.tflite"),
    ):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / file).touch()
    serving.write_server_configs(tmp_path)
    config = text_format.Parse(
        (tmp_path / "models.config").read_text("utf-8"),
        model_server_config_pb2.ModelServerConfig(),
    )
    models = config.model_config_list.config
    assert [(m.name, m.base_path, m.model_platform) for m in models] == [
        ("fírst", "/models/fírst", "tensorflow"),
        ("second", "/models/second", "tensorflow"),
    ]
    batching = (tmp_path / "batching.config").read_text("utf-8")
    allowed = [
        int(line.split(": ")[1])
        for line in batching.splitlines()
        if line.startswith("allowed_batch_sizes")
    ]
    assert allowed == sorted(allowed) and allowed[0] == 1
    assert f"max_batch_size {{ value: {allowed[-1]} }}" in batching
    assert "prometheus" in (tmp_path / "monitoring.config").read_text("utf-8")
