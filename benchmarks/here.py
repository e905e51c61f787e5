"""Tells how fast this machine trains, beside machines that were measured.

python -m benchmarks.here

trains three networks for some steps each, in about a minute, and writes
nothing. `results/here.json` has the machines.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measure import ROOT, call_elsewhere, main
from cli import Parser
from markdown_table import table

NETWORKS = ("parts_capsnet", "dr_capsnet_small", "efficient_capsnet")
KNOWN = ROOT / "results" / "here.json"
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


def parser() -> Parser:
    """Returns the parser of the command."""
    return Parser(
        prog="benchmarks/here.py", description=__doc__.splitlines()[0]
    )


def run(options: argparse.Namespace) -> None:
    """Measures, and prints the costs here and on each known machine."""
    del options
    known = json.loads(KNOWN.read_text("utf-8"))
    rows = []
    for name in NETWORKS:
        print(f"training {name} for some steps", flush=True)
        here = call_elsewhere("benchmarks.here:measure", name=name)
        costs = {"this one": here}
        costs |= {title(each): each["kept"][name] for each in known}
        for machine, cost in costs.items():
            share = cost["system_ms"] / cost["user_ms"]
            about = {"name": name, "machine": machine, "share": share}
            rows.append({**about, **cost})
    print(f"\n{table(rows, _COLUMNS, left=2)}")


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
        `faults`.
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
    clocks: list[tuple[float, ...]] = []

    class Probe(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
        """Reads the clocks after the first steps and after each of the rest."""

        def on_train_batch_end(self, step: int, logs: Any = None) -> None:
            del logs
            if step >= _WARM - 1:
                used = resource.getrusage(resource.RUSAGE_SELF)
                seconds = time.perf_counter(), used.ru_utime, used.ru_stime
                clocks.append(
                    (*(1e3 * each for each in seconds), used.ru_minflt)
                )
            late = clocks[1:] and clocks[-1][0] - clocks[0][0] > limit
            self.model.stop_training = bool(late)

    limit = 1e3 * seconds
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
    names = ("ms", "user_ms", "system_ms", "faults")
    both = zip(names, clocks[0], clocks[-1], strict=True)
    steps = len(clocks) - 1
    return {name: (after - before) / steps for name, before, after in both}


if __name__ == "__main__":
    sys.exit(main(parser(), run))
