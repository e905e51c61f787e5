"""Asks a served network what it sees in pictures: an example of a REST client.

python export/client.py --model dr_capsnet_small digit.png

It needs NumPy and Pillow.
"""

import argparse
import http.client
import json
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, run_command

_TIMEOUT = 30  # seconds
_MODES = {1: "L", 3: "RGB"}  # Pillow's, by the number of channels
_UNREADABLE = (OSError, ValueError, MemoryError, SyntaxError)  # broken files

Array = NDArray[Any]


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="client.py", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("pictures", nargs="+", type=Path, help="files of pictures")
    add("--invert", action="store_true", help="swap dark and bright")
    add("--model", required=True, help="its name on the server")
    add("--signature", default="serving_default", help="or explain, or encode")
    add("--url", default="http://localhost:8501", help="default: %(default)s")
    add("--manifest", type=Path, help="manifest.json, for names of classes")
    add("--classes", type=lambda names: names.split(","), help="or A,B,...")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command(make_parser(), _run, argv)


def _run(options: argparse.Namespace) -> None:
    if not options.url.startswith(("http://", "https://")):
        raise UserError(f"{options.url!r} must begin with http://.")
    if find_spec("PIL") is None:
        raise UserError("pictures need Pillow; run pip install pillow.")
    classes = options.classes
    if options.manifest and not classes:
        classes = _classes_in(options.manifest)
    model = f"{options.url.rstrip('/')}/v1/models/{quote(options.model, '')}"
    dtype, shape = signature_of(model, options.signature)
    pixels = [read_picture(path, shape) for path in options.pictures]
    for path, image in zip(options.pictures, pixels, strict=True):
        image = 255 - image if options.invert else image
        sent = image if dtype == "DT_UINT8" else image / np.float32(255)
        outputs = predict(model, sent[None], options.signature)
        one = {name: array[0] for name, array in outputs.items()}
        print(f"{path}: {_describe(one, classes)}")


def signature_of(model: str, name: str) -> tuple[str, tuple[int, ...]]:
    """Returns type and shape of the images that a signature takes.

    Args:
        model: Its address, such as `"http://localhost:8501/v1/models/digits"`.
        name: Name of the signature.

    Raises:
        UserError: If there is none, or it does not take images.
    """
    keys = ("metadata", "signature_def", "signature_def")
    known = _ask(f"{model}/metadata", None, *keys)
    # That which initialises a model has no inputs and is not meant.
    known = {key: each for key, each in known.items() if each.get("inputs")}
    if name not in known:
        names = ", ".join(sorted(known))
        raise UserError(f"there is no signature {name!r}, but {names}.")
    images = known[name]["inputs"].get("images", {})
    sides = images.get("tensor_shape", {}).get("dim", [])
    shape = tuple(int(side["size"]) for side in sides)[1:]
    dtype = images.get("dtype")
    if dtype not in ("DT_FLOAT", "DT_UINT8") or shape[2:] not in ((1,), (3,)):
        raise UserError(
            f"signature {name!r} does not take grey or RGB pictures, and this "
            "client sends nothing else."
        )
    return dtype, shape


def read_picture(path: Path, shape: tuple[int, ...]) -> Array:
    """Returns a picture `[h, w, c]` of uint8, upright and resized.

    Args:
        path: Its file.
        shape: Rows, columns and channels that the model takes.

    Raises:
        UserError: If it cannot be read.
    """
    from PIL import Image, ImageOps

    rows, columns, channels = shape
    try:
        with Image.open(path) as picture:
            if picture.mode.startswith(("I", "F")):  # convert would clip it
                raise UserError("save it with 8 bits per channel, not more.")
            upright = ImageOps.exif_transpose(picture).convert("RGBA")
        ground = Image.new("RGBA", upright.size, "white")  # as in training
        image = Image.alpha_composite(ground, upright).convert(_MODES[channels])
        # Floats, so that they are rounded once, as in training.
        bands = [
            np.asarray(
                band.convert("F").resize(
                    (columns, rows), Image.Resampling.BILINEAR
                )
            )
            for band in image.split()
        ]
        return np.rint(np.stack(bands, axis=-1)).astype(np.uint8)
    except (*_UNREADABLE, Image.DecompressionBombError, UserError) as error:
        raise UserError(f"{path} cannot be used: {error}") from error


def predict(model: str, images: Array, signature: str) -> dict[str, Array]:
    """Returns the outputs of a served network.

    Args:
        model: Its address, as in `signature_of`.
        images: `[b, h, w, c]`, as it takes them.
        signature: Name of the signature.

    Raises:
        UserError: If no outputs come.
    """
    content = {"signature_name": signature, "inputs": images.tolist()}
    outputs = _ask(f"{model}:predict", content, "outputs")
    if not isinstance(outputs, dict):  # a single output loses its name
        outputs = {"poses": outputs}
    return {name: np.array(values) for name, values in outputs.items()}


def _ask(url: str, content: Any, *keys: str) -> Any:
    """Returns a part of the answer to a POST, or to a GET of nothing."""
    data = None if content is None else json.dumps(content).encode()
    headers = {"Content-Type": "application/json"}
    words = ""
    try:
        request = urllib.request.Request(url, data, headers)
        try:
            reply = urllib.request.urlopen(request, timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            reply = error  # which can be read too
        with reply:
            words = reply.read().decode("utf-8", "replace")
        answer = json.loads(words)
        for key in keys if reply.status == 200 else ["error"]:
            answer = answer[key]
        if reply.status == 200:
            return answer
        words, problem = answer, f"answers HTTP {reply.status}"
        if reply.status == 404:
            problem = "has no such model; give one that it serves"
    except (OSError, http.client.HTTPException) as error:
        words = str(getattr(error, "reason", error))
        problem = "does not answer; start the server or give another address"
    except (ValueError, KeyError, TypeError):
        problem = "is no server of models; it answers"
    words = textwrap.shorten(words or "it does not say why.", 400)
    raise UserError(f"{url} {problem}: {words}")


def _describe(outputs: dict[str, Array], classes: Sequence[str] | None) -> str:
    """Returns the three likeliest classes of a picture, or else what came."""
    if "lengths" not in outputs:
        return ", ".join(f"{name} {outputs[name].shape}" for name in outputs)
    lengths = outputs["lengths"]
    names: Sequence[Any] = classes or range(len(lengths))
    if len(names) != len(lengths):
        raise UserError(f"the model has {len(lengths)} classes, not {names}.")
    order = np.argsort(-lengths, kind="stable")[:3]
    text = ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in order)
    if "saliency" in outputs:
        saliency = outputs["saliency"]
        row, column = np.unravel_index(saliency.argmax(), saliency.shape)
        text += f"; saliency peaks at row {row}, column {column}"
    elif "couplings" in outputs:
        c = outputs["couplings"]
        most = ", ".join(f"{k} {c[k]:.2f}" for k in np.argsort(-c)[:5])
        text += f"; most coupled children {most}"
    return text


def _classes_in(manifest: Path) -> list[str] | None:
    try:
        about = json.loads(manifest.read_text("utf-8"))
        names: list[str] | None = about["classes"]
        return names
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{manifest} is no manifest of an export.") from error


if __name__ == "__main__":
    sys.exit(main())
