"""`manifest.json`: what an exported folder is, and a hash of each file."""

import hashlib
import json
from pathlib import Path
from typing import Any

from cli import UserError

NAME = "manifest.json"


def write(folder: Path, about: dict[str, Any]) -> None:
    """Writes the manifest of a folder in which all other files are.

    Args:
        folder: An exported folder.
        about: What else to say; must be JSON.
    """
    content = {**about, "files": _files(folder)}
    content["sha256"] = _digest(content)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    (folder / NAME).write_text(text, "utf-8")


def read(folder: Path) -> dict[str, Any]:
    """Returns the manifest of an exported folder.

    Raises:
        UserError: If there is none, or it is not what was written.
    """
    path = folder / NAME
    try:
        content = json.loads(path.read_text("utf-8"))
        files = content["files"]
        digest = content.pop("sha256")
        is_whole = isinstance(files, dict) and digest == _digest(content)
    except FileNotFoundError as error:
        raise UserError(
            f"manifest: {folder} has no {NAME}, so it is no exported folder, "
            "or not a whole one."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        is_whole = False
    if not is_whole:
        raise UserError(f"manifest: {path} was changed; export the model anew.")
    return content


def check(folder: Path) -> dict[str, Any]:
    """Returns the manifest, if the folder's files are those it names.

    Raises:
        UserError: If a file is missing, was changed or is new.
    """
    content = read(folder)
    expected, found = content["files"], _files(folder)
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            problem = "is missing"
        elif name not in expected:
            problem = "does not belong to the export"
        elif found[name]["bytes"] != expected[name]["bytes"]:
            problem = (
                f"has {found[name]['bytes']} bytes instead of "
                f"{expected[name]['bytes']}"
            )
        elif found[name] != expected[name]:
            problem = "was changed: its SHA-256 is another"
        else:
            continue
        raise UserError(
            f"manifest: {folder / name} {problem}; export the model anew."
        )
    return content


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns size and hash of every file but the manifest, by its path."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": _sha256(path),
        }
        for path in paths
        if path != folder / NAME
    }


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
