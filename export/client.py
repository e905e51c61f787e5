"""Asks a served network what it sees in images.

python export/client.py --model dr_capsnet_small digit.png

It needs numpy and pillow; gRPC tensorflow-serving-api too.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, run_command
from export.clients.grpc import GrpcServer, predict_grpc
from export.clients.pictures import read_images
from export.clients.rest import RestServer, predict_rest, signature_rest
from export.clients.server import (
    Array,
    ClientError,
    Outputs,
    Server,
    Signature,
    as_input,
)
from export.quiet import native_silence

__all__ = [
    "ClientError",
    "Signature",
    "as_input",
    "predict_grpc",
    "predict_rest",
    "read_images",
    "signature_rest",
]

_BATCH = 32  # the largest that the server's batching.config allows


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="client.py", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("images", nargs="+", type=Path, help="image or .npy files")
    add("--invert", action="store_true", help="swap dark and bright")
    add("--model", required=True, help="its name on the server")
    add("--version", type=int, help="default: the newest")
    add("--signature", default="serving_default", help="or explain, or encode")
    add("--url", default="http://localhost:8501", help="default: %(default)s")
    add("--grpc", metavar="HOST:PORT", help="ask by gRPC instead")
    add("--timeout", type=float, default=10.0, help="seconds; default: 10")
    add("--manifest", type=Path, help="manifest.json, for names of classes")
    add("--classes", type=lambda names: names.split(","), help="or A,B,...")
    add("--json", action="store_true", help="print the whole answer as JSON")
    add("--out", type=Path, help=".npz file for all outputs")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command(make_parser(), _run, argv)


def _run(options: argparse.Namespace) -> None:
    if not 0 < options.timeout < 1e6:
        raise ClientError(f"--timeout {options.timeout:g} must be above 0.")
    classes = options.classes
    if options.manifest and not classes:
        classes = _classes_in(options.manifest)
    server = _connect(options)
    signature = server.signature(options.signature)
    batches = [read_images(path, signature) for path in options.images]
    images = np.concatenate(batches)
    if options.invert:
        images = (255 if images.dtype == np.uint8 else 1) - images
    outputs = _ask_in_batches(server, signature, images)
    if options.out:
        _save(options.out, outputs)
    if options.json:
        print(json.dumps({"outputs": outputs}, default=np.ndarray.tolist))
        return
    for index, name in enumerate(_names(options.images, batches)):
        print(f"{name}: {_describe(outputs, index, classes)}")


def _connect(options: argparse.Namespace) -> Server:
    where = options.model, options.version, options.timeout
    if options.grpc is None:
        return RestServer(options.url, *where)
    with native_silence():  # TensorFlow writes notes when it is loaded
        return GrpcServer(options.grpc, *where)


def _ask_in_batches(
    server: Server, signature: Signature, images: Array
) -> Outputs:
    parts = np.split(images, range(_BATCH, len(images), _BATCH))
    answers = [server.predict(part, signature) for part in parts]
    return {k: np.concatenate([a[k] for a in answers]) for k in answers[0]}


def _names(paths: Sequence[Path], batches: Sequence[Array]) -> list[str]:
    """Returns a name for each image: its file, numbered if it has several."""
    names = []
    for path, batch in zip(paths, batches, strict=True):
        numbered = [f"{path}[{i}]" for i in range(len(batch))]
        names += numbered if len(batch) > 1 else [str(path)]
    return names


def _describe(outputs: Outputs, index: int, classes: list[str] | None) -> str:
    """Returns the three likeliest classes, or else what came."""
    if "lengths" not in outputs:
        return ", ".join(f"{k} {outputs[k].shape[1:]}" for k in outputs)
    lengths = outputs["lengths"][index]
    names: Sequence[Any] = classes or range(len(lengths))
    if len(names) != len(lengths):
        raise ClientError(f"the model has {len(lengths)} classes, not {names}.")
    order = np.argsort(-lengths, kind="stable")[:3]
    text = ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in order)
    if "saliency" in outputs:
        saliency = outputs["saliency"][index]
        row, column = np.unravel_index(saliency.argmax(), saliency.shape)
        text += f"; saliency peaks at row {row}, column {column}"
    elif "couplings" in outputs:
        c = outputs["couplings"][index]
        most = ", ".join(f"{k} {c[k]:.2f}" for k in np.argsort(-c)[:5])
        text += f"; most coupled children {most}"
    return text


def _classes_in(manifest: Path) -> list[str] | None:
    try:
        about = json.loads(manifest.read_text("utf-8"))
        if "sha256" in about:  # an export; old ones name no classes
            return about.get("classes")
        return about["classes"]
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError(f"{manifest} is no manifest of an export.") from error


def _save(path: Path, outputs: Outputs) -> None:
    """Writes an `.npz` file that appears complete or not at all."""
    arrays: dict[str, Any] = outputs
    staged = path.parent / f".{path.name}-{os.getpid()}.npz"
    try:
        np.savez(staged, **arrays)
        os.replace(staged, path)
    except OSError as error:
        raise ClientError(f"cannot write {path}: {error.strerror}.") from error
    finally:
        staged.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
