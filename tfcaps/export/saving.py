"""From a Keras model to a version that servers and runtimes load."""

import contextlib
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import keras

from tfcaps import rem
from tfcaps.export.checking import check, write_reference
from tfcaps.export.int8 import Samples, measure, write_int8
from tfcaps.export.networks import (
    all_outputs,
    describe,
    write_other,
    write_saved_model,
)
from tfcaps.export.pixels import pixels_of
from tfcaps.export.runtimes import FORMATS, ExportError
from tfcaps.export.serving import is_served
from tfcaps.export.tolerance import tolerance_of
from tfcaps.export.versions import publish, write_manifest
from tfcaps.graphs import check_unquantized


def save(
    model: keras.Model,
    path: str | Path,
    *,
    formats: Sequence[str] = ("savedmodel",),
    version: int | None = None,
    input_dtype: str | None = None,
    pixels: int | None = None,
    levels: int | None = None,
    mode: str = "midtread",
    int8: Samples | None = None,
    about: dict[str, Any] | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Path:
    """Writes `<path>/<version>/`, which appears complete or not at all.

    It is checked before it appears, see `check`, and lacks what pruning has
    left without effect, see `tfcaps.rem.compact`. Keras's backend must be
    TensorFlow, which writes all formats, whatever backend trained the model.

    Args:
        model: A functional or sequential model with a routed layer.
        path: Folder of the model's versions, made if need be. Its name is that
            of the model for clients. TensorFlow Serving loads the newest.
        formats: Some of `"savedmodel"` (for TensorFlow Serving), `"litert"`,
            `"onnx"`, `"openvino"`. Defaults to the first.
        version: Int, at least 1. Defaults to the next free one.
        input_dtype: What clients send: `"uint8"`, pixels from 0 to 255, or
            `"float32"`, pixels in [0, 1], or the numbers of what is no image.
            Defaults to what the network takes, see `pixels`.
        pixels: The largest pixel that the network takes, 1 or 255. Bytes are
            divided by 255 for 1 alone. Defaults to 255 if the network takes
            integers or its first layers make bytes small, such as
            `keras.layers.Rescaling(1 / 255)`; otherwise to 1.
        levels: Int or `None`. Round the couplings to this many levels.
        mode: As in `tfcaps.rem.quantize`. Defaults to `"midtread"`.
        int8: Images, `tfcaps.export.int8.Samples`, by which the formats other
            than SavedModel are written in int8 too. What that costs is in the
            manifest. Defaults to `None`.
        about: JSON that the manifest shall have too.
        log: Function that gets a line for each check that was passed.

    Returns:
        The folder of the version.

    Raises:
        ValueError: If the model has no routed layer, an argument is unknown or
            out of range, the backend is another, or `input_dtype` is
            `"float32"` for a network that scales bytes itself.
        ExportError: If the version exists, a check fails, or a format lacks an
            operation of the model.
        OSError: If it cannot be written.

    Example:

    >>> folder = save(model, "served/digits")  # doctest: +SKIP
    """
    if not formats or not set(formats) <= FORMATS.keys():
        raise ValueError(
            f"`formats` must be some of {', '.join(FORMATS)}. Received: "
            f"formats={formats!r}."
        )
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Keras's backend must be tensorflow to export a model. Received: "
            f"{keras.backend.backend()}. Save the model as a .keras file, set "
            "KERAS_BACKEND=tensorflow and load it."
        )
    check_unquantized(model)
    path, served = Path(path), rem.classifier(model)
    if levels is not None:
        served = rem.quantize_couplings(served, levels, mode=mode)
    sent = pixels_of(served, input_dtype, pixels)
    whole = rem.explanation(served)  # before anything is written
    small = _compacted(served)
    network = all_outputs(small, sent)
    others = [form for form in formats if form != "savedmodel"]
    content = {
        "model": path.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **(about or {}),
        "input_dtype": sent.dtype,
        "levels": levels,
        "mode": mode,
        "formats": list(formats),
        "signatures": describe(network, sent),
        "tolerance": tolerance_of(served),
        "versions": _versions(),
    }

    def write(staged: Path) -> None:
        write_reference(whole, staged, sent)
        for form in others:
            write_other(network, form, staged)
            if int8:
                write_int8(network, form, staged, int8.calibration)
        if int8:
            content["int8"] = measure(others, staged, int8, levels, mode)
        if "savedmodel" in formats:
            write_saved_model(small, staged, sent)
        write_manifest(staged, content)
        for line in check(staged):
            log(line)

    if "savedmodel" not in formats and is_served(path):
        raise ExportError(
            f"{path} has versions for TensorFlow Serving, which loads the "
            "newest; add savedmodel to the formats, or give another name."
        )
    return publish(path, version, write)


def _compacted(model: keras.Model) -> keras.Model:
    """Returns the smaller model, if clients find all children in it."""
    small = rem.compact(model)
    before, after = (
        rem.capsule_outputs(each).output["couplings"].shape
        for each in (model, small)
    )
    return small if before == after else model


def _versions() -> dict[str, str]:
    """Returns the versions of Python and of what has a part in an export."""
    installed = {"python": platform.python_version()}
    packages = "tfcaps keras numpy tensorflow ai-edge-litert onnxruntime"
    for package in (*packages.split(), "tensorflow-cpu", "openvino"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed
