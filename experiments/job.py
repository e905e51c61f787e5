"""Trains a run of an experiment in a process of its own."""

import fcntl
import re
import subprocess
import sys
import time
from pathlib import Path

from cli import USAGE_STATUS
from experiments.folder import Run

_COMMAND = Path(__file__).parents[1] / "training" / "run.py"


def train(run: Run, data_dir: str | None) -> str:
    """Trains a run, or goes on with it, and returns how that ended.

    A run folder is locked as long as a process trains in it, also when the
    command that started the process was killed: the process inherits the lock.
    When this is left, by Ctrl-C or an error, the process is ended.

    Args:
        run: A run that is not finished.
        data_dir: Folder of prepared data, or `None`.
    """
    run.path.mkdir(parents=True, exist_ok=True)
    with open(run.path / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "another process trains it"
        ended = "done"
        if not (run.path / "rem.json").exists():
            run.write("status", {"status": "not run yet"})
            ended = _train(run, data_dir, lock.fileno())
            if ended != "done":
                run.write("status", {"status": ended})
    return ended


def _train(run: Run, data_dir: str | None, lock: int) -> str:
    """Waits for the process; returns `"done"`, or why it is not."""
    if run.start and not (run.start / "rem.json").exists():
        return f"not run: {run.config.start_from} is not finished here"
    run.begin(data_dir)
    flags = ["--resume", "--bare", "--force", "--out", str(run.path)]
    log = run.path / "log.txt"
    before, started = run.seconds, time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(_COMMAND), *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
        )
    try:
        status = process.wait()
    finally:
        process.terminate()
        process.wait()
        seconds = before + time.monotonic() - started
        run.write("seconds", {"seconds": round(seconds, 1)})
    if not status:
        return "done"
    if status < 0:
        return f"failed: stopped by signal {-status}"
    lines = log.read_text("utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in lines[::-1] if line.strip()), "")
    if status != USAGE_STATUS:
        return f"failed with status {status}: {last}"
    sentence = re.sub(r"^.*?: error: ", "", last)
    if data_dir is not None:
        sentence = sentence.replace(data_dir, "the --data-dir")
    # It is written when the data are at hand and the model fits them.
    begun = (run.path / "data.json").exists()
    return f"{'failed' if begun else 'not run'}: {sentence}"
