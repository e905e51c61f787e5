"""Networks of another checkout of this repository and of this one, in turns."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Row, Settings

# Those that issues named, and two whose speed was to stay.
NAMES = (
    *("em_capsnet", "em_capsnet_small", "gamma_capsnet"),
    *("efficient_conv_capsnet", "multilayer_capsnet", "deepcaps"),
)
_QUICK = ("dr_capsnet_small",)
# Each checkout has so many processes of a network, one after the other's.
_TURNS = 2
# Both checkouts have these names; what they time is the same.
_CODE = """
import json, sys
from benchmarks.models import SIZES, Size, measure_network
name, rounds = sys.argv[1], int(sys.argv[2])
rows = measure_network(name, SIZES.get(name, Size()), rounds)
print("ROWS", json.dumps([row._asdict() for row in rows]))
"""
_MARK = "ROWS "


def measure(settings: Settings, before: Path, here: Path) -> list[Row]:
    """Times training and prediction of networks by the code of two checkouts.

    Each network and its floor run in a process of their own, by turns of the
    two checkouts, so that both meet the same load of the machine. A row has
    the median over the turns of a checkout.

    Args:
        settings: What the flags say.
        before: The other checkout of this repository.
        here: This one.
    """
    rows = []
    for name in _QUICK if settings.quick else NAMES:
        turns: dict[Path, list[Any]] = {before: [], here: []}
        for _ in range(_TURNS):
            for root, those in turns.items():
                those.append(_in_process(root, name, settings.rounds))
        old, new = (_median(those) for those in turns.values())
        former = f"{name}, before"
        floors = f"{name}, floor", f"{name}, floor, before"
        rows += [
            Row(name=name, base=former, **new[name]),
            Row(name=former, base=floors[1], **old[name]),
            Row(name=floors[0], base=floors[1], **new[floors[0]]),
            Row(name=floors[1], **old[floors[0]]),
        ]
    return rows


def _in_process(root: Path, name: str, rounds: int) -> dict[str, Any]:
    """Returns rows of a network and of its floor, by the code in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, name, str(rounds)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    line = next(x for x in done.stdout.splitlines() if x.startswith(_MARK))
    rows = json.loads(line.removeprefix(_MARK))
    print(
        f"before, {root.name}: {name} {rows[0]['step']['ms']:.2f} ms",
        flush=True,
    )
    return {row["name"]: row for row in rows}


def _median(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the rows of a checkout, of its turns together."""
    together = {}
    for name, row in turns[0].items():
        times = {
            kind: {"ms": float(np.median([x[name][kind]["ms"] for x in turns]))}
            for kind in ("forward", "step")
        }
        together[name] = {"inputs": row["inputs"], **times}
    return together
