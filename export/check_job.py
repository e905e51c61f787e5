"""Checks an exported folder in each way that `export/check.py` lists."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli import UserError
from export import conversion, manifest, probe, reference, session, warmup
from export.formats import litert
from export.saved_model import Signature, check_graph

# Of the batches in `reference.npz`, the one whose rows are also asked alone.
_ROWS = 3


def check(folder: Path, *, with_probe: bool = False) -> Iterator[str]:
    """Checks an exported folder.

    Args:
        folder: The folder of a version.
        with_probe: Bool. Also build and run the C++ program. Defaults to
            `False`.

    Yields:
        A line for each check that was passed.

    Raises:
        UserError: If one fails; the message begins with its name.
    """
    about = manifest.check(folder)
    yield f"manifest  {len(about['files'])} files are whole"
    written_as = about.get("formats") or _formats_before(folder)
    if "savedmodel" in written_as:
        yield from _check_saved_model(folder, about, with_probe)
    elif with_probe:
        raise UserError(f"probe: {folder} has no SavedModel.")
    for name in written_as:
        if name != "savedmodel":
            yield conversion.check(name, folder, about)
            if "int8" in about:
                yield conversion.check(name, folder, about, int8=True)


def _formats_before(folder: Path) -> list[str]:
    """Returns the formats of a folder whose manifest predates them."""
    has_litert = (folder / litert.NAME).exists()
    return ["savedmodel", *(["litert"] if has_litert else [])]


def _check_saved_model(
    folder: Path, about: dict[str, Any], with_probe: bool
) -> Iterator[str]:
    """Checks what TensorFlow Serving loads."""
    signatures = check_graph(folder)
    stated = {name: s.to_dict() for name, s in signatures.items()}
    if about.get("signatures") != stated:
        raise UserError(
            f"graph: the signatures of {folder} are not those in its manifest; "
            "export the model anew."
        )
    yield "graph     no XLA, no Python, any batch"
    yield from _check_answers(folder, signatures, about)
    yield from _check_warmup(folder, signatures)
    images, rounded = about["images"], about["levels"] is not None
    if with_probe:
        answers = probe.run(_requests(folder, signatures, images))
        largest = _parity("probe", folder, answers, rounded)
        yield f"probe     the server's loader: the same within {largest:.1e}"


def _check_answers(
    folder: Path, signatures: dict[str, Signature], about: dict[str, Any]
) -> Iterator[str]:
    """Checks answers to the reference's images, together and alone."""
    images, rounded = about["images"], about["levels"] is not None
    requests = _requests(folder, signatures, images)
    together = next(
        request.inputs["images"]
        for request in requests
        if len(request.inputs["images"]) == _ROWS
    )
    explain = signatures["explain"]
    alone = [
        session.Request(folder, explain, {"images": together[row : row + 1]})
        for row in range(_ROWS)
    ]
    answers = [answer.outputs for answer in session.run([*requests, *alone])]
    largest = _parity("parity", folder, answers[: len(requests)], rounded)
    yield f"parity    the Keras model's answers within {largest:.1e}"
    expected = reference.read(folder)[_ROWS, "explain"]
    rows = (
        (
            {name: array[row : row + 1] for name, array in expected.items()},
            answer,
        )
        for row, answer in enumerate(answers[len(requests) :])
    )
    reference.compare(
        f"rows: {folder}: an image asked alone, not with others",
        rows,
        rounded=rounded,
    )
    yield "rows      each image's answer is its own"


def _requests(
    folder: Path, signatures: dict[str, Signature], images: str
) -> list[session.Request]:
    """Returns what `reference.npz` holds the answers to, in its order."""
    requests = []
    for batch, name in reference.read(folder):
        shape = tuple(signatures[name].inputs["images"][1][1:])
        drawn = reference.draw_images(batch, shape, images)
        requests.append(
            session.Request(folder, signatures[name], {"images": drawn})
        )
    return requests


def _parity(
    what: str, folder: Path, answers: list[reference.Arrays], rounded: bool
) -> float:
    expected = reference.read(folder).values()
    pairs = zip(expected, answers, strict=True)
    return reference.compare(f"{what}: {folder}", pairs, rounded=rounded)


def _check_warmup(
    folder: Path, signatures: dict[str, Signature]
) -> Iterator[str]:
    requests = warmup.read(folder, signatures)
    try:
        answers = session.run(
            [
                session.Request(folder, signatures[name], {"images": images})
                for name, images in requests
            ]
        )
    except session.RunError as error:
        raise UserError(f"warmup: {error}") from error
    for (_, images), answer in zip(requests, answers, strict=True):
        if {len(array) for array in answer.outputs.values()} != {len(images)}:
            raise UserError(
                f"warmup: {folder} does not answer each of {len(images)} images"
            )
    yield f"warmup    {len(requests)} requests replayed"


def run(options: Any) -> None:
    """Prints a line for each check that was passed."""
    for line in check(options.folder, with_probe=options.probe):
        print(line, flush=True)
