"""Shared by the commands: a user's mistake is one sentence on stderr."""

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile

# `run.py: error: ...` and this exit status, as argparse does for wrong flags.
USAGE_STATUS = 2


class UserError(Exception):
    """A mistake that the user can mend; the message says how.

    Any function of the commands may raise it, and need not say so.
    """


def check_installed(**extras: str) -> None:
    """Raises `UserError` unless what a command needs is installed.

    For each extra of `setup.cfg` it is told which modules, separated by spaces.
    """
    if not _is_installed("keras"):
        raise UserError(
            f"Keras is not installed in this Python, {sys.executable}. Use "
            ".venv/bin/python, or first: source .venv/bin/activate"
        )
    missing = {
        extra: absent
        for extra, modules in extras.items()
        if (absent := [m for m in modules.split() if not _is_installed(m)])
    }
    if missing:
        names = ", ".join(name for part in missing.values() for name in part)
        raise UserError(
            f"this needs {names}, not installed here. In the folder of tfcaps "
            f'run: pip install --editable ".[{",".join(missing)}]"'
        )


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


class Parser(argparse.ArgumentParser):
    """A parser that takes no shortened flags and whose errors are one line.

    Of `description`, a module's docstring, it shows the first line.
    """

    def __init__(self, description: str | None, **options: Any):
        first = (description or "").partition("\n")[0]
        super().__init__(allow_abbrev=False, description=first, **options)

    def error(self, message: str) -> NoReturn:
        sentence = " ".join(message.split())
        self.exit(USAGE_STATUS, f"{self.prog}: error: {sentence}\n")


def run_command(
    parser: Parser,
    command: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Parses flags, runs a command and returns its exit status.

    A `UserError` or a file that cannot be read or written becomes one line on
    stderr and status 2, an interruption by the user status 130; anything else
    is a bug and keeps its traceback.
    """
    options = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name may have what the terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        # As Python has it, for the clean end below.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command(options)
    except (UserError, OSError) as error:
        sentence = " ".join(str(error).split())
        print(f"{parser.prog}: error: {sentence}", file=sys.stderr)
        return USAGE_STATUS
    except KeyboardInterrupt:
        print(f"\n{parser.prog}: stopped", file=sys.stderr)
        return 130
    return 0


def run_loading(
    parser: Parser,
    command: Callable[[argparse.Namespace], None],
    check: Callable[[argparse.Namespace], None] = lambda options: None,
    argv: Sequence[str] | None = None,
    *,
    modules: Sequence[str] = (),
    backend: str | None = None,
) -> int:
    """Runs a command that needs a backend, and modules, which take seconds.

    Wrong flags and `check` are answered before. While they load, Ctrl-C ends
    the process without a word, and imports cannot overhear it.
    """

    def loaded(options: argparse.Namespace) -> None:
        check(options)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        start_quietly(backend)
        for module in modules:
            importlib.import_module(module)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        command(options)

    return run_command(parser, loaded, argv)


def number(text: str, kind: type, low: float, high: float | None) -> Any:
    """Returns the `int` or `float` of a flag's text; errors are argparse's."""
    limits = f"at least {low}" if high is None else f"from {low} to {high}"
    word = "a whole number" if kind is int else "a number"
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not (low <= value and (high is None or value <= high)):
        message = f"{text!r} is not {word} {limits}"
        raise argparse.ArgumentTypeError(message)
    return value


def read_model(path: Path) -> Any:
    """Returns the Keras model in a `.keras` file, not compiled."""
    import keras

    import tfcaps  # noqa: F401 (registers the layers)

    try:
        return keras.saving.load_model(path, compile=False)
    except (ValueError, OSError, KeyError, TypeError, BadZipFile) as error:
        raise UserError(
            f"{path} is not a readable Keras model: {error}."
        ) from error


def at_least_one(text: str) -> int:
    """Returns the whole number that a flag's text is, at least 1."""
    count: int = number(text, int, 1, None)
    return count


def progress() -> int:
    """Returns Keras' `verbose`: a bar, or in a file a line for each epoch."""
    return 1 if sys.stdout.isatty() else 2


def start_quietly(backend: str | None = None) -> None:
    """Imports TensorFlow, where it is the backend, without its notes.

    On processors without AVX-512 it leaves oneDNN off unless told otherwise.
    """
    if backend is not None:
        os.environ["KERAS_BACKEND"] = backend
    name = _backend()
    if name not in ("jax", "tensorflow"):
        raise UserError(
            f"tfcaps runs on TensorFlow or JAX, and Keras is set to {name!r}: "
            "set the environment variable KERAS_BACKEND to tensorflow or jax."
        )
    if name == "jax":
        check_installed(jax="jax")
        return
    check_installed(tensorflow="tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    with native_silence():
        import tensorflow as tf

        import tfcaps

        tfcaps.keep_memory()
        tf.config.list_physical_devices()
    # Warnings are sentences for users, who need not know whose line it is.
    warnings.formatwarning = lambda message, *_, **__: f"{message}\n"
    # Each model that is measured traces functions of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


def _backend() -> str:
    """Returns the name of the backend that Keras is going to take."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        settings = json.loads((home / "keras.json").read_text("utf-8"))
        return str(settings["backend"])
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"  # as Keras does


@contextlib.contextmanager
def native_silence() -> Iterator[None]:
    """Drops what C++ writes to stderr."""
    stderr = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(silence)
