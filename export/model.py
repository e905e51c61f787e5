"""From a Keras model to a version that TensorFlow Serving loads."""

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfcaps
from export import manifest, reference, sizes, tflite, warmup
from export.check_job import check
from export.publish import publish
from export.saved_model import check_graph, graph_versions
from export.server_configs import write_server_configs
from export.signatures import write_saved_model
from tfcaps import rem


def export_model(
    model: keras.Model,
    to: Path,
    *,
    name: str,
    version: int | None = None,
    images: str = "float32",
    levels: int | None = None,
    levels_mode: str = "midtread",
    compacted: bool = True,
    with_tflite: bool = False,
    about: dict[str, Any] | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Path:
    """Writes `<to>/<name>/<version>/`, which appears complete or not at all.

    `export/signatures.py` says what it answers. It is checked before it
    appears, see `export/check.py`.

    Args:
        model: A functional or sequential model with a routed layer.
        to: Folder of all served models. It is made if need be, and gets
            `models.config` and the other configs of the server.
        name: Name of the model for clients.
        version: Int, at least 1. Defaults to the next free one.
        images: `"uint8"` for pixels from 0 to 255, or `"float32"` for pixels in
            [0, 1]. Defaults to `"float32"`.
        levels: Int or `None`. Round the couplings to this many levels.
        levels_mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
            Defaults to `"midtread"`.
        compacted: Bool. Leave out what pruning has left without effect, see
            `tfcaps.rem.compact`, and store weights without their zeros, see
            `export/packed.py`. Defaults to `True`.
        with_tflite: Bool. Also write `model.tflite`. Defaults to `False`.
        about: What else the manifest says.
        log: Function that is told what has been done, a line each.

    Returns:
        The folder of the version.

    Raises:
        ValueError: If the model has no routed layer, or `levels` is below 2, or
            `levels_mode` unknown.
        UserError: If the version exists or a check fails.
        OSError: If it cannot be written.
    """
    served = rem.encoder(model)
    rem.capsule_outputs(served)  # before anything is written
    if levels is not None:
        served = rem.quantize_couplings(served, levels, mode=levels_mode)
    small = rem.compact(served) if compacted else served
    sparsity = _sparsity(served)
    about = {
        "model": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **(about or {}),
        "images": images,
        "levels": levels,
        "levels_mode": levels_mode,
        "sparsity": sparsity,
        "versions": _versions(),
    }

    def write(staged: Path) -> None:
        write_saved_model(small, staged, images, packed=compacted)
        signatures = check_graph(staged)
        reference.write(served, staged, images)
        warmup.write(staged, name, signatures)
        if with_tflite:
            tflite.write(small, staged, images)
        about["graph"] = graph_versions(staged)
        about["signatures"] = {k: s.to_dict() for k, s in signatures.items()}
        if sparsity:
            variants = {"dense": keras.models.clone_model(served)}
            variants["stripped"] = served
            if compacted:
                variants["compacted"] = small
            log(f"measuring {', '.join(variants)} ...")
            about["sizes"] = sizes.measure(variants, images)
            log(sizes.table(about["sizes"]))
        manifest.write(staged, about)
        for line in check(staged):
            log(line)

    target = publish(to / name, version, write)
    write_server_configs(to)
    return target


def _sparsity(model: keras.Model) -> float:
    """Returns the share of zeros, 0 for a model without weights to prune."""
    try:
        return rem.sparsity(model)
    except ValueError:
        return 0.0


def _versions() -> dict[str, str]:
    import tensorflow as tf

    packages = (tfcaps, tf, keras, np)
    versions = {package.__name__: package.__version__ for package in packages}
    return {"python": platform.python_version(), **versions}
