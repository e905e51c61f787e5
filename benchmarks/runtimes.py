"""Measures networks in every runtime, in float32 and in int8: one table.

python -m benchmarks.runtimes --data mnist.npz \\
    dense=runs/mnist/baseline.keras structured=runs/mnist/model.keras

writes results/runtimes.json and, from it alone, results/runtimes.md. Networks
that hold zeros are measured as they are and compacted. All networks of a
runtime take turns, and the runtimes take turns among themselves.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import command, machine, tables
from cli import (
    Parser,
    UserError,
    at_least_one,
    named_file,
)
from export.run import FORMATS, check_formats, load_model
from markdown_table import table

BATCHES = (1, 32)
_NETWORKS = (
    ("network", "{name}"),
    ("parameters", "{parameters:,}"),
    ("zeros, %", "{sparsity!p:.1f}"),
    ("multiply-adds, millions", "{multiply_adds!M:.2f}"),
    ("accuracy, %", "{accuracy!p:.2f}"),
    ("entropy, bits", "{entropy_bits:.2f}"),
    ("T-score", "{t_score:.3f}"),
    ("necessity, %", "{necessity!p:.1f}"),
    ("random, %", "{necessity_random!p:.1f}"),
    ("tree, %", "{tree_size!p:.1f}"),
)
_ROWS = (
    ("network", "{network}"),
    ("runtime", "{runtime}"),
    ("numbers", "{numbers}"),
    *((f"ms, batch {n}", f"{{ms[{k}]:.2f}}") for k, n in enumerate(BATCHES)),
    ("MB on disk", "{bytes!M:.2f}"),
    ("MB of the process", "{process_mb:.0f}"),
    ("accuracy, %", "{accuracy!p:.2f}"),
    ("same trees, %", "{same_trees!p:.1f}"),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = command.make_parser("runtimes", __doc__)
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        type=named_file,
        metavar="NAME=FILE.keras",
        help="networks, and what they are called in the table",
    )
    add(
        "--data",
        type=Path,
        required=True,
        metavar="IMAGES.npz",
        help="x_train calibrates int8, x_test and y_test measure",
    )
    add(
        "--format",
        nargs="+",
        choices=FORMATS,
        default=list(FORMATS),
        help="runtimes (default: all)",
    )
    add(
        "--rounds",
        type=at_least_one,
        default=20,
        help="turns of each network (default: 20)",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    for _, file in options.models:
        if not file.is_file():
            raise UserError(f"there is no file {file}.")
    if not options.data.is_file():
        raise UserError(f"there is no file {options.data}.")
    check_formats(options.format, int8=True)


class _Asked(NamedTuple):
    """A network in a format, in float32 or int8."""

    network: str
    format: str
    int8: bool
    folder: Path


def run(options: argparse.Namespace) -> None:
    """Exports, measures and writes the two files."""
    with tempfile.TemporaryDirectory() as work:
        networks, asked = _export(options, Path(work))
        times = list(_times(asked, options))
        rows = [
            {
                **_described(each, networks),
                "milliseconds": milliseconds,
                "process_mb": _memory(each),
            }
            for each, milliseconds in zip(asked, times, strict=True)
        ]
    measured = {name: network["measured"] for name, network in networks.items()}
    result = {
        "machine": machine.describe(),
        "data": options.data.name,
        "rounds": options.rounds,
        "networks": measured,
        "rows": rows,
    }
    command.write(options.out, "runtimes", result, page(result))


def _export(
    options: argparse.Namespace, work: Path
) -> tuple[dict[str, Any], list[_Asked]]:
    """Exports each network, in each format and both kinds of numbers."""
    from tfcaps import export, rem
    from tfcaps.export.int8 import read_samples

    networks: dict[str, Any] = {}
    for name, file in options.models:
        model = load_model(file)
        networks[name] = {"model": model, "compacted": False}
        if rem.sparsity(model):
            networks[f"{name}, compacted"] = {"model": model, "compacted": True}
    asked = []
    others = [name for name in options.format if name != "savedmodel"]
    for number, (name, network) in enumerate(networks.items()):
        print(f"exporting and measuring {name}", flush=True)
        shape = tuple(network["model"].inputs[0].shape[1:])
        network["samples"] = read_samples(options.data, shape, "float32")
        folder = export.save(
            network["model"],
            work / f"network-{number}",
            compacted=network["compacted"],
            formats=options.format,
            int8=network["samples"] if others else None,
        )
        about = json.loads((folder / "manifest.json").read_text("utf-8"))
        network["about"] = about
        network["measured"] = _measured(network)
        for form in options.format:
            for int8 in (False, True)[: 1 + (form != "savedmodel")]:
                asked.append(_Asked(name, form, int8, folder))
    return networks, asked


def _measured(network: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Keras's measures of a network, on the images of the table."""
    from tfcaps import rem

    model, samples = network["model"], network["samples"]
    model = rem.compact(model) if network["compacted"] else model
    test = samples.images, samples.labels
    report = rem.evaluate(model, test)
    used = rem.faithfulness(model, test)
    return {
        "accuracy": report.accuracy,
        "images": len(samples.labels),
        "parameters": report.total_parameters,
        "multiply_adds": report.multiply_adds,
        "sparsity": report.sparsity,
        "entropy_bits": report.entropy_bits,
        "t_score": report.t_score,
        "necessity": used.necessity["zero"],
        "necessity_random": used.necessity_random["zero"],
        "tree_size": used.size,
    }


