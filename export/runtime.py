"""Asks models in other formats than SavedModel, in a process of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cli import UserError
from export import formats

_SCRIPT = Path(formats.__file__).with_name("answer.py")
_LONGEST = 300  # characters of what a runtime says

Arrays = dict[str, NDArray[Any]]


class Model(NamedTuple):
    """A model in an exported folder.

    Attributes:
        format: Name of the format.
        folder: The exported folder.
        int8: Whether it is the one in int8.
    """

    format: str
    folder: Path
    int8: bool = False

    @property
    def files(self) -> list[Path]:
        """The files that it consists of."""
        form = formats.FORMATS[self.format]
        names = form.int8_files if self.int8 else form.files
        return [self.folder / name for name in names]


class Request(NamedTuple):
    """What to ask.

    Attributes:
        model: The model.
        signature: One of `formats.OUTPUTS`.
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
    """Runs requests, each by the runtime of its format.

    Args:
        requests: At least one.
        rounds: How often all of them are run, in turn. Defaults to `1`.

    Returns:
        An answer for each request.

    Raises:
        UserError: If a file is missing, or a runtime refuses it.
    """
    models = list(dict.fromkeys(request.model for request in requests))
    for model in models:
        for file in model.files:
            if not file.is_file():
                raise UserError(
                    f"{model.format}: there is no file {file}; export the "
                    "model anew."
                )
    with tempfile.TemporaryDirectory() as work:
        job: dict[str, Any] = {
            "models": [
                {**model._asdict(), "folder": str(model.folder)}
                for model in models
            ],
            "rounds": rounds,
            "reply": f"{work}/reply.json",
            "runs": [
                {
                    "model": models.index(request.model),
                    "signature": request.signature,
                    "images": _write(request.images, work, number),
                    "outputs": f"{work}/{number}-out.npz",
                }
                for number, request in enumerate(requests)
            ],
        }
        reply = _call(job, models, Path(work))
        return [
            Answer(_read(Path(run["outputs"])), seconds, reply["held"])
            for run, seconds in zip(job["runs"], reply["seconds"], strict=True)
        ]


def _write(images: NDArray[Any], work: str, number: int) -> str:
    path = f"{work}/{number}-in.npy"
    np.save(path, images)
    return path


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _call(
    job: dict[str, Any], models: list[Model], work: Path
) -> dict[str, Any]:
    job_file = work / "job.json"
    job_file.write_text(json.dumps(job), "utf-8")
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), str(job_file)],
        capture_output=True,
        text=True,
    )
    reply_file = Path(job["reply"])
    if not reply_file.exists():
        *_, last = done.stderr.strip().splitlines() or ["nothing was printed"]
        names = ", ".join(str(model.files[0]) for model in models)
        raise UserError(
            f"run: the process that runs {names} ended with status "
            f"{done.returncode}: {last}"
        )
    reply: dict[str, Any] = json.loads(reply_file.read_text("utf-8"))
    if "error" not in reply:
        return reply
    model = models[reply["model"]]
    reason = reply["error"][:_LONGEST]
    what = "loaded" if reply["run"] is None else "run"
    raise UserError(
        f"{model.format}: {model.files[0]} cannot be {what}, so it is broken "
        f"or not what was exported; export the model anew: {reason}"
    )
