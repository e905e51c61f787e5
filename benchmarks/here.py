"""Tells how fast this machine trains, beside machines that were measured.

python -m benchmarks.here

trains three networks for some steps each, in about a minute, and writes
nothing. `results/here.json` has the machines.
"""

import argparse
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import common
from benchmarks.measure import call_elsewhere
from cli import Parser
from markdown_table import table

NETWORKS = ("parts_capsnet", "dr_capsnet_small", "efficient_capsnet")
# Steps before the first that is measured, in which the memory still grows, and
# at most so many after.
_WARM = 12
_STEPS = 30
_SECONDS = 8.0
_COLUMNS = (
    ("network", "{name}"),
    ("machine", "{machine}"),
    ("step, ms", "{ms:.0f}"),
    ("faults", "{faults:,.0f}"),
    ("system / user", "{share!p:.1f} %"),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = common.make_parser("here", __doc__)
    parser.add_argument(
        "--networks",
        type=lambda names: names.split(","),
        default=NETWORKS,
        help=f"which, instead of {','.join(NETWORKS)}",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    from training.models import network

    for name in options.networks:
        network(name)
    common.read(options.out / "here.json", [])


def run(options: argparse.Namespace) -> None:
    """Measures, and prints the costs here and on each known machine."""
    known = common.read(options.out / "here.json", [])
    rows = []
    for name in options.networks:
        print(f"training {name} for some steps", flush=True)
        cost = call_elsewhere("benchmarks.here:measure", name=name)
        rows.append(_row(name, "this one", cost))
        rows += [
            _row(name, title(machine), machine["kept"][name])
            for machine in known
            if name in machine["kept"]
        ]
    print(f"\n{table(rows, _COLUMNS, left=2)}")


def _row(name: str, machine: str, cost: Mapping[str, Any]) -> dict[str, Any]:
    share = cost["system_ms"] / cost["user_ms"]
    return {"name": name, "machine": machine, "share": share, **cost}


def title(measured: Mapping[str, Any]) -> str:
    """Returns in a few words on which machine was measured."""
    described, kind = measured["machine"], measured["kind"]
    if kind == "as it is":
        has_it = "avx512f" in described["vector_units"]
        kind = "AVX-512" if has_it else "no AVX-512"
    return f"{described['cpu']}, {described['cores']} cores, {kind}"


def measure(
    name: str, batch: int | None = None, seconds: float = _SECONDS
) -> dict[str, float]:
    """Trains a network for a few steps of `fit`, in a process of its own.

    Whether memory is kept between steps holds for a whole process, see
    `tfcaps.keep_memory`.

    Args:
        name: A name in `training.models.MODELS`.
        batch: Int. Images in a step. Defaults to that of `benchmarks.models`.
        seconds: Time after which no further step is begun. Defaults to `8.0`.

    Returns:
        For a step the milliseconds by the clock `ms`, those of all cores
        computing `user_ms` and in the kernel `system_ms`, and the page
        `faults`; the most megabytes that the process has held, `peak_mb`; and
        how many `steps` were measured.
    """
    import keras

    import tfcaps
    from benchmarks import models
    from training import networks
    from training.batches import Batches, stream
    from training.image_data import Images

    tfcaps.keep_memory()
    size = models.size_of(name, batch)
    if name == "parts_capsnet":
        size = size._replace(shape=(32, 32, 1))  # those of figures
    network = networks.build(name, size.shape, size.classes)
    model = models.to_train(network, name)
    count = size.batch * (_WARM + _STEPS)
    images, labels = models.random_data(size._replace(batch=count))
    clocks: list[Sequence[float]] = []

    class Probe(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
        """Reads the clocks after the first steps and after each of the rest."""

        def on_train_batch_end(self, step: int, logs: Any = None) -> None:
            del logs
            if step >= _WARM - 1:
                clocks.append(_clocks())
            late = clocks[1:] and clocks[-1][0] - clocks[0][0] > 1e3 * seconds
            self.model.stop_training = bool(late)

    # As the main job feeds it: arrays of Keras' own leave the memory such that
    # glibc gives back much less.
    batches = stream(
        Batches(
            Images(images),
            labels,
            size.batch,
            arrange=lambda x, y: (x, models.targets(model, x, y)),
        )
    )
    model.fit(batches, verbose=0, shuffle=False, callbacks=[Probe()])
    steps = len(clocks) - 1
    names = ("ms", "user_ms", "system_ms", "faults")
    both = zip(names, clocks[0], clocks[-1], strict=True)
    cost = {key: (after - before) / steps for key, before, after in both}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**cost, "peak_mb": 1.024e-3 * peak, "steps": steps}


def _clocks() -> tuple[float, float, float, float]:
    """Returns milliseconds by three clocks, and page faults so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (
        1000 * time.perf_counter(),
        1000 * used.ru_utime,
        1000 * used.ru_stime,
        used.ru_minflt,
    )


if __name__ == "__main__":
    sys.exit(common.main(make_parser(), run, _check))
