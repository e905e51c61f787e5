"""The run folder: what a run leaves, and how each file is written."""

import contextlib
import dataclasses
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from cli import UserError, read_model
from tfcaps.files import save_atomically, write_atomically
from tfcaps.rem import CouplingDictionary, Report
from training import devices
from training.configs import SETTINGS, Config, config_from
from training.names import as_text

fcntl: Any = None
if os.name != "nt":
    import fcntl

NAMES = "names.json"
MEASURED = "measured.json"  # of a run that is not finished
_PACKAGES = (
    "keras numpy tensorflow tensorflow-cpu tensorflow-model-optimization "
    "tensorflow-datasets jax"
).split()
# Temporary files of interrupted writes, saved models and exports.
_LEFTOVER = re.compile(r"\.(.+\.\w+-[a-z0-9_]{8}|staged-.+|publish-.+)")


class RunFolder:
    """`runs/<name>/`."""

    def __init__(self, path: Path, config: Config):
        self.path = path
        self.config = config
        self.main = config.model_names[-1]  # REM, or the baseline if alone

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def served(self) -> Path:
        return self.path / "served"

    def create(self, others: Iterable[Path] = ()) -> None:
        """Makes the folder, which says how the run is set up, or nothing.

        If there is one of its name, it gets the first free one of `others`.
        """
        names = itertools.chain([self.path], others)
        prefix = f".{self.path.name}-"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            staged = Path(tempfile.mkdtemp(dir=self.path.parent, prefix=prefix))
            try:
                folder = RunFolder(staged, self.config)
                settings = dataclasses.asdict(self.config)
                folder.write_json("config.json", settings)
                folder.write_json("environment.json", environment())
                staged.chmod(0o755)  # mkdtemp makes folders private
                free = next((n for n in names if _rename(staged, n)), None)
            finally:
                shutil.rmtree(staged, ignore_errors=True)  # unless renamed
        except OSError as error:
            raise UserError(f"{self.path} cannot be made: {error}.") from error
        if free is None:
            raise UserError(
                f"{self.path} exists and is not overwritten; give another "
                "--out, or --resume to go on with that run."
            )
        self.path = free

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps other processes from going on with the run meanwhile.

        The system gives the run free when this process ends, however it does.
        On Windows, and where files cannot be locked, nobody is kept off.

        Raises:
            UserError: If another process holds it.
        """
        path = self.path / "config.json"
        # File systems on a network lock only what may be written.
        mode = "r+b" if os.access(path, os.W_OK) else "rb"
        with open(path, mode) as file:
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"another process is working on the run in {self.path}; "
                    "wait until it ends, or stop it."
                ) from error
            except OSError:
                pass  # a file system without locks
            for leftover in list(self.path.rglob(".*-*")):
                if _LEFTOVER.fullmatch(leftover.name):
                    shutil.rmtree(leftover, ignore_errors=True)
                    leftover.unlink(missing_ok=True)
            yield

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Returns the folder of an earlier run, with its settings."""
        try:
            text = (path / "config.json").read_text("utf-8")
            return cls(path, config_from(json.loads(text)))
        except (OSError, ValueError) as error:
            raise UserError(
                f"there is no run in {path}: config.json cannot be read: "
                f"{error}."
            ) from error

    @classmethod
    def resume(cls, path: Path) -> "RunFolder":
        """Returns the folder of a run to go on with."""
        folder, here = cls.open(path), keras.backend.backend()
        if not (path / "environment.json").exists():
            folder.write_json("environment.json", environment())
        if (path / "rem.json").exists():
            return folder
        known = folder.read_json("config.json")
        if missing := sorted(SETTINGS.keys() - known.keys()):
            raise UserError(
                f"the run in {path} was begun by a version that did not have "
                f"{', '.join(missing)}; use that, which environment.json names."
            )
        begun = folder.read_json("environment.json")["backend"]
        if begun != here:
            raise UserError(
                f"the run in {path} was begun on {begun}, where random numbers "
                f"differ; set KERAS_BACKEND={begun}."
            )
        return folder

    # ------------------------------------------------------------- the models

    def model_path(self, name: str) -> Path:
        """`model.keras` is the REM model, or the baseline if it is alone."""
        return self.path / f"{'model' if name == self.main else name}.keras"

    def best_path(self, name: str) -> Path:
        """Where the weights of the best epoch are, until the training ends."""
        return self.path / f"best-{name}.weights.h5"

    def save_model(self, name: str, model: keras.Model) -> None:
        """Writes a model without its optimiser, complete or not at all."""
        network = model
        if not getattr(model, "report", None):  # what its own `fit` has found
            network = keras.Model(model.input, model.output, name=model.name)
        save_atomically(network.save, self.model_path(name))

    def load_model(self, name: str) -> keras.Model:
        """Returns a model that `save_model` wrote."""
        path = self.model_path(name)
        if not path.is_file():
            raise UserError(f"{self.path} has no {path.name} yet.")
        return read_model(path)

    # ------------------------------------------------ the data and their parts

    def save_data(self, name: str, classes: Sequence[str]) -> None:
        """Writes `data.json`, which says what classes are, unless it is there.

        Raises:
            UserError: If it says something else already: labels would be wrong.
        """
        if not (self.path / "data.json").exists():
            content = {"name": name, "classes": list(classes)}
            self.write_json("data.json", content)
            return
        known = [*map(as_text, self.class_names())]
        if known != [*map(as_text, classes)]:
            raise UserError(
                f"the run in {self.path} was begun with {len(known)} classes, "
                f"{', '.join(known)}; now {name} has {', '.join(classes)}. "
                "Give it the data that it had."
            )

    def class_names(self) -> list[str]:
        """Returns what `save_data` wrote."""
        return list(self.read_json("data.json")["classes"])

    def type_names(self, count: int) -> list[str]:
        """Returns names of the types: by hand, else of kinds, else numbers.

        The kind of a type is that of the part on which most of its leaves lie,
        where that was measured.
        """
        by_hand, named = self.names_by_hand(), None
        if max(by_hand, default=0) >= count:
            raise UserError(
                f"{self.path / NAMES} names type {max(by_hand)}, and the types "
                f"are 0 to {count - 1}."
            )
        if (self.path / "rem.json").exists():
            models = self.read_json("rem.json")["models"]
            named = models[self.main].get("named_parts")
        names = dict(enumerate((named or {}).get("names") or ())) | by_hand
        return [names.get(k) or f"type {k}" for k in range(count)]

    def names_by_hand(self) -> dict[int, str]:
        """Returns the names in `names.json`, none if there is no such file."""
        path = self.path / NAMES
        if not path.exists():
            return {}
        try:
            names = json.loads(path.read_text("utf-8"))
            if all(k.isdecimal() and name.strip() for k, name in names.items()):
                return {int(k): name.strip() for k, name in names.items()}
        except (OSError, ValueError, AttributeError):
            pass
        raise UserError(
            f"{path} must give names of types by their numbers, "
            'such as {"0": "wheel", "3": "window"}.'
        )

    def save_parts(self, pictures: NDArray[Any]) -> None:
        """Writes `crops.npz`: what the last model's types lie on."""
        with write_atomically(self.path / "crops.npz") as file:
            np.savez(file, pictures=pictures)

    def parts(self) -> NDArray[Any] | None:
        """Returns what `save_parts` wrote, or `None` if it is not there."""
        path = self.path / "crops.npz"
        if not path.exists():
            return None
        with np.load(path) as arrays:
            return arrays["pictures"]

    def read_json(self, name: str) -> Any:
        """Returns what a file of the run holds."""
        try:
            return json.loads((self.path / name).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.path / name} cannot be read, or the run is not "
                f"finished: {error}."
            ) from error

    # ----------------------------------------------------------- the measures

    def read_report(self, name: str) -> tuple[Report, dict[str, Any]] | None:
        """Returns what was measured of a model, and on other test sets.

        `None` if that is not there, or another version measured other things.
        """
        try:
            is_part = (self.path / MEASURED).exists()
            file = self.path / (MEASURED if is_part else "rem.json")
            measures = json.loads(file.read_text("utf-8"))["models"][name]
            of_places, of_types = self._dictionary_paths(name)
            trees, types = CouplingDictionary.load(of_places), None
            if of_types.exists():
                types = CouplingDictionary.load(of_types)
            return Report.from_dict(measures, trees, types), measures["tests"]
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None

    def save_reports(
        self,
        reports: Mapping[str, Report],
        tests: Mapping[str, Mapping[str, Any]],
        seconds: float | None = None,
        *,
        is_all: bool = True,
    ) -> None:
        """Writes `rem.json`, and the dictionaries of each model.

        `tests` are the measures on other test sets, by model and test set.
        Where the `seconds` of the run are not known, they are those of the
        file. What is there already is left as it is. If that `is_all` not, the
        file is another one, from which a stopped run goes on.
        """
        is_done = (self.path / "rem.json").exists()
        before = self.read_json("rem.json") if is_done else {}
        models = {
            name: {**report.to_dict(), "tests": tests[name]}
            for name, report in reports.items()
        }
        known = before.get("seconds") if seconds is None else seconds
        content = {"seconds": known, "models": models}
        if not is_all or before != json.loads(json.dumps(content)):
            for name, report in reports.items():
                of_places, of_types = self._dictionary_paths(name)
                report.dictionary.save(of_places)
                if report.type_dictionary is not None:
                    report.type_dictionary.save(of_types)
            # The last file: where it is, everything is.
            self.write_json("rem.json" if is_all else MEASURED, content)
        if is_all:
            (self.path / MEASURED).unlink(missing_ok=True)

    def _dictionary_paths(self, name: str) -> tuple[Path, Path]:
        """Returns the files of a model's trees, and of their types."""
        stem = "dictionary" if name == self.main else f"{name}_dictionary"
        return self.path / f"{stem}.npz", self.path / f"{stem}_types.npz"

    def has_report(self) -> bool:
        """Tells whether `report.html` shows what was measured last."""
        page = self.path / "report.html"
        shown = [self.path / name for name in ("rem.json", NAMES)]
        times = [path.stat().st_mtime for path in shown if path.exists()]
        return page.exists() and page.stat().st_mtime >= max(times, default=0)

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Adds a row to `metrics.jsonl`, which appears complete."""
        path = self.path / "metrics.jsonl"
        before = path.read_text("utf-8") if path.exists() else ""
        with write_atomically(path, "w") as file:
            file.write(before + json.dumps(row) + "\n")

    def read_metrics(self, model: str | None = None) -> list[dict[str, Any]]:
        """Returns one row for each model and epoch, the last one written."""
        lines = (self.path / "metrics.jsonl").read_text("utf-8").splitlines()
        latest = {
            (row["model"], row["epoch"]): row
            for row in map(json.loads, lines)
            if model in (None, row["model"])
        }
        return [latest[key] for key in sorted(latest)]

    def write_json(self, name: str, content: Any) -> None:
        with write_atomically(self.path / name, "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")


def _rename(staged: Path, path: Path) -> bool:
    """Renames a folder, and tells whether the name was free."""
    try:
        if not path.exists():
            staged.rename(path)
            return True
    except OSError:
        if not path.exists():
            raise
    return False  # another run was quicker


def environment() -> dict[str, Any]:
    """Returns versions, devices and commit of this process, for JSON."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            # TensorFlow's have different names and the same module.
            packages[name.removesuffix("-cpu")] = version(name)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "backend": keras.backend.backend(),
        "devices": keras.distribution.list_devices(),
        "accelerators": devices.accelerators(),
        "packages": packages,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of this repository, `-dirty` if files differ from it."""
    command = "git describe --always --dirty --abbrev=40".split()
    folder = Path(__file__).parent
    quiet: Any = {"stderr": subprocess.DEVNULL, "text": True, "cwd": folder}
    try:
        return str(subprocess.check_output(command, **quiet)).strip()
    except (OSError, subprocess.CalledProcessError):
        return None
