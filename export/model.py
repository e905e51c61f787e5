"""From a Keras model to a version that servers and runtimes load."""

import contextlib
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfcaps
from export import (
    conversion,
    formats,
    int8,
    manifest,
    reference,
    sizes,
    warmup,
)
from export.check_job import check
from export.publish import publish
from export.saved_model import check_graph, graph_versions
from export.server_configs import check_unserved, write_server_configs
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
    written_as: Sequence[str] = ("savedmodel",),
    int8_images: Path | None = None,
    about: dict[str, Any] | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Path:
    """Writes `<to>/<name>/<version>/`, which appears complete or not at all.

    `export/signatures.py` says what it answers. It is checked before it
    appears, see `export/check.py`.

    Args:
        model: A functional or sequential model with a routed layer.
        to: Folder of all served models. It is made if need be, and with a
            SavedModel gets `models.config` and the other configs of the server.
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
        written_as: Names of formats, see `export/formats`. Defaults to the
            SavedModel of TensorFlow Serving.
        int8_images: File of images, see `export/int8.py`, by which the formats
            other than SavedModel are written in int8 too, or `None`.
        about: What else the manifest says.
        log: Function that is told what has been done, a line each.

    Returns:
        The folder of the version.

    Raises:
        ValueError: If the model has no routed layer, or `levels` is below 2, or
            `levels_mode` unknown.
        UserError: If the version exists, a check fails, or a format lacks an
            operation of the model.
        OSError: If it cannot be written.
    """
    served = rem.encoder(model)
    rem.capsule_outputs(served)  # before anything is written
    if levels is not None:
        served = rem.quantize_couplings(served, levels, mode=levels_mode)
    small = _compacted(served) if compacted else served
    sparsity = _sparsity(served)
    about = {
        "model": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **(about or {}),
        "images": images,
        "levels": levels,
        "levels_mode": levels_mode,
        "sparsity": sparsity,
        "formats": list(written_as),
        "versions": _versions(written_as),
    }
    samples = None
    if int8_images is not None:
        shape = tuple(small.inputs[0].shape[1:])
        samples = int8.read(int8_images, shape, images)
    others = [form for form in written_as if form != "savedmodel"]
    is_served = "savedmodel" in written_as

    def write(staged: Path) -> None:
        reference.write(served, staged, images)
        if others:
            signatures = conversion.write(
                others, small, staged, images, samples
            )
            about["signatures"] = signatures
        if samples:
            log("measuring float32 and int8 ...")
            about["int8"] = int8.measure(
                others, staged, samples, levels, levels_mode
            )
            log(int8.table(about["int8"]))
            for sentence in int8.losses(about["int8"]):
                log(sentence)
        if is_served:
            write_saved_model(small, staged, images, packed=compacted)
            found = check_graph(staged)
            warmup.write(staged, name, found)
            about["graph"] = graph_versions(staged)
            about["signatures"] = {k: s.to_dict() for k, s in found.items()}
        if is_served and sparsity:
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

    if not is_served:
        check_unserved(to / name)
    target = publish(to / name, version, write)
    if is_served:
        write_server_configs(to)
    return target


def _compacted(model: keras.Model) -> keras.Model:
    """Returns the smaller model, if clients find all children in it."""
    small = rem.compact(model)
    before, after = (
        rem.capsule_outputs(each).output["couplings"].shape
        for each in (model, small)
    )
    return small if before == after else model


def _sparsity(model: keras.Model) -> float:
    """Returns the share of zeros, 0 for a model without weights to prune."""
    try:
        return rem.sparsity(model)
    except ValueError:
        return 0.0


def _versions(written_as: Sequence[str]) -> dict[str, str]:
    import tensorflow as tf

    packages = (tfcaps, tf, keras, np)
    versions = {package.__name__: package.__version__ for package in packages}
    for name in written_as:
        runtime = formats.FORMATS[name].runtime
        with contextlib.suppress(PackageNotFoundError, ValueError):
            versions[runtime] = installed(runtime.replace("_", "-"))
    return {"python": platform.python_version(), **versions}
