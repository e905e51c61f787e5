"""Exports a trained model for TensorFlow Serving, or for other runtimes.

python export/run.py --run runs/digits-rem --to served
python export/run.py --run runs/digits-rem --to served --format onnx
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import cli
from cli import Parser, UserError
from markdown_table import table

# Formats, and the modules of their extras of the same name. TensorFlow writes
# all of them.
FORMATS = {
    "savedmodel": "",
    "litert": "ai_edge_litert",
    "onnx": "onnx onnxruntime tf2onnx",
    "openvino": "openvino",
}
# Of what int8 costs, as the manifest has it.
COLUMNS = (
    ("format", "{format}"),
    ("numbers", "{numbers}"),
    ("accuracy", "{accuracy:.2%}"),
    ("same trees", "{same_trees:.1%}"),
    ("same codes", "{same_codes:.2%}"),
    ("bytes", "{bytes:,}"),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="export/run.py", description=__doc__)

    def add(flag: str, about: str, kind: Any = str, **settings: Any) -> None:
        parser.add_argument(flag, help=about, type=kind, **settings)

    def whole(low: int, high: int) -> Callable[[str], int]:
        return lambda text: cli.number(text, int, low, high)

    about = "run folder, or any .keras file of a capsule network"
    add("--run", about, Path, required=True)
    add("--to", "folder of the served models", Path, required=True)
    add("--model-name", "name for clients (default: the model's own)")
    # The server takes no larger ones.
    add("--version", "number (default: the next free one)", whole(1, 2**63 - 1))
    about = (
        "what clients send: uint8 pixels from 0 to 255, or float32 pixels from "
        "0 to 1 (default: float32, or uint8 for a network that scales pixels "
        "itself)"
    )
    add("--input-dtype", about, choices=("uint8", "float32"))
    about = "largest pixel of the network (default: what its first layers say)"
    add("--pixels", about, int, choices=(1, 255))
    about = "round the couplings to this many levels, 2 to 256"
    add("--levels", about, whole(2, 256))
    about = (
        "one or several, in one version: savedmodel for TensorFlow Serving "
        "(default), litert, onnx, openvino"
    )
    add("--format", about, nargs="+", choices=FORMATS, default=["savedmodel"])
    about = (
        "also write litert, onnx and openvino in int8, calibrated by 300 "
        "images of x_train and measured on x_test and y_test of this file"
    )
    add("--int8", about, Path, metavar="IMAGES.npz")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return cli.run_loading(
        make_parser(), export, check, argv, backend="tensorflow"
    )


def check(options: argparse.Namespace) -> None:
    """Raises `UserError` if a file or a package is missing."""
    _model_file(options.run)
    options.format = list(dict.fromkeys(options.format))
    if options.int8 and options.format == ["savedmodel"]:
        raise UserError(
            "--int8 needs --format litert, onnx or openvino; a SavedModel has "
            "no int8."
        )
    if options.int8 and not options.int8.is_file():
        raise UserError(f"there is no file {options.int8}.")
    needed = {f: FORMATS[f] for f in options.format if f != "savedmodel"}
    if options.int8 and "openvino" in needed:
        needed["openvino"] += " nncf"
    cli.check_installed(tensorflow="tensorflow", **needed)


def _model_file(path: Path) -> Path:
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{path} is neither a run folder with a model.keras nor a .keras "
            "file."
        )
    return file


def export(options: argparse.Namespace) -> None:
    """Loads, exports, checks and publishes a model."""
    from tfcaps import rem
    from tfcaps.export import ExportError, save
    from tfcaps.export.int8 import read_samples
    from tfcaps.export.pixels import pixels_of
    from tfcaps.export.serving import write_server_configs

    if options.to.exists() and not options.to.is_dir():
        raise UserError(f"--to {options.to} is not a folder.")
    model = cli.read_model(_model_file(options.run))
    name = options.model_name or model.name
    if Path(name).name != name or name.startswith("."):
        raise UserError(f"--model-name {name!r} must be a plain folder name.")
    samples = None
    try:
        if options.int8:
            network = rem.classifier(model)
            shape = tuple(network.inputs[0].shape[1:])
            sent = pixels_of(network, options.input_dtype, options.pixels).dtype
            samples = read_samples(options.int8, shape, sent)
        with cli.native_silence():  # converters write notes
            target = save(
                model,
                options.to / name,
                version=options.version,
                input_dtype=options.input_dtype,
                pixels=options.pixels,
                levels=options.levels,
                formats=options.format,
                int8=samples,
                about=describe(options.run),
                log=lambda line: print(line, flush=True),
            )
    except ExportError as error:
        raise UserError(str(error)) from error
    except ValueError as error:
        raise UserError(f"{options.run} cannot be exported: {error}") from error
    if "savedmodel" in options.format:
        write_server_configs(options.to)
    about = _read_json(target / "manifest.json")
    if "int8" in about:
        print(int8_table(about["int8"]))
    print(f"exported to {target}")


def int8_table(measured: Mapping[str, Any]) -> str:
    """Returns what int8 costs, of a manifest, as a Markdown table."""
    rows = [
        {"format": form, "numbers": numbers, **row}
        for form, kinds in measured["formats"].items()
        for numbers, row in kinds.items()
    ]
    return table(rows, COLUMNS, left=2)


def describe(path: Path) -> dict[str, Any]:
    """Returns what the files of a run folder say of a model.

    It is a dict of `dataset`, `classes`, `metrics`, `saliency` (whether the map
    of `explain` explains anything) and `run`, each `None` if it is not known,
    as of a `.keras` file.
    """
    config, data, reports, environment = (
        _read_json(path / f"{name}.json") if path.is_dir() else {}
        for name in ("config", "data", "rem", "environment")
    )
    # Where the data lay is nobody's business who gets the model.
    config.pop("data_dir", None)
    models = reports.get("models", {})
    report = models.get("rem" if config.get("rem") else "baseline", {})
    metrics = {
        name: value
        for name, value in report.items()
        if isinstance(value, int | float | str)
    }
    run = {"config": config, "commit": environment.get("commit")}
    return {
        "dataset": config.get("dataset"),
        "classes": data.get("classes"),
        "metrics": metrics or None,
        "saliency": report.get("saliency"),
        "run": run if config else None,
    }


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
