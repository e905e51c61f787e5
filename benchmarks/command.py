"""What the commands share: flags, how they start, and the files they write."""

import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cli import Parser, UserError, run_loading
from training.quiet import start_quietly

ROOT = Path(__file__).resolve().parents[1]


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
    with write_atomically(folder / f"{name}.json", "w") as file:
        json.dump(data, file, indent=1)
        file.write("\n")
    with write_atomically(folder / f"{name}.md", "w") as file:
        file.write(text)
    print(f"written: {folder / f'{name}.md'}", flush=True)
