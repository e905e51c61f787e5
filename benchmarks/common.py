"""What the commands share: flags, files, the machine, and a table of rows."""

import datetime
import json
import os
import platform
import subprocess
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import Parser, UserError, run_loading, start_quietly, version_of
from markdown_table import table

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("tensorflow", "keras")
_VECTOR_UNITS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")
_COLUMNS = (
    ("part", "{part}"),
    ("what", "{name}"),
    ("inputs", "{inputs!x}"),
    ("forward, ms", "{forward}"),
    ("ratio", "{ratios[forward]}"),
    ("step, ms", "{step}"),
    ("ratio", "{ratios[step]}"),
    ("peak, MB", "{peak_mb}"),
    ("process, MB", "{process_mb}"),
    ("ratio is to", "{base}"),
)


def make_parser(name: str, description: str | None) -> Parser:
    """Returns a parser that knows the folder of the results.

    Args:
        name: The command's module.
        description: Its docstring, of which the first line is shown.
    """
    first = (description or "").partition("\n")[0]
    parser = Parser(prog=f"benchmarks/{name}.py", description=first)
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "results",
        metavar="FOLDER",
        help="where the files are (default: results/)",
    )
    return parser


def main(
    parser: Parser,
    run: Callable[[Namespace], None],
    check: Callable[[Namespace], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Checks flags, then loads TensorFlow and runs; returns the exit status."""

    def load() -> Callable[[Namespace], None]:
        start_quietly()
        return run

    return run_loading(parser, load, check, argv)


def read(path: Path, empty: Any) -> Any:
    """Returns what an earlier run left in a file, `empty` if there is none.

    Raises:
        UserError: If it is not JSON of the type of `empty`.
    """
    if not path.exists():
        return empty
    try:
        known = json.loads(path.read_text("utf-8"))
    except ValueError:
        known = None
    if not isinstance(known, type(empty)):
        raise UserError(f"{path} is not what this command writes; remove it.")
    return known


def write(folder: Path, name: str, data: Any, text: str) -> None:
    """Writes data and the page made of them, `name.json` and `name.md`."""
    from tfcaps.files import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(data, indent=1) + "\n"
    for suffix, each in (("json", content), ("md", text)):
        with write_atomically(folder / f"{name}.{suffix}", "w") as file:
            file.write(each)
    print(f"written: {folder / f'{name}.md'}", flush=True)


def machine(packages: Sequence[str] = _PACKAGES) -> dict[str, Any]:
    """Returns date, commit, processor, cores and versions of packages."""
    found = {name: version_of(name) for name in packages}
    versions = {name: version for name, version in found.items() if version}
    flags = _of_processor("flags").split()
    return {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "cpu": _of_processor("model name") or platform.machine(),
        "vector_units": [unit for unit in _VECTOR_UNITS if unit in flags],
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version(), **versions},
    }


def _commit() -> str | None:
    """The commit, `-dirty` if files other than results differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".", ":!results")
        commit = git("rev-parse", "HEAD")
    except OSError:
        return None
    return f"{commit}-dirty" if commit and changed else commit or None


def _of_processor(key: str) -> str:
    """Returns what Linux says of the first processor; nothing elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next(
        (value.strip() for k, _, value in pairs if k.strip() == key), ""
    )


def origin(
    machine: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> str:
    """Returns the line that says when, where and of what something was run."""
    words = [
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}",
        f"{machine['cpu']}, {machine['cores']} cores",
        *(f"{name} {version}" for name, version in machine["versions"].items()),
    ]
    if settings:
        words.append(f"at most {settings['rounds']} rounds")
        words += ["quick"] if settings["quick"] else []
    return f"{', '.join(words)}."


def table_of_rows(parts: Mapping[str, Any]) -> str:
    """Returns the table of the `rows` of all parts."""
    records = [
        _record(part, row, content["rows"])
        for part, content in parts.items()
        for row in content["rows"]
    ]
    return table(records, _COLUMNS, left=3)


def _record(
    part: str, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the cells of a row as text, empty where nothing is asked for."""
    base = next((r for r in rows if r["name"] == row["base"]), row)
    record: dict[str, Any] = {**row, "part": part, "ratios": {}}
    for kind in ("forward", "step"):
        ms, ratio = "", ""
        if row[kind]:
            ms = f"{row[kind]['ms']:,.2f}"
            if base is not row:
                ratio = f"{row[kind]['ms'] / base[kind]['ms']:.2f}"
        record[kind], record["ratios"][kind] = ms, ratio
    for kind in ("peak_mb", "process_mb"):
        record[kind] = "" if row[kind] is None else f"{row[kind]:,.0f}"
    record["base"] = "" if base is row else row["base"]
    return record
