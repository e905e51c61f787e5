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
print(json.dumps([row._asdict() for row in rows]))
"""


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
        turns: dict[str, list[Any]] = {", before": [], "": []}
        for _ in range(_TURNS):
            for when, root in zip(turns, (before, here), strict=True):
                turns[when].append(_in_process(root, name, settings.rounds))
        floor = f"{name}, floor"
        for what, when, base in (
            (name, "", f"{name}, before"),
            (name, ", before", f"{floor}, before"),
            (floor, "", f"{floor}, before"),
            (floor, ", before", None),
        ):
            those = [turn[what] for turn in turns[when]]
            forward, step = (
                {"ms": float(np.median([row[kind]["ms"] for row in those]))}
                for kind in ("forward", "step")
            )
            shape = those[0]["inputs"]
            rows.append(Row(what + when, shape, forward, step, base))
    return rows


def _in_process(root: Path, name: str, rounds: int) -> dict[str, Any]:
    """Returns rows of a network and of its floor, by the code in a folder."""
    printed = subprocess.check_output(
        [sys.executable, "-c", _CODE, name, str(rounds)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    )
    rows = json.loads(printed.splitlines()[-1])
    step = rows[0]["step"]["ms"]
    print(f"before, {root.name}: {name} {step:.2f} ms", flush=True)
    return {row["name"]: row for row in rows}
