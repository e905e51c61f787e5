"""Tells how fast this machine trains, beside machines that were measured.

python -m benchmarks.here

trains three networks for some steps each, in about a minute. With `--record` it
adds what it measured to `results/here.json`, and makes the table of `here.md`.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import measure as measuring
from cli import Parser
from markdown_table import table

NETWORKS = ("parts_capsnet", "dr_capsnet_small", "efficient_capsnet")
# Steps before the first that is measured, in which the memory still grows, and
# at most so many after.
_WARM = 12
_STEPS = 100
_SECONDS = 8.0
_COLUMNS = (
    ("network", "{network}"),
    ("machine", "{machine}"),
    ("memory", "{memory}"),
    ("step, ms", "{ms:.0f}"),
    ("computing, ms", "{user_ms:.0f}"),
    ("kernel, ms", "{system_ms:.1f}"),
    ("faults", "{faults:,.0f}"),
    ("peak, MB", "{peak_mb:,.0f}"),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = measuring.results_parser("here", __doc__)
    add = parser.add_argument
    add(
        "--networks",
        type=lambda names: names.split(","),
        default=NETWORKS,
        help=f"which, instead of {','.join(NETWORKS)}",
    )
    add("--give-back", action="store_true", help="do not keep the memory")
    add("--record", action="store_true", help="add it to results/here.json")
    return parser


def _check(options: argparse.Namespace) -> None:
    from training.models import network

    for name in options.networks:
        network(name)


def run(options: argparse.Namespace) -> None:
    """Measures, and prints the costs here and on each known machine."""
    file = options.out / "here.json"
    known = json.loads(file.read_text("utf-8")) if file.exists() else []
    about = measuring.machine()
    here = {
        "machine": title(about["cpu"]),
        "memory": "given back" if options.give_back else "kept",
    }
    rows = []
    for name in options.networks:
        print(f"training {name} for some steps", flush=True)
        cost = measuring.in_new_process(measure, name, not options.give_back)
        rows.append({"network": name, **here, **cost})
        rows += [
            row for row in known if row["network"] == name if not options.record
        ]
    if not options.record:
        print(f"\n{table(rows, _COLUMNS, left=3)}")
        return
    key = ("network", "machine", "memory")
    merged = {tuple(row[k] for k in key): row for row in known}
    for row in rows:
        row |= {name: about[name] for name in ("date", "commit")}
        merged[tuple(row[k] for k in key)] = row
    rows = [merged[key] for key in sorted(merged)]
    text = table(rows, _COLUMNS, left=3)
    measuring.write(options.out, "here", rows, text)


def title(cpu: str) -> str:
    """Returns in a few words on which machine is measured."""
    try:
        has_it = "avx512f" in Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        has_it = False
    kind = "AVX-512" if has_it else "no AVX-512"
    if has_it and os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
        kind = "as without AVX-512"
    return f"{cpu}, {os.cpu_count()} cores, {kind}"


def measure(name: str, keep: bool = True) -> Mapping[str, float]:
    """Trains a network for a few steps of `fit`, in a process of its own.

    Whether memory is kept between steps holds for a whole process, see
    `tfcaps.keep_memory`.

    Args:
        name: A name in `training.models.MODELS`.
        keep: Bool. Whether the memory is kept. Defaults to `True`.

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
    from training.images import Images

    if keep:
        tfcaps.keep_memory()
    size = models.size_of(name)
    if name in ("parts_capsnet", "constellation_capsnet"):
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
            late = clocks[1:] and clocks[-1][0] - clocks[0][0] > 1e3 * _SECONDS
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
    sys.exit(measuring.main(make_parser(), run, _check))
