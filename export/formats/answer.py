"""Answers images by the runtimes of other formats, in a process of its own.

`export/runtime.py` calls it. It needs NumPy and the runtimes, and neither Keras
nor TensorFlow.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main(job_file: Path) -> None:
    """Reads a job, and writes its answer to the file that the job names.

    A job has `models`, each with `format`, `folder` and `int8`; `rounds`;
    `reply`, the file of the answer; and `runs`, each with `model` (index),
    `signature`, `images` (a file) and `outputs` (a file). All runs are made
    once in each round. The answer has the `seconds` of each run and the most
    bytes that the process `held`, or an `error` and what failed: `model` and
    `run`, both indices or `None`.
    """
    from export import formats

    job = json.loads(job_file.read_text("utf-8"))
    place: dict[str, Any] = {"model": None, "run": None}
    try:
        models = []
        for place["model"], model in enumerate(job["models"]):
            load = formats.module(model["format"]).load
            models.append(load(Path(model["folder"]), int8=model["int8"]))
        runs = [(run, np.load(run["images"])) for run in job["runs"]]
        seconds: list[list[float]] = [[] for _ in runs]
        for _ in range(job["rounds"]):
            for place["run"], (run, images) in enumerate(runs):
                place["model"] = run["model"]
                start = time.perf_counter()
                outputs = models[run["model"]](run["signature"], images)
                seconds[place["run"]].append(time.perf_counter() - start)
                if len(seconds[place["run"]]) == 1:
                    np.savez(run["outputs"], **outputs)
        reply: dict[str, Any] = {"seconds": seconds, "held": _most_held()}
    except Exception as error:  # runtimes raise many kinds
        reply = {"error": " ".join(str(error).split()), **place}
    Path(job["reply"]).write_text(json.dumps(reply), "utf-8")


def _most_held() -> int | None:
    """Returns the most bytes that this process held, where Linux tells."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return None
    held = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return next((1024 * int(kilobytes) for kilobytes in held), None)


if __name__ == "__main__":
    # The repository's own packages; this folder has names of other packages.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    main(Path(sys.argv[1]))
