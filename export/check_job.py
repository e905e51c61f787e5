"""Checks an exported folder in each way that `export/check.py` lists."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

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
    warmups = warmup.read(folder, signatures)
    yield from _check_answers(folder, signatures, about, warmups)
    images, rounded = about["images"], about["levels"] is not None
    if with_probe:
        answers = probe.run(_requests(folder, signatures, images))
        largest = _parity("probe", folder, answers, rounded)
        yield f"probe     the server's loader: the same within {largest:.1e}"


def _check_answers(
    folder: Path,
    signatures: dict[str, Signature],
    about: dict[str, Any],
    warmups: list[tuple[str, NDArray[Any]]],
) -> Iterator[str]:
    """Checks answers to the reference's images and the warm-up requests.

    All are asked in one process.
    """
    rounded = about["levels"] is not None
    known = _requests(folder, signatures, about["images"])
    alone = _alone(folder, signatures["explain"], known)
    warm = [
        session.Request(folder, signatures[name], {"images": pixels})
        for name, pixels in warmups
    ]
    outputs = _run([*known, *alone], warm)
    largest = _parity("parity", folder, outputs[: len(known)], rounded)
    yield f"parity    the Keras model's answers within {largest:.1e}"
    _check_rows(folder, outputs[len(known) : len(known) + _ROWS], rounded)
    yield "rows      each image's answer is its own"
    _check_warmup(folder, warm, outputs[-len(warm) :])
    yield f"warmup    {len(warm)} requests replayed"


def _alone(
    folder: Path, explain: Signature, known: list[session.Request]
) -> list[session.Request]:
    """Returns requests for each image of one of the batches."""
    together = next(
        request.inputs["images"]
        for request in known
        if len(request.inputs["images"]) == _ROWS
    )
    return [
        session.Request(folder, explain, {"images": together[row : row + 1]})
        for row in range(_ROWS)
    ]


def _run(
    requests: list[session.Request], warm: list[session.Request]
) -> list[reference.Arrays]:
    """Returns the outputs for both; says if a warm-up request fails."""
    try:
        answers = session.run([*requests, *warm])
    except session.RunError as error:
        if error.request is not None and error.request >= len(requests):
            raise UserError(f"warmup: {error}") from error
        raise
    return [answer.outputs for answer in answers]


def _check_rows(
    folder: Path, answers: list[reference.Arrays], rounded: bool
) -> None:
    expected = reference.read(folder)[_ROWS, "explain"]
    rows = (
        {name: array[row : row + 1] for name, array in expected.items()}
        for row in range(_ROWS)
    )
    reference.compare(
        f"rows: {folder}: an image asked alone, not with others",
        zip(rows, answers, strict=True),
        rounded=rounded,
    )


def _check_warmup(
    folder: Path,
    requests: list[session.Request],
    answers: list[reference.Arrays],
) -> None:
    for request, answer in zip(requests, answers, strict=True):
        count = len(request.inputs["images"])
        if {len(array) for array in answer.values()} != {count}:
            raise UserError(
                f"warmup: {folder} does not answer each of {count} images"
            )


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


def run(options: Any) -> None:
    """Prints a line for each check that was passed."""
    for line in check(options.folder, with_probe=options.probe):
        print(line, flush=True)
