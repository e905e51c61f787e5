"""Checks an exported folder by answers that the Keras model gave."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.export import runtimes
from tfcaps.export.networks import answers
from tfcaps.export.pixels import Pixels
from tfcaps.export.versions import read_manifest

REFERENCE = "assets.extra/reference.npz"
# Of exports without a tolerance of their own, which were made before.
_TOLERANCE = 1e-5
# Couplings are exponentials of sums that reach hundreds in EM and sharp
# routing: they may be so many times as far apart.
_OF_COUPLINGS = 10.0

_BATCHES = (1, 3, 32)
# The batch whose rows are also asked alone.
_ROWS = 3
# Of 36 rows, those in which a rounded coupling may lie on the other side of an
# edge because a sum was added up in another order.
_ROUNDED_OTHERWISE = 2
# They load, and then fail in a server, without Python or with XLA switched off.
_PYTHON = re.compile(r"(Eager)?PyFunc(Stateless)?|NumpyFunction")
_XLA = re.compile(r"_?Xla.*")


def check(folder: Path) -> Iterator[str]:
    """Checks an exported folder as a server would see it.

    | check | fails unless |
    |---|---|
    | manifest | every file is there, and is the one that was written |
    | graph | a SavedModel needs neither XLA nor Python |
    | savedmodel, litert, onnx, openvino | the answers are the Keras model's |

    Answers, which the runtime of each format gives from the files alone, may
    differ by the `tolerance` of the manifest, times the largest number of an
    output if that is above 1; couplings by ten times as much. They must not
    depend on the other images of a batch.

    Args:
        folder: The folder of a version.

    Yields:
        A line for each check that was passed.

    Raises:
        ExportError: If one fails; the message begins with its name.
    """
    folder = Path(folder)
    about = read_manifest(folder)
    yield f"manifest   {len(about['files'])} files are whole"
    for form in about["formats"]:
        if form == "savedmodel":
            check_graph(folder)
            yield "graph      no XLA, no Python"
        largest = _check_answers(runtimes.Model(folder, form), about)
        yield f"{form:10} the Keras model's answers within {largest:.1e}"
        if "int8" in about and form != "savedmodel":
            _check_answers(runtimes.Model(folder, form, int8=True), about)
            yield f"{form:10} in int8: answers of the right shapes"


def check_graph(folder: Path) -> None:
    """Refuses the graph of a SavedModel that a server cannot run."""
    from tensorflow.core.protobuf import saved_model_pb2

    [path, *_] = runtimes.Model(folder, "savedmodel").files
    with runtimes.one_sentence("graph", f"{path} is no SavedModel"):
        model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in model.meta_graphs:
        functions = graph.graph_def.library.function
        nodes = [*graph.graph_def.node]
        nodes += [node for function in functions for node in function.node_def]
        for node in nodes:
            if _PYTHON.fullmatch(node.op):
                raise runtimes.ExportError(
                    f"graph: {folder} calls a Python function ({node.op}, "
                    f"{node.name}), which a server does not have; use "
                    "TensorFlow's operations."
                )
        compiled = [x.attr["_XlaMustCompile"].b for x in (*nodes, *functions)]
        if any(compiled) or any(_XLA.fullmatch(node.op) for node in nodes):
            raise runtimes.ExportError(
                f"graph: {folder} must be compiled by XLA, which TensorFlow "
                "Serving switches off; remove jit_compile=True from the layers."
            )


def draw_images(batch: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Returns noise `[batch, *shape]` as sent, the same every time."""
    # Unlike those of newer generators, its numbers are fixed for ever.
    draw = np.random.RandomState(batch)
    contrast = draw.uniform(0.2, 1.0, (batch, *[1] * len(shape)))
    pixels = contrast * draw.randint(0, 256, (batch, *shape))
    pixels = pixels.astype("uint8")
    if dtype in ("uint8", "float32"):
        return pixels if dtype == "uint8" else pixels / np.float32(255.0)
    return (pixels % 2).astype(dtype)  # rows of whatever table


