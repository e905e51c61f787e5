"""Asks exported models by the runtimes of their formats, in one process."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfcaps.export import answer
from tfcaps.export.graph import read_signatures
from tfcaps.export.networks import SIGNATURES, file_of
from tfcaps.export.versions import ExportError

_LONGEST = 300  # characters of what a runtime says

Arrays = dict[str, NDArray[Any]]


class Model(NamedTuple):
    """A model of a version.

    Attributes:
        folder: The folder of the version.
        format: Name of the format.
        int8: Whether it is the one in int8.
    """

    folder: Path
    format: str
    int8: bool = False

    @property
    def files(self) -> list[Path]:
        """The files that it consists of."""
        file = self.folder / file_of(self.format, int8=self.int8)
        if self.format == "savedmodel":
            return [file, *sorted((self.folder / "variables").glob("*"))]
        if self.format == "openvino":
            return [file, file.with_suffix(".bin")]
        return [file]


class Request(NamedTuple):
    """What to ask.

    Attributes:
        model: The model.
        signature: One of `SIGNATURES`.
        images: `[b, h, w, c]`, as the model takes them.
    """

    model: Model
    signature: str
    images: NDArray[Any]


class Answer(NamedTuple):
    """What came back.

    Attributes:
        outputs: An array for each output.
        seconds: How long each round took.
        held: The most bytes that the process of all requests held, `None` where
            the system does not tell.
    """

    outputs: Arrays
    seconds: list[float]
    held: int | None


def run(requests: Sequence[Request], rounds: int = 1) -> list[Answer]:
    """Runs requests, all in one process without Keras and TensorFlow's Python.

    Args:
        requests: At least one.
        rounds: How often all of them are run, in turn. Defaults to `1`.

    Returns:
        An answer for each request.

    Raises:
        ExportError: If a file is missing, or a runtime, or it refuses a model.
    """
    models = list(dict.fromkeys(request.model for request in requests))
    for file in (file for model in models for file in model.files):
        if not file.is_file():
            raise ExportError(
                f"there is no file {file}; export the model anew."
            )
    # A SavedModel has names of its own for the tensors of a signature.
    signatures = {
        model: read_signatures(model.folder)
        for model in models
        if model.format == "savedmodel"
    }
    with tempfile.TemporaryDirectory() as work:
        runs = []
        for number, (model, signature, images) in enumerate(requests):
            input_, names = "images", {n: n for n in SIGNATURES[signature]}
            if model in signatures:
                inputs, outputs = signatures[model][signature]
                input_ = inputs["images"].name
                names = {name: output.name for name, output in outputs.items()}
            run = {
                "model": models.index(model),
                "images": f"{work}/{number}.npy",
                "input": input_,
                "names": names,
                "outputs": f"{work}/{number}.npz",
            }
            np.save(f"{work}/{number}.npy", images)
            runs.append(run)
        reply = _call(models, runs, rounds, Path(work))
        answers = []
        for number, seconds in enumerate(reply["seconds"]):
            with np.load(f"{work}/{number}.npz", allow_pickle=False) as arrays:
                answers.append(Answer(dict(arrays), seconds, reply["held"]))
        return answers


def _call(
    models: Sequence[Model], runs: list[dict[str, Any]], rounds: int, work: Path
) -> dict[str, Any]:
    """Returns the reply of a process that has run a job."""
    job = {
        "models": [
            {"format": model.format, "path": str(model.files[0])}
            for model in models
        ],
        "rounds": rounds,
        "runs": runs,
        "reply": str(work / "reply.json"),
    }
    (work / "job.json").write_text(json.dumps(job), "utf-8")
    done = subprocess.run(
        # -P: modules beside the script have names of other packages.
        [sys.executable, "-P", answer.__file__, str(work / "job.json")],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if not (work / "reply.json").exists():
        *_, last = done.stderr.strip().splitlines() or ["nothing was printed"]
        names = ", ".join(str(model.files[0]) for model in models)
        raise ExportError(
            f"the process that runs {names} ended with status "
            f"{done.returncode}: {last}"
        )
    reply: dict[str, Any] = json.loads((work / "reply.json").read_text("utf-8"))
    if "error" not in reply:
        return reply
    model = models[reply["model"]]
    if "missing" in reply:
        raise ExportError(
            f"{model.format}: {reply['missing']}, which runs it, is not "
            f'installed. Run: pip install "tfcaps[{model.format}]"'
        )
    raise ExportError(
        f"{model.format}: {model.files[0]} cannot be "
        f"{'run' if reply['running'] else 'loaded'}, so it is broken or not "
        "what was exported; export the model anew: "
        f"{reply['error'][:_LONGEST]}"
    )
