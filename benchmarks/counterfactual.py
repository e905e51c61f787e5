"""Times a training step with the counterfactual loss beside one without.

python -m benchmarks.counterfactual

prints, with the settings and data of each given data set, the milliseconds of a
step of the network alone, with the coupling loss, and with both losses.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measure import interleaved
from cli import Parser, at_least_one, check_installed, run_loading
from training import configs, sources
from training.quiet import start_quietly

_NO_COUPLING: dict[str, Any] = dict.fromkeys(
    ("coupling_spread", "coupling_polarization", "coupling_crowding"), 0.0
)
_NO_COUNTERFACTUAL: dict[str, Any] = dict.fromkeys(
    ("counterfactual_necessity", "counterfactual_sufficiency"), 0.0
)
CANDIDATES: dict[str, dict[str, Any]] = {
    "network": {**_NO_COUPLING, **_NO_COUNTERFACTUAL},
    "coupling loss": _NO_COUNTERFACTUAL,
    "both losses": {},
}


def measure(dataset: str, rounds: int) -> dict[str, float]:
    """Returns milliseconds of a step by candidate."""
    from training import datasets

    config = configs.load(dataset)
    data = datasets.load(dataset)
    steps = {
        name: _step(data, dataclasses.replace(config, **changes))
        for name, changes in CANDIDATES.items()
    }
    timings = interleaved(f"{dataset}, {config.model}", steps, rounds)
    return {name: timing["ms"] for name, timing in timings.items()}


def _step(data: Any, config: configs.Config) -> Callable[[], Any]:
    """Returns a call that trains on one batch, the same each time."""
    from training import fit

    ready = fit.prepare("rem", data, config, None)
    inputs, targets = ready.batches[0]

    def step() -> Any:
        return ready.trained.train_on_batch(inputs, targets)

    return step


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="benchmarks/counterfactual.py",
        description=__doc__.splitlines()[0],
    )
    add = parser.add_argument
    add("--datasets", default="digits,figures", help="names with commas")
    add("--rounds", type=at_least_one, default=40)
    return parser


def _check(options: argparse.Namespace) -> None:
    for dataset in options.datasets.split(","):
        sources.check(dataset, None)
    check_installed(data="PIL")


def _load() -> Callable[[argparse.Namespace], None]:
    start_quietly()
    return main


def main(options: argparse.Namespace) -> None:
    """Prints the milliseconds and their ratio, a line for each data set."""
    import keras

    for dataset in options.datasets.split(","):
        ms = measure(dataset, options.rounds)
        ratio = ms["both losses"] / ms["coupling loss"]
        parts = ", ".join(
            f"{name} {value:.1f} ms" for name, value in ms.items()
        )
        print(
            f"{dataset} on {keras.backend.backend()}: {parts}; with the "
            f"counterfactual loss a step takes {ratio:.2f} times as long"
        )


if __name__ == "__main__":
    sys.exit(run_loading(make_parser(), _load, _check))
