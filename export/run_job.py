"""Loads a trained model and exports it: what `export/run.py` does."""

import argparse
import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import keras

import tfcaps  # noqa: F401 (registers the layers)
from cli import (
    UserError,
)
from export.model import export_model


def load_model(path: Path) -> keras.Model:
    """Loads the model of a run folder, or a `.keras` file.

    Raises:
        UserError: If there is none, or it cannot be read.
    """
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{path} is neither a run folder with a model.keras nor a .keras "
            "file."
        )
    try:
        return keras.saving.load_model(file, compile=False)
    except (ValueError, OSError, KeyError, TypeError, BadZipFile) as error:
        raise UserError(
            f"{file} is not a readable Keras model: {error}."
        ) from error


def describe(path: Path) -> dict[str, Any]:
    """Returns what the files beside a model say of it, for the manifest.

    Args:
        path: A run folder, or a `.keras` file, which has nothing beside it.

    Returns:
        A dict of `dataset`, `classes`, `metrics` and `run`, each of them `None`
        if it is not known.

    Raises:
        UserError: If a file cannot be read.
    """
    config, data, reports, environment = (
        _read_json(path / name) if path.is_dir() else {}
        for name in ("config.json", "data.json", "rem.json", "environment.json")
    )
    # Where the data lay is nobody's business who gets the model.
    config.pop("data_dir", None)
    models = reports.get("models", {})
    report = models.get("rem" if config.get("rem") else "baseline", {})
    metrics = {
        name: value
        for name, value in report.items()
        if isinstance(value, int | float | str) or _is_measure(value)
    }
    return {
        "dataset": config.get("dataset"),
        "classes": data.get("classes"),
        "metrics": metrics or None,
        "run": {"config": config, "commit": environment.get("commit")}
        if config
        else None,
    }


def _is_measure(value: Any) -> bool:
    """Tells whether a measure has a number for each of several cases."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(number, int | float) for number in value.values())
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a file of a run.")
    return content


def export(options: argparse.Namespace) -> None:
    """Loads, exports, checks and publishes a model."""
    if options.to.exists() and not options.to.is_dir():
        raise UserError(f"--to {options.to} is not a folder.")
    model = load_model(options.run)
    name = options.model_name or model.name
    if Path(name).name != name or name.startswith("."):
        raise UserError(f"--model-name {name!r} must be a plain folder name.")
    try:
        target = export_model(
            model,
            options.to,
            name=name,
            version=options.version,
            images=options.images,
            levels=options.levels,
            levels_mode=options.levels_mode,
            compacted=not options.no_compact,
            written_as=options.format,
            int8_images=options.int8,
            about=describe(options.run),
            log=lambda line: print(line, flush=True),
        )
    except ValueError as error:
        raise UserError(f"{options.run} cannot be exported: {error}") from error
    print(f"exported to {target}")
