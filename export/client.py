"""Asks a served network what it sees in pictures: an example of a REST client.

python export/client.py --model digits digit.png

It needs NumPy and Pillow. The guide "Serve a network" asks by gRPC too.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
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

Array = NDArray[Any]


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="client.py", description=__doc__)
    add = parser.add_argument
    add("pictures", nargs="+", type=Path, help="files of pictures")
    add("--invert", action="store_true", help="swap dark and bright")
    add("--model", required=True, help="its name on the server")
    add("--signature", default="serving_default", help="or explain, or encode")
    add("--url", default="http://localhost:8501", help="default: %(default)s")
    add(
        "--manifest",
        type=Path,
        help="manifest.json, for names of classes, and for what a pixel is",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command(make_parser(), _run, argv)


def _run(options: argparse.Namespace) -> None:
    if not options.url.startswith(("http://", "https://")):
        raise UserError(f"{options.url!r} must begin with http://.")
    if find_spec("PIL") is None:
        raise UserError("pictures need Pillow; run pip install pillow.")
    about: Any = {}
    if options.manifest:
        about = json.loads(options.manifest.read_text("utf-8"))
    model = f"{options.url.rstrip('/')}/v1/models/{quote(options.model, '')}"
    known = _ask(f"{model}/metadata")["metadata"]["signature_def"]
    inputs = known["signature_def"].get(options.signature, {}).get("inputs", {})
    if "images" not in inputs:
        raise UserError(f"no signature {options.signature!r} takes images.")
    sides = inputs["images"]["tensor_shape"]["dim"]
    described = about.get("signatures", {}).get(options.signature, {})
    pixels = described.get("inputs", {}).get("images", {}).get("range", (0, 1))
    for path in options.pictures:
        image = read_picture(path, [int(side["size"]) for side in sides][1:])
        sent = 255 - image if options.invert else image
        if inputs["images"]["dtype"] != "DT_UINT8":
            sent = sent / np.float32(255 / pixels[1])
        answer = predict(model, sent[None], options.signature)
        print(f"{path}: {_describe(answer, about)}")


def read_picture(path: Path, shape: Sequence[int]) -> Array:
    """Returns a picture of that shape, `[h, w, c]`, uint8, as in training."""
    from PIL import Image, ImageOps

    rows, columns, channels = shape
    try:
        with Image.open(path) as picture:
            upright = ImageOps.exif_transpose(picture)
            if upright.mode[0] == "I":  # Pillow would cut 16 bits off at 255
                deep = np.asarray(upright).astype(np.int64)
                upright = Image.fromarray(((deep + 128) // 257).astype("uint8"))
            upright = upright.convert("RGBA")
    except (OSError, ValueError, SyntaxError) as error:  # broken files
        raise UserError(f"{path} cannot be used: {error}") from error
    ground = Image.new("RGBA", upright.size, "white")
    image = Image.alpha_composite(ground, upright).convert(_MODES[channels])
    image = image.resize((columns, rows), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(shape)


def predict(model: str, images: Array, signature: str) -> dict[str, Array]:
    """Returns the outputs of a served network for images `[b, h, w, c]`.

    Its address is such as `http://localhost:8501/v1/models/digits`.
    """
    if not len(images):
        raise UserError("there must be an image at least to ask about.")
    question = {"signature_name": signature, "inputs": images.tolist()}
    outputs = _ask(f"{model}:predict", question)["outputs"]
    if not isinstance(outputs, dict):  # a single output loses its name
        outputs = {"poses": outputs}
    return {name: np.array(values) for name, values in outputs.items()}


def _ask(url: str, question: Any = None) -> Any:
    """Returns the answer to a POST, or to a GET of nothing."""
    data = None if question is None else json.dumps(question).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            reason = error.read().decode("utf-8", "replace")[:400]
        raise UserError(f"{url} answers HTTP {error.code}: {reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise UserError(
            f"{url} does not answer as a server of models; start it or give "
            f"another address: {error}"
        ) from error


def _describe(outputs: dict[str, Array], about: dict[str, Any]) -> str:
    """Returns the three likeliest classes of a picture, or else what came.

    `about` is the manifest, which says what the classes are called, and whether
    saliency maps tell anything.
    """
    if "lengths" not in outputs:
        return ", ".join(f"{k} {v[0].shape}" for k, v in outputs.items())
    [lengths] = outputs["lengths"]
    order = np.argsort(-lengths, kind="stable")[:3]
    names = about.get("classes") or range(len(lengths))
    text = ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in order)
    checks = about.get("saliency") or {}
    if checks.get("specific") is False:
        text += "; its saliency map is no explanation"
    elif "saliency" in outputs:
        [saliency] = outputs["saliency"]
        row, column = np.unravel_index(saliency.argmax(), saliency.shape)
        text += f"; saliency peaks at row {row}, column {column}"
    return text


if __name__ == "__main__":
    sys.exit(main())
