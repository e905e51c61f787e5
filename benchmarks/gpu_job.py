"""Measures whole steps on one GPU: what `benchmarks/gpu.py` does."""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import keras

import tfcaps
from benchmarks import machine, models
from benchmarks.aims import UNMEASURED
from benchmarks.measure import interleaved
from cli import UserError, version_of
from markdown_table import markdown
from tfcaps.files import write_atomically
from training.models import network

ROOT = Path(__file__).resolve().parents[1]
_BACKENDS = ("jax", "tensorflow")
_PACKAGES = ("keras", *_BACKENDS, "torch")
# The one that is also written in PyTorch.
_COMPARED = "dr_capsnet"
_PEAK = (
    "from benchmarks import gpu_job; "
    "print(gpu_job.peak_of_training({name!r}, {batch}))"
)
_INTRODUCTION = """\
Times are medians over rounds in which all candidates of a row take turns. A
step is Keras' `train_on_batch`, from a batch in the host's memory to its loss
there, with Adam. XLA compiles it whole, unless the table says otherwise. The
floor is the same network up to the children of its first routed layer, with one
dense layer instead of all that follows; the share is the floor's time / the
network's. Peak memory (MB are 10^6 bytes) is that of training steps on the GPU
in a process of their own, compiling included."""
_PYTORCH = """\
DR-CapsNet without routing bias, couplings constant, beside the public
formulation in eager PyTorch (`benchmarks/pytorch.py`): the same network, loss,
optimiser and batch, in one process. On a GPU PyTorch too may round products to
TF32 and try ways to convolve, and its memory is that of a step after others."""


