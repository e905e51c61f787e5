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
from typing import IO

from cli import USAGE_STATUS
from experiments.folder import Run

_COMMAND = Path(__file__).parents[1] / "training" / "run.py"
_POLL = 0.2  # seconds
_CLOCK = 10.0  # seconds between two notes of how long a run took so far


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
        self._started = time.monotonic()
        self._said = ""

    def run(self, after_each: Callable[[], object]) -> None:
        """Starts runs until all have ended.

        When it is left, by Ctrl-C, a signal to terminate or an error, no
        process is left behind.

        Args:
            after_each: Called whenever a run has ended.
        """
        waiting = [run for run in self.runs if not run.finished]
        self._say(f"{len(self.runs)} runs, {len(waiting)} to do")
        active: list[_Job] = []
        with _terminable():
            try:
                while waiting or active:
                    self._start(waiting, active)
                    time.sleep(_POLL)
                    for job in [job for job in active if job.has_ended()]:
                        active.remove(job)
                        self._conclude(job, waiting)
                        after_each()
            finally:
                for job in active:
                    job.stop()

    def _start(self, waiting: list[Run], active: list["_Job"]) -> None:
        """Starts as many as the limit allows, but none that is locked."""
        for run in list(waiting):
            if len(active) >= self.limit:
                return
            if not _has_start(run):
                self._wait_for_start(run, waiting, active)
                continue
            job = _Job.start(run, self.data_dir)
            if job is None and run.finished:
                waiting.remove(run)
            elif job is None:
                self._say(f"{run}: another process trains it; waiting")
            else:
                waiting.remove(run)
                active.append(job)
                self._say(
                    f"{self._position(run)} {run}: {job.log}{self._eta()}"
                )

    def _wait_for_start(
        self, run: Run, waiting: list[Run], active: list["_Job"]
    ) -> None:
        """Leaves out a run if that which it starts from is not to be done."""
        to_come = [*waiting, *(job.run for job in active)]
        if run.start not in [other.path for other in to_come]:
            waiting.remove(run)
            status = f"not run: {run.config.start_from} is not finished"
            run.write("status", {"status": status})
            self._say(f"{self._position(run)} {run}: {status}")

    def _conclude(self, job: "_Job", waiting: list[Run]) -> None:
        run = job.run
        self._say(
            f"{self._position(run)} {run}: {run.status} after "
            f"{_duration(run.seconds)}"
        )
        # What is wrong before the training has nothing to do with the seed.
        if run.status.startswith("not run:"):
            for other in [r for r in waiting if r.name == run.name]:
                waiting.remove(other)

    def _position(self, run: Run) -> str:
        return f"[{self.runs.index(run) + 1}/{len(self.runs)}]"

    def _eta(self) -> str:
        """Tells the time so far, and roughly what is left."""
        text = f" ({_duration(time.monotonic() - self._started)} so far"
        known = [run.seconds for run in self.runs if run.finished]
        if any(known):
            left = sum(
                max(mean(known) - run.seconds, 0.0)
                for run in self.runs
                if not run.finished
            )
            text += f", about {_duration(left / self.limit)} left"
        return f"{text})"

    def _say(self, text: str) -> None:
        if text != self._said:
            print(text, flush=True)
        self._said = text


class _Job:
    """A process that trains a run."""

    def __init__(self, run: Run, process: subprocess.Popen[bytes]):
        self.run = run
        self.log = _log(run)
        self._process = process
        self._before = run.seconds
        self._started = self._noted = time.monotonic()

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
            with open(_log(run), "ab") as log:
                return cls(run, _process(run, log, lock))

    def has_ended(self) -> bool:
        """Polls the process; when it has ended, notes how."""
        status = self._process.poll()
        now = time.monotonic()
        if status is not None or now - self._noted >= _CLOCK:
            self._noted = now
            self._note_time()
        if status:
            self.run.write("status", {"status": self._reason(status)})
        return status is not None

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


def _has_start(run: Run) -> bool:
    """Tells whether a run that starts from another one can begin."""
    return run.start is None or (run.start / "rem.json").exists()


def _log(run: Run) -> Path:
    return run.path / "log.txt"


def _process(
    run: Run, log: IO[bytes], lock: IO[str]
) -> subprocess.Popen[bytes]:
    flags = ["--resume", "--bare", "--force", "--out", str(run.path)]
    return subprocess.Popen(
        [sys.executable, str(_COMMAND), *flags],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=(lock.fileno(),),
    )


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
