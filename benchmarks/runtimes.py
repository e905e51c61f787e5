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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import common
from benchmarks.measure import interleaved
from cli import Parser, UserError, at_least_one, named_file
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
    parser = common.make_parser("runtimes", __doc__)
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


def run(options: argparse.Namespace) -> None:
    """Exports, measures and writes the two files."""
    networks: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for name, model, compacted in _networks(options.models):
            print(f"exporting and measuring {name}", flush=True)
            to = Path(work) / f"network-{len(networks)}"
            networks[name], of_network = _export(model, compacted, to, options)
            rows += [{"network": name, **row} for row in of_network]
        for form in options.format:
            some = [row for row in rows if row["runtime"] == form]
            _measure(some, options.rounds)
    for row in rows:
        del row["model"]
    result = {
        "machine": common.machine(),
        "data": options.data.name,
        "rounds": options.rounds,
        "networks": networks,
        "rows": rows,
    }
    common.write(options.out, "runtimes", result, page(result))


def _networks(
    models: Sequence[tuple[str, Path]],
) -> Iterator[tuple[str, Any, bool]]:
    """Yields names and networks, with zeros also to be compacted."""
    from tfcaps import rem

    for name, file in models:
        model = load_model(file)
        yield name, model, False
        if rem.sparsity(model):
            yield f"{name}, compacted", model, True


def _export(
    model: Any, compacted: bool, to: Path, options: argparse.Namespace
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Exports a network; returns Keras's measures, and a row for each file."""
    from tfcaps import export, rem
    from tfcaps.export.int8 import read_samples
    from tfcaps.export.runtimes import Model

    samples = read_samples(
        options.data, tuple(model.inputs[0].shape[1:]), "float32"
    )
    others = [name for name in options.format if name != "savedmodel"]
    folder = export.save(
        model,
        to,
        compacted=compacted,
        formats=options.format,
        int8=samples if others else None,
    )
    test = samples.images, samples.labels
    network = rem.compact(model) if compacted else model
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
            rows.append(row | {name: found[name] for name in exact})
    return measured, rows


def _measure(rows: list[dict[str, Any]], rounds: int) -> None:
    """Adds times, of all networks in turn, and memory to rows of one format."""
    from tfcaps.export.checking import draw_images

    for row in rows:
        row["milliseconds"] = {}
        row["process_mb"] = _memory(row["model"])
    for batch in BATCHES:
        calls = {}
        for number, row in enumerate(rows):
            shape = _shape(row["model"].folder)
            images = draw_images(batch, shape, "float32")
            ask = row["model"].load()
            calls[str(number)] = partial(ask, "serving_default", images)
        title = f"{rows[0]['runtime']}, batch {batch}"
        times = interleaved(title, calls, rounds)
        for row, timing in zip(rows, times.values(), strict=True):
            row["milliseconds"][str(batch)] = round(timing["ms"], 3)


def _shape(folder: Path) -> tuple[int, ...]:
    about = json.loads((folder / "manifest.json").read_text("utf-8"))
    images = about["signatures"]["encode"]["inputs"]["images"]
    return tuple(images["shape"][1:])


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


def _memory(model: Any) -> float | None:
    """Returns the most megabytes that a process with one network held.

    It is `None` where the system does not tell.
    """
    from tfcaps.export import runtimes

    shape = map(str, (BATCHES[-1], *_shape(model.folder)))
    int8 = "int8" if model.int8 else ""
    flags = [runtimes.__file__, model.format, int8, str(model.folder), *shape]
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
        f"{common.origin(result['machine'])}\n"
    )


if __name__ == "__main__":
    sys.exit(common.main(make_parser(), run, _check))