def run(settings: Mapping[str, Any], out: Path) -> None:
    """Measures everything and writes the two files.

    Args:
        settings: `models`, `batch`, `rounds` and `quick`, as the flags.
        out: Folder of the files.
    """
    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        raise UserError(
            f"this benchmark needs KERAS_BACKEND={' or '.join(_BACKENDS)}, not "
            f"{backend!r}."
        )
    out.mkdir(parents=True, exist_ok=True)
    described = describe()
    names, on_gpu = settings["models"], described["gpu"]
    compared = _COMPARED in names
    result = {
        "machine": described,
        "command": _command(settings),
        "settings": settings,
        "models": [_row(name, settings, on_gpu) for name in names],
        "pytorch": _beside_pytorch(settings, on_gpu) if compared else None,
    }
    with write_atomically(out / "gpu.json", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    with write_atomically(out / "gpu.md", "w") as file:
        file.write(page(result))
    print(f"written: {out / 'gpu.md'}")


def describe() -> dict[str, Any]:
    """Returns date, commit, device, backend and versions."""
    name = _gpu_name()
    versions = {
        package: version
        for package in _PACKAGES
        if (version := version_of(package))
    }
    return {
        "date": date.today().isoformat(),
        "commit": machine.commit(),
        "device": name or machine.cpu(),
        "gpu": name is not None,
        "backend": keras.backend.backend(),
        "versions": {"python": platform.python_version(), **versions},
    }


def peak_of_training(name: str, batch: int) -> int | None:
    """Returns the most bytes on the GPU while this process trains two steps.

    It must have done nothing before.
    """
    size = _size(name, batch)
    model = _build(name, size)
    for _ in range(2):
        model.train_on_batch(*models.random_data(size))
    if keras.backend.backend() == "jax":
        import jax

        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")

    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def page(result: Mapping[str, Any]) -> str:
    """Returns the page of results: origin, aims, and the two tables."""
    sections = [
        "# Whole steps on one GPU",
        _origin(result),
        markdown([("what", "aim", "reached"), *_aims(result)]),
        _INTRODUCTION,
        _model_table(result),
        "## Beside PyTorch",
        _PYTORCH,
        _pytorch_table(result),
    ]
    return "\n\n".join(sections) + "\n"


def _gpu_name() -> str | None:
    """Returns the name of the first GPU, or None where there is none."""
    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind

    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None
    details = tf.config.experimental.get_device_details(gpus[0])
    return details.get("device_name", gpus[0].name)


def _command(settings: Mapping[str, Any]) -> str:
    """Returns the command that measures the same."""
    flags = [f"--{name} {settings[name]}" for name in ("batch", "rounds")]
    flags += ["--quick"] if settings["quick"] else []
    return (
        f"KERAS_BACKEND={keras.backend.backend()} python -m benchmarks.gpu "
        f"--models {','.join(settings['models'])} {' '.join(flags)}"
    )


def _row(name: str, settings: Any, on_gpu: bool) -> dict[str, Any]:
    """Measures training and prediction of a network and of its floor."""
    size = _size(name, settings["batch"])
    peak_bytes = _peak(name, size.batch) if on_gpu else None
    model = _build(name, size)
    nets = {"network": model, "floor": models.floor(model)}
    models.compile_network(nets["floor"], name)
    images, labels = models.random_data(size)
    training = interleaved(
        f"{name}, training",
        {k: partial(_train, net, images, labels) for k, net in nets.items()},
        settings["rounds"],
    )
    prediction = interleaved(
        f"{name}, prediction",
        {k: partial(net.predict_on_batch, images) for k, net in nets.items()},
        settings["rounds"],
    )
    keras.utils.clear_session()
    return {
        "name": name,
        "images": list(images.shape),
        "jit_compile": bool(model.jit_compile),
        "training": training,
        "prediction": prediction,
        "peak_bytes": peak_bytes,
    }


def _beside_pytorch(settings: Any, on_gpu: bool) -> dict[str, Any]:
    """Measures a training step of DR-CapsNet, of tfcaps and of PyTorch."""
    size = _size(_COMPARED, settings["batch"])
    model = tfcaps.models.dr_capsnet(size.shape, size.classes, use_bias=False)
    models.compile_network(model, _COMPARED)
    data = models.random_data(size)
    steps: dict[str, Callable[[], float]] = {
        "tfcaps": partial(_train, model, *data)
    }
    missing, peak_bytes = None, None
    try:
        from benchmarks import pytorch

        capsnet = pytorch.make_network(on_gpu)
    except ModuleNotFoundError:
        missing = "torch is not installed"
    except (ImportError, OSError, RuntimeError) as error:
        missing = f"torch does not work here: {error}".partition("\n")[0]
    else:
        steps["PyTorch"] = pytorch.make_step(capsnet, *data)
        peak_bytes = pytorch.peak_bytes(steps["PyTorch"]) if on_gpu else None
    title = f"{_COMPARED} beside PyTorch"
    times = interleaved(title, steps, settings["rounds"])
    return {"times": times, "missing": missing, "peak_bytes": peak_bytes}


def _train(model: keras.Model, images: Any, labels: Any) -> float:
    """Trains one step; the loss is a float only when it is done."""
    return float(model.train_on_batch(images, labels))


def _build(name: str, size: models.Size) -> keras.Model:
    model = network(name).build(size.shape, size.classes)
    models.compile_network(model, name)
    return model


def _size(name: str, batch: int) -> models.Size:
    return models.SIZES.get(name, models.Size())._replace(batch=batch)


def _peak(name: str, batch: int) -> int | None:
    """Returns `peak_of_training`, told by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK.format(name=name, batch=batch)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    last = done.stdout.split()[-1:]
    if done.returncode or last == ["None"]:
        print(f"{name}, memory: {done.stderr[-1000:] or UNMEASURED}")
        return None
    return int(last[0])


def _origin(result: Mapping[str, Any]) -> str:
    """Returns the lines that say when, where and of what this was run."""
    described = result["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in described["versions"].items())
    kind = "" if described["gpu"] else " (a CPU: no GPU was found)"
    return (
        f"{described['date']}, commit {described['commit'] or 'unknown'}, "
        f"{described['device']}{kind}, backend {described['backend']}, "
        f"{versions}.\n\n    {result['command']}"
    )


def _aims(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the table of aims; what is none of a GPU's is marked."""
    marks = [] if result["machine"]["gpu"] else ["CPU"]
    marks += ["quick"] if result["settings"]["quick"] else []
    mark = f" ({', '.join(marks)})" if marks else ""
    shares = ", ".join(
        f"{row['name']} {_share(row['training']):.3f}{mark}"
        for row in result["models"]
    )
    ratio = _ratio(result["pytorch"])
    reached = f"{ratio:.2f}x{mark}" if ratio else UNMEASURED
    return [
        ("GPU, whole step: floor time / network time", "0.7", shares),
        ("PyTorch formulation / tfcaps", "2x", reached),
    ]


def _model_table(result: Mapping[str, Any]) -> str:
    rows = [
        (
            *("network", "images", "XLA", "peak, MB"),
            *("step, ms", "images / s", "floor, ms", "share"),
            *("prediction, ms", "images / s", "floor, ms", "share"),
        )
    ]
    for row in result["models"]:
        cells = [
            row["name"],
            "x".join(map(str, row["images"])),
            "whole" if row["jit_compile"] else "not whole",
            _megabytes(row["peak_bytes"]),
        ]
        for times in (row["training"], row["prediction"]):
            cells += _speed(times["network"], row["images"][0])
            cells += [f"{times['floor']['ms']:.2f}", f"{_share(times):.3f}"]
        rows.append(tuple(cells))
    return markdown(rows, left=3)


def _pytorch_table(result: Mapping[str, Any]) -> str:
    if result["pytorch"] is None:
        return f"Not run without {_COMPARED}."
    measured, batch = result["pytorch"], result["settings"]["batch"]
    ours = next(x for x in result["models"] if x["name"] == _COMPARED)
    times, ratio = measured["times"], _ratio(measured)
    speed, peak = _speed(times["tfcaps"], batch), ours["peak_bytes"]
    rows = [
        ("formulation", "step, ms", "images / s", "ratio", "peak, MB"),
        ("tfcaps", *speed, "", _megabytes(peak)),
    ]
    if ratio is None:
        rows.append(("PyTorch", measured["missing"], "", "", ""))
    else:
        speed, peak = _speed(times["PyTorch"], batch), measured["peak_bytes"]
        rows.append(("PyTorch", *speed, f"{ratio:.2f}", _megabytes(peak)))
    return markdown(rows)


def _ratio(measured: Mapping[str, Any] | None) -> float | None:
    """Returns the time of PyTorch's step / that of tfcaps."""
    if measured is None or "PyTorch" not in measured["times"]:
        return None
    times = measured["times"]
    return times["PyTorch"]["ms"] / times["tfcaps"]["ms"]


def _share(times: Mapping[str, Any]) -> float:
    return times["floor"]["ms"] / times["network"]["ms"]


def _speed(timing: Mapping[str, Any], batch: int) -> tuple[str, str]:
    """Returns milliseconds of a batch, and images per second."""
    return f"{timing['ms']:.2f}", f"{1000.0 * batch / timing['ms']:,.1f}"


def _megabytes(size: int | None) -> str:
    return UNMEASURED if size is None else f"{size / 1e6:,.0f}"
