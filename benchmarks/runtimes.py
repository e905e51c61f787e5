"""Measures networks in every runtime, in float32 and in int8: one table.

python -m benchmarks.runtimes --data mnist.npz \\
    dense=runs/mnist/baseline.keras structured=runs/mnist/model.keras

writes results/runtimes.json and, from it alone, results/runtimes.md. Networks
that hold zeros are measured as they are and compacted. All networks of a
runtime take turns.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measure import (
    interleaved,
    machine,
    main,
    origin,
    results_parser,
    write,
)
from cli import Parser, UserError, at_least_one
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
    parser = results_parser("runtimes", __doc__)
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        type=_named_file,
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
    add("--rounds", type=at_least_one, default=20, help="turns (default: 20)")
    return parser


def _named_file(text: str) -> tuple[str, Path]:
    """Returns the two parts of a flag's `NAME=FILE`; errors are argparse's."""
    name, _, file = text.partition("=")
    if not (name and file):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.keras")
    return name, Path(file)


def check(options: argparse.Namespace) -> None:
    """Raises `UserError` if a file or a package is missing."""
    for file in (options.data, *(file for _, file in options.models)):
        if not file.is_file():
            raise UserError(f"there is no file {file}.")
    check_formats(options.format, int8=True)


def run(options: argparse.Namespace) -> None:
    """Exports, measures and writes the two files."""
    from tfcaps import rem

    networks: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for name, file in options.models:
            model = load_model(file)
            kinds = {name: model}
            if rem.sparsity(model):
                kinds[f"{name}, compacted"] = rem.compact(model)
            for title, network in kinds.items():
                print(f"exporting and measuring {title}", flush=True)
                to = Path(work) / f"network-{len(networks)}"
                networks[title], found = _export(network, to, options)
                rows += [{"network": title, **row} for row in found]
        for form in options.format:
            some = [row for row in rows if row["runtime"] == form]
            _measure(some, options.rounds)
    for row in rows:
        del row["model"], row["shape"]
    result = {
        "machine": machine(),
        "data": options.data.name,
        "rounds": options.rounds,
        "networks": networks,
        "rows": rows,
    }
    write(options.out, "runtimes", result, page(result))


def _export(
    network: Any, to: Path, options: argparse.Namespace
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Exports a network; returns Keras's measures, and a row for each file."""
    from tfcaps import export, rem
    from tfcaps.export.int8 import read_samples
    from tfcaps.export.runtimes import Model

    shape = tuple(network.inputs[0].shape[1:])
    samples = read_samples(options.data, shape, "float32")
    folder = export.save(
        network,
        to,
        compacted=False,
        formats=options.format,
        int8=None if options.format == ["savedmodel"] else samples,
    )
    test = samples.images, samples.labels
    report = rem.evaluate(network, test)
    used = rem.faithfulness(network, test)
    measured = {
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
    about = json.loads((folder / "manifest.json").read_text("utf-8"))
    rows = []
    for form in options.format:
        saved = Model(folder, form)
        size = sum(file.stat().st_size for file in saved.files)
        exact = {"bytes": size, "accuracy": report.accuracy, "same_trees": 1.0}
        kinds = {"float32": exact}
        if form != "savedmodel":
            kinds = about["int8"]["formats"][form]
        for kind, found in kinds.items():
            model = saved._replace(int8=kind == "int8")
            row = {"runtime": form, "numbers": kind, "model": model}
            row["shape"] = shape
            rows.append(row | {name: found[name] for name in exact})
    return measured, rows


def _measure(rows: list[dict[str, Any]], rounds: int) -> None:
    """Adds times, of all networks in turn, and memory to rows of one format."""
    from tfcaps.export.checking import draw_images

    for row in rows:
        row["milliseconds"] = {}
        row["process_mb"] = _memory(row["model"], row["shape"])
    for batch in BATCHES:
        calls = {}
        for number, row in enumerate(rows):
            images = draw_images(batch, row["shape"], "float32")
            ask = row["model"].load()
            calls[str(number)] = partial(ask, "serving_default", images)
        title = f"{rows[0]['runtime']}, batch {batch}"
        times = interleaved(title, calls, rounds)
        for row, timing in zip(rows, times.values(), strict=True):
            row["milliseconds"][str(batch)] = round(timing["ms"], 3)


# Loads and asks a model without Keras and tfcaps, and prints what it held.
_ALONE = """
import pathlib, runpy, sys, numpy
file, form, int8, folder, *shape = sys.argv[1:]
model = runpy.run_path(file)["Model"](pathlib.Path(folder), form, bool(int8))
images = numpy.ones([int(side) for side in shape], "float32")
model.load()("serving_default", images)
status = pathlib.Path("/proc/self/status").read_text()
print(status.partition("VmHWM:")[2].split()[0])
"""


def _memory(model: Any, shape: Sequence[int]) -> float | None:
    """Returns the most megabytes that a process with one network held.

    It is `None` where the system does not tell.
    """
    from tfcaps.export import runtimes

    int8 = "int8" if model.int8 else ""
    flags = [runtimes.__file__, model.format, int8, str(model.folder)]
    flags += map(str, (BATCHES[-1], *shape))
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return None if done.returncode else 1.024e-3 * int(done.stdout.split()[-1])


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
        f"{origin(result['machine'])}\n"
    )


if __name__ == "__main__":
    sys.exit(main(make_parser(), run, check))