def _described(each: _Asked, networks: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of the table, but for times and memory."""
    from tfcaps.export.runtimes import Model

    network = networks[each.network]
    kind = "int8" if each.int8 else "float32"
    row = {"network": each.network, "runtime": each.format, "numbers": kind}
    if each.format == "savedmodel":
        files = Model(each.folder, each.format).files
        found = {
            "accuracy": network["measured"]["accuracy"],
            "same_trees": 1.0,
            "bytes": sum(file.stat().st_size for file in files),
        }
    else:
        found = network["about"]["int8"]["formats"][each.format][kind]
    names = ("bytes", "accuracy", "same_trees")
    return {**row, **{name: found[name] for name in names}}


def _times(
    asked: list[_Asked], options: argparse.Namespace
) -> Iterator[dict[str, float]]:
    """Yields the median milliseconds of each, by size of batch."""
    import numpy as np

    seconds: dict[tuple[_Asked, int], list[float]] = {}
    for _ in range(3):  # so that no runtime has a quiet hour for itself
        for form in options.format:
            some = [each for each in asked if each.format == form]
            for batch in BATCHES:
                print(f"timing {form}, batch {batch}", flush=True)
                rounds = -(-options.rounds // 3)
                answers = _run(some, batch, rounds + 1)
                for each, answer in zip(some, answers, strict=True):
                    # The first time does not count.
                    taken = seconds.setdefault((each, batch), [])
                    taken.extend(answer.seconds[1:])
    for each in asked:
        yield {
            str(batch): round(1e3 * float(np.median(seconds[each, batch])), 3)
            for batch in BATCHES
        }


def _run(asked: list[_Asked], batch: int, rounds: int) -> list[Any]:
    """Asks networks of one format in turn, in one process."""
    from tfcaps.export import checking, runtimes

    name = "serving_default"
    requests = []
    for each in asked:
        text = (each.folder / "manifest.json").read_text("utf-8")
        about = json.loads(text)["signatures"][name]
        shape = tuple(about["inputs"]["images"]["shape"][1:])
        images = checking.draw_images(batch, shape, "float32")
        model = runtimes.Model(each.folder, each.format, each.int8)
        requests.append(runtimes.Request(model, name, images))
    return runtimes.run(requests, rounds)


def _memory(each: _Asked) -> float | None:
    """Returns the most that a process with one network held, in megabytes."""
    [answer] = _run([each], BATCHES[-1], 1)
    return None if answer.held is None else answer.held / 1e6


def page(result: Mapping[str, Any]) -> str:
    """Returns the page of what `run` measured."""
    networks = [
        {"name": name, **row} for name, row in result["networks"].items()
    ]
    rows = [
        {**row, "ms": [*row["milliseconds"].values()]} for row in result["rows"]
    ]
    return (
        "# Runtimes\n\n"
        f"{result['data']}, {networks[0]['images']} test images. Milliseconds "
        f"are medians of {result['rounds']} turns or more. The process holds "
        "the runtime and one network, with a batch of 32.\n\n"
        f"{table(networks, _NETWORKS)}\n\n"
        f"{table(rows, _ROWS, left=3)}\n\n"
        f"{tables.origin(result['machine'])}\n"
    )


if __name__ == "__main__":
    sys.exit(command.main(make_parser(), run, _check))
