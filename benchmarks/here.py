"""Tells how fast this machine trains, beside machines that were measured.

python -m benchmarks.here

trains three networks for some steps each, in about a minute, and writes
nothing. With --record it trains every kind of network, with and without
keeping memory (`tfcaps.keep_memory`), also as on a processor without AVX-512,
and adds this machine to results/here.json. From that alone it writes
results/here.md.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import faults, machine
from benchmarks.faults import Cost
from cli import Parser, UserError, run_loading
from markdown_table import markdown
from training.quiet import start_quietly

ROOT = Path(__file__).resolve().parents[1]
NETWORKS = ("parts_capsnet", "dr_capsnet_small", "efficient_capsnet")
# One of each kind.
_RECORDED = (
    *NETWORKS,
    "dr_capsnet",
    "affine_capsnet",
    "multilayer_capsnet",
    "gamma_capsnet",
    "efficient_conv_capsnet",
    "deepcaps",
    "em_capsnet_small",
)
_NATIVE, _AVX2 = "as it is", "as without AVX-512"
_KINDS: dict[str, dict[str, str]] = {_AVX2: faults.AVX2, _NATIVE: {}}
_SECONDS = 8.0

_PAGE = """\
# How fast it is on machines that were measured

A training step of `fit`, in milliseconds by the clock; page faults; and the
kernel's time over that of computing. "Kept" is with `tfcaps.keep_memory()`, as
all commands run. "As without AVX-512" is the same machine with oneDNN off and
compiled for AVX2. `python -m benchmarks.here` shows your machine beside these.
"""


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="benchmarks/here.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add(
        "--record",
        action="store_true",
        help="measure every network, and add this machine to the known ones",
    )
    add(
        "--networks",
        type=lambda names: names.split(","),
        help=f"which, instead of {','.join(NETWORKS)}",
    )
    add(
        "--out",
        type=Path,
        default=ROOT / "results",
        metavar="FOLDER",
        help="where here.json is read, and written by --record (default: "
        "results/)",
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Measures, and prints or records."""
    known = read(options.out)
    names = options.networks or (_RECORDED if options.record else NETWORKS)
    if options.record:
        for kind in _KINDS:
            for name in names:
                known = added(known, _measure(name, kind))
                write(options.out, known)
        return
    costs = {}
    for name in names:
        print(f"training {name} for some steps", flush=True)
        costs[name] = faults.of_training(name, seconds=_SECONDS)
    print(f"\n{table(costs, known)}")


def table(costs: dict[str, Cost], known: Sequence[dict[str, Any]]) -> str:
    """Returns what was measured now, and known machines, as a table."""
    rows = [["network", "machine", "step, ms", "faults", "system / user"]]
    for name, cost in costs.items():
        rows.append([name, "this one", *_cells(cost)])
        for other in known:
            if kept := other["kept"].get(name):
                rows.append([name, title(other), *_cells(Cost(**kept))])
    return markdown(rows, left=2)


def title(measured: dict[str, Any]) -> str:
    """Returns in a few words on which machine was measured."""
    units = measured["machine"]["vector_units"]
    kind = measured["kind"]
    if kind == _NATIVE:
        kind = "AVX-512" if "avx512f" in units else "no AVX-512"
    described = measured["machine"]
    return f"{described['cpu']}, {described['cores']} cores, {kind}"


def _cells(cost: Cost) -> list[str]:
    share = f"{100 * cost.system_share:.1f} %"
    return [f"{cost.ms:.0f}", f"{cost.faults:,.0f}", share]


def _measure(name: str, kind: str) -> dict[str, Any]:
    """Returns a machine of which one network is known."""
    measured: dict[str, Any] = {"kind": kind, "machine": machine.describe()}
    for key, kept in (("kept", True), ("given_back", False)):
        cost = faults.of_training(
            name, kept=kept, seconds=_SECONDS, environment=_KINDS[kind]
        )
        print(f"{kind}, {name}, {key}: {', '.join(_cells(cost))}", flush=True)
        measured[key] = {name: cost._asdict()}
    return measured


def added(
    known: Sequence[dict[str, Any]], measured: dict[str, Any]
) -> list[dict[str, Any]]:
    """Returns known machines with what was measured on one, new or known."""
    like = [m for m in known if title(m) == title(measured)]
    for key in ("kept", "given_back"):
        before = like[0][key] if like else {}
        measured = {**measured, key: {**before, **measured[key]}}
    return [*(m for m in known if m not in like), measured]


def read(folder: Path) -> list[dict[str, Any]]:
    """Returns the machines that are known.

    Raises:
        UserError: If the file is broken.
    """
    path = folder / "here.json"
    if not path.exists():
        return []
    try:
        known: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(
            f"{path} is not what this command writes: {error}; remove it."
        ) from error
    return known


def write(folder: Path, known: Sequence[dict[str, Any]]) -> None:
    """Writes the known machines, and the page on them."""
    from tfcaps.files import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    with write_atomically(folder / "here.json", "w") as file:
        json.dump(known, file, indent=1)
        file.write("\n")
    with write_atomically(folder / "here.md", "w") as file:
        file.write(page(known))


def page(known: Sequence[dict[str, Any]]) -> str:
    """Returns the page of all known machines."""
    parts = [_PAGE]
    for measured in known:
        head = ["network", "step, ms", "faults", "system / user", "peak, MB"]
        rows = [[*head[:1], *(f"{h}, kept" for h in head[1:]), *head[1:]]]
        for name, kept in measured["kept"].items():
            row = [name]
            for cost in (kept, measured["given_back"][name]):
                row += [*_cells(Cost(**cost)), f"{cost['peak_mb']:,.0f}"]
            rows.append(row)
        date = measured["machine"]["date"]
        parts += [f"## {title(measured)}, {date}\n", f"{markdown(rows)}\n"]
    return "\n".join(parts)


def _check(options: argparse.Namespace) -> None:
    from training.models import network

    for name in options.networks or ():
        network(name)
    read(options.out)


def _load() -> Callable[[argparse.Namespace], None]:
    start_quietly()
    return run


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_loading(make_parser(), _load, _check, argv)


if __name__ == "__main__":
    sys.exit(main())
