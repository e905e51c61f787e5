"""Tells how fast this machine trains, beside machines that were measured.

python -m benchmarks.here

trains three networks for some steps each, in about a minute, and writes
nothing. With --record it trains every kind of network, with and without
keeping memory (`tfcaps.keep_memory`), also as on a processor without AVX-512,
and adds this machine to results/here.json. From that alone it writes
results/here.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import command, faults, machine
from benchmarks.faults import Cost
from cli import Parser
from markdown_table import table

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
    parser = command.make_parser("here", __doc__)
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
    return parser


def run(options: argparse.Namespace) -> None:
    """Measures, and prints or records."""
    known = read(options.out)
    names = options.networks or (_RECORDED if options.record else NETWORKS)
    if options.record:
        for kind in _KINDS:
            for name in names:
                known = added(known, _measure(name, kind))
                command.write(options.out, "here", known, page(known))
        return
    rows = []
    for name in names:
        print(f"training {name} for some steps", flush=True)
        cost = faults.of_training(name, seconds=_SECONDS)
        rows += beside(name, cost, known)
    about = (("network", "{name}"), ("machine", "{machine}"))
    print(f"\n{table(rows, (*about, *_columns('cost')[:3]), left=2)}")


def beside(
    name: str, cost: Cost, known: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Returns what a network costs here, and on each known machine."""
    return [
        {"name": name, "machine": "this one", "cost": cost},
        *(
            {"name": name, "machine": title(m), "cost": Cost(**m["kept"][name])}
            for m in known
            if name in m["kept"]
        ),
    ]


def _columns(key: str, end: str = "") -> tuple[tuple[str, str], ...]:
    """Returns the columns of a cost, their heads with an end."""
    return (
        (f"step, ms{end}", f"{{{key}.ms:.0f}}"),
        (f"faults{end}", f"{{{key}.faults:,.0f}}"),
        (f"system / user{end}", f"{{{key}.system_share!p:.1f}} %"),
        (f"peak, MB{end}", f"{{{key}.peak_mb:,.0f}}"),
    )


def title(measured: dict[str, Any]) -> str:
    """Returns in a few words on which machine was measured."""
    units = measured["machine"]["vector_units"]
    kind = measured["kind"]
    if kind == _NATIVE:
        kind = "AVX-512" if "avx512f" in units else "no AVX-512"
    described = measured["machine"]
    return f"{described['cpu']}, {described['cores']} cores, {kind}"


def _measure(name: str, kind: str) -> dict[str, Any]:
    """Returns a machine of which one network is known."""
    measured: dict[str, Any] = {"kind": kind, "machine": machine.describe()}
    for key, kept in (("kept", True), ("given_back", False)):
        cost = faults.of_training(
            name, kept=kept, seconds=_SECONDS, environment=_KINDS[kind]
        )
        print(f"{kind}, {name}, {key}: {cost}", flush=True)
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
    known: list[dict[str, Any]] = command.read(folder / "here.json", [])
    return known


def page(known: Sequence[dict[str, Any]]) -> str:
    """Returns the page of all known machines."""
    parts = [_PAGE]
    columns = (("network", "{name}"), *_columns("kept", ", kept"))
    for measured in known:
        rows = [
            {
                "name": name,
                "kept": Cost(**kept),
                "back": Cost(**measured["given_back"][name]),
            }
            for name, kept in measured["kept"].items()
        ]
        date = measured["machine"]["date"]
        parts.append(f"## {title(measured)}, {date}\n")
        parts.append(f"{table(rows, (*columns, *_columns('back')))}\n")
    return "\n".join(parts)


def _check(options: argparse.Namespace) -> None:
    from training.models import network

    for name in options.networks or ():
        network(name)
    read(options.out)


if __name__ == "__main__":
    sys.exit(command.main(make_parser(), run, _check))
