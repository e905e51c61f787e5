"""Configs of TensorFlow Serving for a folder of exported models."""

from pathlib import Path

from cli import UserError
from export.publish import versions
from export.serving_protos import message
from export.warmup import BATCHES
from tfcaps.files import write_atomically

# Batches are padded to the next of these.
_ALLOWED = (1, 2, 4, 8, 16, BATCHES[-1])

# Where the guide's docker command shows the folder to the server.
MOUNTED_AT = "/models"

_BATCHING = """\
# Requests are put together up to the largest batch, but do not wait long.
max_batch_size {{ value: {largest} }}
batch_timeout_micros {{ value: 1000 }}
max_enqueued_batches {{ value: 1000 }}
{allowed}
"""

_MONITORING = """\
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""


def check_unserved(base: Path) -> None:
    """Refuses a version that a server would try to load, and could not.

    Args:
        base: Folder of a model that gets a version without a SavedModel.

    Raises:
        UserError: If it has versions that TensorFlow Serving loads.
    """
    if _is_served(base):
        raise UserError(
            f"{base} has versions for TensorFlow Serving, which loads the "
            "newest; add savedmodel to --format, or give another --model-name."
        )


def _is_served(base: Path) -> bool:
    newest = versions(base)[-1:]
    return any((base / str(n) / "saved_model.pb").exists() for n in newest)


def write_server_configs(to: Path) -> None:
    """Writes `models.config`, `batching.config` and `monitoring.config`.

    Args:
        to: Folder of all served models. Those whose newest version is a
            SavedModel are listed.
    """
    from google.protobuf import text_format

    config = message("ModelServerConfig")()
    for base in sorted(path for path in to.iterdir() if _is_served(path)):
        config.model_config_list.config.add(
            name=base.name,
            base_path=f"{MOUNTED_AT}/{base.name}",
            model_platform="tensorflow",
        )
    allowed = "\n".join(f"allowed_batch_sizes: {batch}" for batch in _ALLOWED)
    contents = {
        "models.config": text_format.MessageToString(config),
        "batching.config": _BATCHING.format(
            largest=BATCHES[-1], allowed=allowed
        ),
        "monitoring.config": _MONITORING,
    }
    for name, content in contents.items():
        with write_atomically(to / name, "w") as file:
            file.write(content)