def write_reference(shown: keras.Model, folder: Path, pixels: Pixels) -> None:
    """Writes what a model of `explanation` answers to images from a seed.

    With it a folder can be checked anywhere, without the model.
    """
    arrays: runtimes.Arrays = {}
    for batch in _BATCHES:
        drawn = draw_images(batch, shown.inputs[0].shape[1:], pixels.dtype)
        for name, value in answers(shown, drawn, pixels).items():
            arrays[f"{batch}/{name}"] = value
    path = folder / REFERENCE
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _check_answers(model: runtimes.Model, about: dict[str, Any]) -> float:
    """Returns how far answers are from the expected ones; of int8 nothing."""
    ask = model.load()
    what = f"{model.format}: {model.files[0]}"
    images = about["signatures"]["encode"]["inputs"]["images"]
    with np.load(model.folder / REFERENCE, allow_pickle=False) as file:
        known = dict(file)
    pairs, alone = [], []
    for batch in _BATCHES:
        drawn = draw_images(batch, tuple(images["shape"][1:]), images["dtype"])
        for signature, names in runtimes.SIGNATURES.items():
            expected = {
                name: known[f"{batch}/{name}"]
                for name in names
                if f"{batch}/{name}" in known
            }
            pairs.append((expected, ask(signature, drawn)))
            for row in range(batch if batch == _ROWS else 0):
                one = slice(row, row + 1)
                part = {name: v[one] for name, v in expected.items()}
                alone.append((part, ask(signature, drawn[one])))
    for expected, came in (*pairs, *alone):
        forms = [
            {name: (v.dtype, v.shape) for name, v in arrays.items()}
            for arrays in (expected, came)
        ]
        if forms[0] != forms[1]:
            raise runtimes.ExportError(
                f"{what}: the outputs have other names, types or shapes."
            )
        if not all(np.isfinite(value).all() for value in came.values()):
            raise runtimes.ExportError(f"{what} returns what is not a number.")
    if model.int8:
        return 0.0
    asked = f"{what}: an image asked alone, not with others"
    _compare(asked, alone, about)
    return _compare(what, pairs, about)


def _compare(
    what: str,
    pairs: Iterable[tuple[runtimes.Arrays, runtimes.Arrays]],
    about: dict[str, Any],
) -> float:
    """Returns the largest of `_rows_apart`, if none is too large."""
    tolerance = about.get("tolerance", _TOLERANCE)
    others = 0 if about["levels"] is None else _ROUNDED_OTHERWISE
    largest = 0.0
    for expected, came in pairs:
        rows = _rows_apart(expected, came, tolerance)
        wrong = ~(rows <= tolerance)  # also where it is not a number
        others -= int(wrong.sum())
        if wrong.any() and others < 0:
            raise runtimes.ExportError(
                f"{what}: an answer differs by {np.max(rows[wrong]):.2g} of "
                f"its size, and by rounding alone at most {tolerance:.2g}."
            )
        largest = max(largest, float(np.max(rows[~wrong], initial=0.0)))
    return largest


def _rows_apart(
    expected: runtimes.Arrays, came: runtimes.Arrays, tolerance: float
) -> NDArray[np.floating]:
    """Returns the largest difference in each row, as `tolerance` counts it.

    That is relative to the largest number of an output, if it is above 1, and
    of couplings a tenth. Where two classes are equally long, either may come
    first.
    """
    rows = len(next(iter(expected.values())))
    same = np.ones(rows, bool)
    apart = np.zeros(rows)
    if "classes" in expected:
        lengths = np.sort(expected["lengths"], axis=-1)
        most = 2 * tolerance * max(1.0, float(lengths.max()))
        is_tie = lengths[:, -1:] - lengths[:, -2:-1] <= most
        same = expected["classes"] == came["classes"]
        apart[~same & ~is_tie.any(axis=-1)] = np.inf
    for name in expected.keys() - {"classes"}:
        difference = np.abs(expected[name] - came[name]).reshape(rows, -1)
        difference = difference.max(axis=-1, initial=0.0)
        size = max(1.0, float(np.abs(expected[name]).max(initial=0.0)))
        if name in ("couplings", "saliency"):  # towards the class
            difference = np.where(same, difference, 0.0)
            size *= _OF_COUPLINGS
        apart = np.maximum(apart, difference / size)
    return apart
