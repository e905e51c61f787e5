"""Measures size and speed of a model: dense, stripped of masks, compacted."""

import gzip
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from export import session
from export.reference import draw_images
from export.saved_model import read_signatures
from export.signatures import write_saved_model
from markdown_table import markdown

_BATCHES = (1, 32)
# Each model is timed so often, and for about so long.
_ROUNDS = (5, 30)
_SECONDS = 20.0


def measure(
    models: Mapping[str, keras.Model], images: str
) -> dict[str, dict[str, Any]]:
    """Measures models side by side, as a server runs them.

    Args:
        models: Models by what they are called; weights of `"compacted"` are
            packed.
        images: As in `write_saved_model`.

    Returns:
        For each model `parameters`, `nonzero`, `bytes` and `gzip_bytes` of a
        SavedModel of the signature `serving_default` alone, and
        `milliseconds`, the median for batches of 1 and 32.
    """
    rows: dict[str, dict[str, Any]] = {}
    requests = []
    with tempfile.TemporaryDirectory() as work:
        for name, model in models.items():
            folder = Path(work) / name
            write_saved_model(
                model,
                folder,
                images,
                packed=name == "compacted",
                names=["serving_default"],
            )
            rows[name] = {**_parameters(model), **_bytes(folder)}
            signature = read_signatures(folder)["serving_default"]
            shape = signature.inputs["images"][1][1:]
            for batch in _BATCHES:
                drawn = draw_images(batch, tuple(shape), images)
                requests.append(
                    session.Request(folder, signature, {"images": drawn})
                )
        tried = session.run(requests, rounds=2)
        seconds = sum(answer.seconds[-1] for answer in tried)
        rounds = int(np.clip(_SECONDS / seconds, *_ROUNDS))
        # The first time does not count.
        answers = iter(session.run(requests, rounds + 1))
    for row in rows.values():
        row["milliseconds"] = {
            str(batch): round(1e3 * np.median(next(answers).seconds[1:]), 3)
            for batch in _BATCHES
        }
    return rows


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a Markdown table of what `measure` returned."""
    head = [
        "model",
        "parameters",
        "not zero",
        "bytes",
        "gzip",
        *(f"ms, batch {batch}" for batch in _BATCHES),
    ]
    lines = [head]
    for name, row in rows.items():
        counts = ("parameters", "nonzero", "bytes", "gzip_bytes")
        times = row["milliseconds"].values()
        lines.append(
            [
                name,
                *(f"{row[count]:,}" for count in counts),
                *(f"{time:.2f}" for time in times),
            ]
        )
    return markdown(lines)


def _parameters(model: keras.Model) -> dict[str, int]:
    weights = [np.asarray(weight) for weight in model.get_weights()]
    return {
        "parameters": sum(weight.size for weight in weights),
        "nonzero": sum(int(np.count_nonzero(weight)) for weight in weights),
    }


def _bytes(folder: Path) -> dict[str, int]:
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return {
        "bytes": sum(len(file) for file in files),
        "gzip_bytes": sum(len(gzip.compress(file, 6)) for file in files),
    }
