"""The data sets that `--dataset` names, from `sources.toml`.

This file loads nothing, so that a command can say at once what there is.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli import UserError


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set of the command line; `sources.toml` says what each means."""

    about: str = ""
    loader: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    drawn: bool = False


_FILE = Path(__file__).with_suffix(".toml").read_text("utf-8")
SOURCES = {name: Source(**e) for name, e in tomllib.loads(_FILE).items()}


def check(name: str, data_dir: str | None) -> None:
    """Raises `UserError` if there is no such data set or folder."""
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"--data-dir {data_dir!r} is not a folder.")
    if name in SOURCES:
        return
    path = Path(name)
    if name and path.is_dir() or path.suffix == ".npz":
        return  # what reads them says more
    if not name or path.exists() or name[0] in "/.~" or name[-1] == "/":
        raise UserError(
            f"data set {name!r} is neither a folder nor an .npz file."
        )
