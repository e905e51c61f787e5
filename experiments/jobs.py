"""Runs the runs of an experiment, each in a process of its own."""

import contextlib
import fcntl
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from types import FrameType

from cli import USAGE_STATUS
from experiments.folder import Run

_COMMAND = Path(__file__).parents[1] / "training" / "run.py"
_POLL = 0.2  # seconds


class Jobs:
    """Runs to be finished, several at the same time.

    A run folder is locked as long as a process trains in it, also when the
    command that started the process was killed: the process inherits the lock.
    So no run is trained twice at the same time.

    Args:
        runs: The runs, some of which may be finished.
        data_dir: Folder of prepared data, or `None`.
        limit: How many run at the same time.
    """

    def __init__(self, runs: Sequence[Run], data_dir: str | None, limit: int):
        self.runs = list(runs)
        self.data_dir = data_dir
        self.limit = limit
        self._waiting = [run for run in self.runs if not run.finished]
        self._active: list[_Job] = []
        self._said = ""

    def run(self, after_each: Callable[[], object]) -> None:
        """Starts runs until all have ended.

        When it is left, by Ctrl-C, a signal to terminate or an error, no
        process is left behind.

        Args:
            after_each: Called whenever a run has ended.
        """
        self._say(f"{len(self.runs)} runs, {len(self._waiting)} to do")
        with _terminable():
            try:
                while self._waiting or self._active:
                    for run in list(self._waiting):
                        if len(self._active) < self.limit:
                            self._start(run)
                    time.sleep(_POLL)
                    for job in [job for job in self._active if job.has_ended()]:
                        self._active.remove(job)
                        self._conclude(job.run)
                        after_each()
            finally:
                for job in self._active:
                    job.stop()

    def _start(self, run: Run) -> None:
        """Starts a run if it is not locked, and what it starts from is done."""
        if run.start is not None and not (run.start / "rem.json").exists():
            active = [job.run for job in self._active]
            to_come = [other.path for other in (*self._waiting, *active)]
            if run.start not in to_come:
                self._waiting.remove(run)
                status = f"not run: {run.config.start_from} is not finished"
                run.write("status", {"status": status})
                self._say(status, run)
            return
        job = _Job.start(run, self.data_dir)
        if job is None and not run.finished:
            self._say(f"{run}: another process trains it; waiting")
            return
        self._waiting.remove(run)
        if job is not None:
            self._active.append(job)
            self._say(f"{job.log}{self._time_left()}", run)

    def _conclude(self, run: Run) -> None:
        self._say(f"{run.status} after {_duration(run.seconds)}", run)
        # What is wrong before the training has nothing to do with the seed.
        if run.status.startswith("not run:"):
            waiting = self._waiting
            self._waiting = [r for r in waiting if r.name != run.name]

    def _time_left(self) -> str:
        """Tells roughly how long it takes, once a run has ended."""
        known = [run.seconds for run in self.runs if run.finished]
        if not any(known):
            return ""
        left = [run for run in self.runs if not run.finished]
        seconds = sum(max(mean(known) - run.seconds, 0.0) for run in left)
        return f" (about {_duration(seconds / self.limit)} left)"

    def _say(self, text: str, run: Run | None = None) -> None:
        if run is not None:
            position = self.runs.index(run) + 1
            text = f"[{position}/{len(self.runs)}] {run}: {text}"
        if text != self._said:
            print(text, flush=True)
        self._said = text


class _Job:
    """A process that trains a run."""

    def __init__(self, run: Run, process: subprocess.Popen[bytes]):
        self.run = run
        self.log = run.path / "log.txt"
        self._process = process
        self._before = run.seconds
        self._started = time.monotonic()

    @classmethod
    def start(cls, run: Run, data_dir: str | None) -> "_Job | None":
        """Starts a run, or continues it.

        Returns:
            The job; None if the run is finished, or locked by another process.
        """
        run.path.mkdir(parents=True, exist_ok=True)
        with open(run.path / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            if run.finished:
                return None
            run.begin(data_dir)
            flags = ["--resume", "--bare", "--force", "--out", str(run.path)]
            with open(run.path / "log.txt", "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, str(_COMMAND), *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock.fileno(),),
                )
        return cls(run, process)

    def has_ended(self) -> bool:
        """Polls the process; when it has ended, notes how."""
        status = self._process.poll()
        if status is None:
            return False
        self._note_time()
        if status:
            self.run.write("status", {"status": self._reason(status)})
        return True

    def stop(self) -> None:
        """Ends the process; the run can be resumed."""
        self._process.terminate()
        self._process.wait()
        self._note_time()

    def _note_time(self) -> None:
        seconds = self._before + time.monotonic() - self._started
        self.run.write("seconds", {"seconds": round(seconds, 1)})

    def _reason(self, status: int) -> str:
        """Returns why the process failed, from the end of its output."""
        if status < 0:
            return f"failed: stopped by signal {-status}"
        lines = self.log.read_text("utf-8", errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        if status != USAGE_STATUS:
            return f"failed with status {status}: {last.strip()}"
        sentence = re.sub(r"^.*?: error: ", "", last.strip())
        data_dir = self.run.read("config")["data_dir"]
        if data_dir is not None:
            sentence = sentence.replace(data_dir, "the --data-dir")
        # It is written when the data are at hand and the model fits them.
        begun = (self.run.path / "data.json").exists()
        return f"{'failed' if begun else 'not run'}: {sentence}"


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turns a signal to terminate into what Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
