"""Files of TensorFlow Serving beside its models."""

import json
from pathlib import Path

from tfcaps.export.runtimes import FORMATS
from tfcaps.export.versions import versions
from tfcaps.files import write_atomically

# Where the guide's docker command shows the folder to the server.
MOUNTED_AT = "/models"

# Batches are padded to the next of these, and wait for more images so long.
BATCHES = (1, 2, 4, 8, 16, 32)
BATCH_TIMEOUT_MICROS = 1000
_BATCHING = f"""\
# Requests are put together up to the largest batch, but do not wait long.
max_batch_size {{ value: {BATCHES[-1]} }}
batch_timeout_micros {{ value: {BATCH_TIMEOUT_MICROS} }}
max_enqueued_batches {{ value: 1000 }}
""" + "".join(f"allowed_batch_sizes: {batch}\n" for batch in BATCHES)
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
