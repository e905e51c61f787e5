"""The files that TensorFlow Serving reads."""

import re

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tfcaps.export import serving


def test_configs_list_every_model_that_the_server_can_load(tmp_path):
    (tmp_path / "not-a-model").mkdir()
    for file in (
        "second/1/saved_model.pb", "fírst/1/saved_model.pb",
        "phone/1/model.tflite",
    ):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
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
    found = re.findall(r"^allowed_batch_sizes: (\d+)$", batching, re.M)
    allowed = [*map(int, found)]
    assert allowed == sorted(allowed) and allowed[0] == 1
    assert f"max_batch_size {{ value: {allowed[-1]} }}" in batching
    assert "prometheus" in (tmp_path / "monitoring.config").read_text("utf-8")
