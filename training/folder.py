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
from zipfile import BadZipFile

import keras
import numpy as np
from numpy.typing import NDArray

from cli import UserError, read_model
from tfcaps.files import save_atomically, write_atomically
from tfcaps.rem import CouplingDictionary, Report
from training import devices
from training.configs import SETTINGS, Config, config_from
from training.names import as_text

_PACKAGES = (
    "keras numpy tensorflow tensorflow-cpu tensorflow-model-optimization "
    "tensorflow-datasets jax"
).split()
# What `write_atomically`, `save_model` and an export were writing.
_LEFTOVER = re.compile(r"\.(.+\.\w+-[a-z0-9_]{8}|staged-.+|publish-.+)")


class RunFolder:
    """`runs/<name>/`."""

    def __init__(self, path: Path, config: Config):
        self.path = path
        self.config = config

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
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{self.path.name}-"
            staged = Path(tempfile.mkdtemp(dir=self.path.parent, prefix=prefix))
            try:
                folder = RunFolder(staged, self.config)
                settings = dataclasses.asdict(self.config)
                folder.write_json("config.json", settings)
                folder.write_json("environment.json", environment())
                staged.chmod(0o755)  # mkdtemp makes folders private
                taken = next((n for n in names if _rename(staged, n)), None)
            finally:
                shutil.rmtree(staged, ignore_errors=True)  # unless renamed
        except OSError as error:
            raise UserError(f"{self.path} cannot be made: {error}.") from error
        if taken is None:
            raise UserError(
                f"{self.path} exists and is not overwritten; give another "
                "--out, or --resume to go on with that run."
            )
        self.path = taken

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps other processes from going on with the run meanwhile.

        The system gives the run free when this process ends, however it does.
        On Windows, and where files cannot be locked, nobody is kept off.

        Raises:
            UserError: If another process holds it.
        """
        with _locked(self.path / "config.json") as is_free:
            if not is_free:
                raise UserError(
                    f"another process is working on the run in {self.path}; "
                    "wait until it ends, or stop it."
                )
            # What a killed process was writing, wherever in the run.
            for leftover in list(self.path.rglob(".*-*")):
                if _LEFTOVER.fullmatch(leftover.name):
                    shutil.rmtree(leftover, ignore_errors=True)
                    leftover.unlink(missing_ok=True)
            yield

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Returns the folder of an earlier run, with its settings."""
        try:
            settings = json.loads((path / "config.json").read_text("utf-8"))
            return cls(path, config_from(settings))
        except FileNotFoundError as error:
            raise UserError(
                f"there is no run in {path}: no config.json."
            ) from error
        except ValueError as error:
            raise UserError(
                f"{path / 'config.json'} is not the config of a run: {error}."
            ) from error

    @classmethod
    def resume(cls, path: Path) -> "RunFolder":
        """Returns the folder of a run to go on with."""
        folder = cls.open(path)
        about = path / "environment.json"
        if not (path / "rem.json").exists():
            settings = json.loads((path / "config.json").read_text("utf-8"))
            if missing := sorted(SETTINGS.keys() - settings.keys()):
                raise UserError(
                    f"the run in {path} was begun by a version that did not "
                    f"have {', '.join(missing)}; use that, which "
                    "environment.json names."
                )
            begun = keras.backend.backend()
            if about.exists():
                begun = json.loads(about.read_text("utf-8"))["backend"]
            if begun != keras.backend.backend():
                raise UserError(
                    f"the run in {path} was begun on {begun}, where random "
                    f"numbers differ; set KERAS_BACKEND={begun}."
                )
        if not about.exists():
            folder.write_json("environment.json", environment())
        return folder

    def model_path(self, name: str) -> Path:
        """`model.keras` is the REM model, or the baseline if it is alone."""
        is_main = name == self.config.model_names[-1]
        return self.path / f"{'model' if is_main else name}.keras"

    def best_path(self, name: str) -> Path:
        """Where the weights of the best epoch are, until the training ends."""
        return self.path / f"best-{name}.weights.h5"

    def save_model(self, name: str, model: keras.Model) -> None:
        """Writes a model without its optimiser, complete or not at all."""
        network = keras.Model(model.input, model.output, name=model.name)
        save_atomically(network.save, self.model_path(name))

    def load_model(self, name: str) -> keras.Model:
        """Returns a model that `save_model` wrote."""
        path = self.model_path(name)
        if not path.is_file():
            raise UserError(f"{self.path} has no {path.name} yet.")
        return read_model(path)

    def save_data(self, name: str, classes: Sequence[str]) -> None:
        """Writes `data.json`, which says what classes are, unless it is there.

        Raises:
            UserError: If it says something else already: labels would be wrong.
        """
        if (self.path / "data.json").exists():
            known = [as_text(each) for each in self.class_names()]
            if known != [as_text(each) for each in classes]:
                raise UserError(
                    f"the run in {self.path} was begun with {len(known)} "
                    f"classes, {', '.join(known)}; now {name} has "
                    f"{', '.join(classes)}. Give it the data that it had."
                )
            return
        self.write_json("data.json", {"name": name, "classes": list(classes)})

    def class_names(self) -> list[str]:
        """Returns what `save_data` wrote."""
        with self._reading("data.json") as path:
            return list(json.loads(path.read_text("utf-8"))["classes"])

    def kinds_of_types(self) -> Sequence[str | None]:
        """Returns the kind of part that each type of the last model names.

        Nothing if that is not measured yet, or was not in an older version.
        """
        if not (self.path / "rem.json").exists():
            return ()
        with self._reading("rem.json") as path:
            models = json.loads(path.read_text("utf-8"))["models"]
            model = models[self.config.model_names[-1]]
            return (model.get("named_parts") or {}).get("names") or ()

    def save_parts(self, pictures: NDArray[Any]) -> None:
        """Writes `crops.npz`: what the last model's types lie on."""
        with write_atomically(self.path / "crops.npz") as file:
            np.savez(file, pictures=pictures)

    def parts(self) -> NDArray[Any] | None:
        """Returns what `save_parts` wrote, or `None` if it is not there."""
        with self._reading("crops.npz") as path:
            if not path.exists():
                return None
            with np.load(path) as arrays:
                return arrays["pictures"]

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[Path]:
        """Gives the path of a file of the run to what reads it."""
        path = self.path / name
        try:
            yield path
        except FileNotFoundError as error:
            raise UserError(
                f"{self.path} has no {name} yet; the run is not finished."
            ) from error
        except (ValueError, OSError, KeyError, TypeError, BadZipFile) as error:
            raise UserError(f"{path} cannot be read: {error}.") from error

    def save_report(
        self, name: str, report: Report, tests: Mapping[str, Any]
    ) -> None:
        """Writes what was measured of a model, until `rem.json` has it all.

        `tests` are what was measured besides, by test set.
        """
        self._save_dictionaries(name, report)
        measures = {**report.to_dict(), "tests": tests}
        self.write_json(f"measured-{name}.json", measures)

    def read_report(self, name: str) -> tuple[Report, dict[str, Any]] | None:
        """Returns what was measured of a model, and what besides.

        `None` if that is not there, or another version measured other things.
        """
        alone, whole = (
            self.path / f"{stem}.json" for stem in (f"measured-{name}", "rem")
        )
        try:
            if alone.exists():
                measures = json.loads(alone.read_text("utf-8"))
            else:
                models = json.loads(whole.read_text("utf-8"))["models"]
                measures = models[name]
            trees, types = (
                CouplingDictionary.load(path) if path.exists() else None
                for path in self._dictionary_paths(name)
            )
            if trees is None:
                return None
            return Report.from_dict(measures, trees, types), measures["tests"]
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None

    def save_reports(
        self,
        reports: Mapping[str, Report],
        tests: Mapping[str, Mapping[str, Any]],
        seconds: float | None = None,
    ) -> None:
        """Writes `rem.json`, and the dictionaries of each model.

        `tests` are what was measured besides, by model and test set. Where the
        `seconds` of the run are not known, they are those of the file. What is
        there already is left as it is.
        """
        result, before = self.path / "rem.json", {}
        if result.exists():
            before = json.loads(result.read_text("utf-8"))
        if seconds is None:
            seconds = before.get("seconds")
        models = {
            name: {**report.to_dict(), "tests": tests[name]}
            for name, report in reports.items()
        }
        content = {"seconds": seconds, "models": models}
        if before != json.loads(json.dumps(content)):
            for name, report in reports.items():
                self._save_dictionaries(name, report)
            # The last file: where it is, everything is.
            self.write_json("rem.json", content)
        for name in reports:
            (self.path / f"measured-{name}.json").unlink(missing_ok=True)

    def _save_dictionaries(self, name: str, report: Report) -> None:
        trees = report.dictionary, report.type_dictionary
        paths = self._dictionary_paths(name)
        for each, path in zip(trees, paths, strict=True):
            if each is not None:
                each.save(path)

    def _dictionary_paths(self, name: str) -> tuple[Path, Path]:
        """Returns the files of a model's trees, and of their types."""
        prefix = "" if name == self.config.model_names[-1] else f"{name}_"
        stem = f"{prefix}dictionary"
        return self.path / f"{stem}.npz", self.path / f"{stem}_types.npz"

    def has_report(self) -> bool:
        """Tells whether `report.html` shows what was measured last."""
        page = self.path / "report.html"
        shown = [self.path / name for name in ("rem.json", "names.json")]
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
        rows = [json.loads(line) for line in lines]
        latest = {
            (row["model"], row["epoch"]): row
            for row in rows
            if model in (None, row["model"])
        }
        return [latest[key] for key in sorted(latest)]

    def write_json(self, name: str, content: Any) -> None:
        with write_atomically(self.path / name, "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")


def _rename(staged: Path, path: Path) -> bool:
    """Renames a folder, and tells whether the name was free."""
    if path.exists():
        return False
    try:
        staged.rename(path)
    except OSError:
        if path.exists():  # another run was quicker
            return False
        raise
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Locks a file, and gives whether no other process has locked it."""
    if os.name == "nt":
        yield True
        return
    import fcntl

    # File systems on a network lock only what may be written.
    mode = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY
    descriptor = os.open(path, mode)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass  # a file system without locks
        yield True
    finally:
        os.close(descriptor)


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
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
